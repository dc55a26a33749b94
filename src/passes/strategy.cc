#include "passes/strategy.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace myriad {

namespace {

using Axes = std::vector<Mesh::Axis>;  // fastest first

// The axis inside which the product of the fastest ones passes through `boundary`, and its part
// below; the number of axes: between two of them; nothing: not at all.
std::optional<std::pair<size_t, int>> place_of(const Axes& axes, int64_t boundary) {
  int64_t below = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (below == boundary) return std::pair(axes.size(), 1);
    const int64_t part = boundary / below;
    if (boundary % below != 0) return std::nullopt;
    if (part < axes[i].size) {
      if (axes[i].size % part != 0) return std::nullopt;
      return std::pair(i, static_cast<int>(part));
    }
    below *= axes[i].size;
  }
  if (below == boundary) return std::pair(axes.size(), 1);
  return std::nullopt;
}

// Splits an axis in two where `boundary` falls inside it.
void split_at(Axes& axes, int64_t boundary) {
  const auto [i, part] = *place_of(axes, boundary);
  if (i == axes.size()) return;
  Mesh::Axis slow = axes[i];
  slow.size /= part;
  axes[i].size = part;
  const bool again = slow.name.find('.') != std::string::npos;
  slow.name += again ? "1" : ".1";
  axes[i].name += again ? "0" : ".0";
  axes.insert(axes.begin() + static_cast<long>(i) + 1, slow);
}

// "name: 2 or 4": the nearest values for which `legal` holds, of 1 to most; empty: none.
template <class Legal>
std::string nearest(const char* name, int value, int most, Legal legal) {
  int below = std::min(value - 1, most), above = value + 1;
  while (below > 0 && !legal(below)) --below;
  while (above <= most && !legal(above)) ++above;
  if (below <= 0 && above > most) return "";
  std::string text = fmt::format("nearest: {} ", name);
  if (below > 0) text += fmt::format("{}", below);
  if (above <= most) text += fmt::format("{}{}", below > 0 ? " or " : "", above);
  return text;
}

// Splits axes where experts are refolded inside them and, where dispatch tells nodes apart, where
// their nodes end. Nodes that do so between atoms are returned.
OwnerNodes refold(Axes& axes, const Plan& plan) {
  const int ranks = plan.dp * plan.cp * plan.tp;
  const std::string grid = fmt::format(
      "dp {}{} x tp {}", plan.dp, plan.cp > 1 ? fmt::format(" x cp {}", plan.cp) : "", plan.tp);
  const auto refuse = [&](const char* name, int value, int with, const std::string& what) {
    if (place_of(axes, static_cast<int64_t>(with) * value)) return;
    throw Error(fmt::format("{} is {}: {} is no product of atoms of {}", name, value, what, grid),
                "layout", nearest(name, value, ranks / with, [&](int n) {
                  return place_of(axes, static_cast<int64_t>(with) * n).has_value();
                }));
  };
  refuse("etp", plan.etp, 1, fmt::format("{}", plan.etp));
  split_at(axes, plan.etp);
  refuse("ep", plan.ep, plan.etp, fmt::format("etp {} x ep {}", plan.etp, plan.ep));
  split_at(axes, static_cast<int64_t>(plan.etp) * plan.ep);
  if (plan.dispatch == Dispatch::flat) return {};
  const auto on_a_node = [&](int ranks_per_node) {
    Plan p = plan;
    p.ranks_per_node = ranks_per_node;
    const int nodes = nodes_of_experts(p);
    return nodes > 1 ? plan.etp * plan.ep / nodes : 0;
  };
  // Nodes that part cp while tp cuts tokens too would ask for another order of the two.
  const bool tp_cuts = plan.sp || plan.etp < plan.tp;
  const auto is_legal = [&](int part) {
    const bool parts_cp = plan.cp > 1 && part < plan.tp * plan.cp && plan.ep * plan.etp > plan.tp;
    return part > 0 && place_of(axes, part) && !(parts_cp && tp_cuts);
  };
  const int part = on_a_node(plan.ranks_per_node);
  if (!is_legal(part) && plan.dispatch == Dispatch::node_relay)
    return {.owners = plan.ep, .inner = plan.etp, .ranks_per_node = plan.ranks_per_node};
  if (!is_legal(part)) {
    const bool apart = part > 0 && place_of(axes, part);
    std::string legal = nearest("ranks_per_node", plan.ranks_per_node, plan.ranks(),
                                [&](int n) { return is_legal(on_a_node(n)); });
    legal += legal.empty() ? "" : "; or ";
    throw Error(
        fmt::format("dispatch {}: the {} ranks of etp {} x ep {} on a node of {} {} of {}",
                    name_of(plan.dispatch), part, plan.etp, plan.ep, plan.ranks_per_node,
                    apart ? "part cp, and tp cuts tokens too," : "are no product of atoms", grid),
        "layout", legal + "dispatch node_relay or flat");
  }
  split_at(axes, part);
  return {};
}

}  // namespace

Mesh mesh_of(const Plan& plan, const Pieces& pieces) {
  int64_t groups = 1, queries = 1;
  for (const Piece& piece : pieces.pieces) {
    for (const Param& p : piece.params) {
      if (const size_t r = p.labels.find('r'); r != std::string::npos) {
        groups = p.sizes[p.labels.find('g')];
        queries = p.sizes[r];
      }
    }
  }
  const int tg = kv_cut(plan.tp, groups, queries);
  const auto axis = [&](const char* name, int size, const char* of) -> Mesh::Axis {
    for (const char* key : {name, of}) {
      if (const auto price = plan.prices.find(key); price != plan.prices.end())
        return {name, size, price->second};
    }
    return {name, size};
  };
  Axes axes = {axis("tr", plan.tp / tg, "tp"), axis("tg", tg, "tp"), axis("cp", plan.cp, "cp"),
               axis("dp", plan.dp, "dp")};
  const OwnerNodes uneven = refold(axes, plan);
  axes.push_back(axis("pp", plan.pp, "pp"));
  std::reverse(axes.begin(), axes.end());
  return Mesh(std::move(axes), uneven);
}

std::map<std::string, std::string> aliases_of(const Plan& plan, const Mesh& mesh) {
  std::map<std::string, std::string> aliases;
  for (const char* name :
       {"tp", "etp", "ep", "edp", "edp_d", "edp_s", "home_s", "ep_n", "near_d", "near_s"})
    aliases[name] = "";
  const auto add = [&](const std::string& alias, const std::string& atom) {
    std::string& list = aliases[alias];
    list += (list.empty() ? "" : ",") + atom;
  };
  const int group = plan.etp * plan.ep;
  const bool uneven = mesh.nodes().ranks_per_node > 0;
  const int node =
      plan.dispatch == Dispatch::flat || uneven ? group : group / nodes_of_experts(plan);
  if (uneven) add("ep_n", "node");
  for (const bool far : {false, true}) {  // atoms that tell nodes apart come last
    int64_t below = mesh.ranks() / plan.pp;
    for (const auto& x : mesh.declared()) {  // slowest first
      if (x.name == "pp") continue;
      below /= x.size;
      const bool tells_nodes = x.size > 1 && below >= node && below < group;
      if (tells_nodes != far) continue;
      const bool of_tp = x.name[0] == 't', of_dp = x.name[0] == 'd', left_over = below >= group,
                 of_etp = below < plan.etp;
      const bool cuts_tokens = !of_tp || plan.sp || !of_etp;
      if (const size_t dot = x.name.find('.'); dot != std::string::npos)
        add(x.name.substr(0, dot), x.name);
      if (of_tp) add("tp", x.name);
      if (x.size == 1) continue;
      if (left_over) add(of_dp ? "edp_d" : "edp_s", x.name);
      if (!of_dp && cuts_tokens) add("home_s", x.name);
      if (uneven && !left_over && !of_etp) {  // of ep
        if (aliases["near_s"].find("near") == std::string::npos) add("near_s", "near");
      } else if (far) {
        add("ep_n", x.name);
      } else if (cuts_tokens) {
        add(of_dp ? "near_d" : "near_s", x.name);
      }
    }
  }
  int64_t below = mesh.ranks() / plan.pp;
  for (const auto& x : mesh.declared()) {
    if (x.name == "pp") continue;
    below /= x.size;
    if (x.size > 1) add(below >= group ? "edp" : below < plan.etp ? "etp" : "ep", x.name);
  }
  return aliases;
}

namespace {

// How tokens reach their experts: where rows are made and added up again.
std::string dispatch_rules(const Plan& plan) {
  const std::string home = " b=dp s=home_s\n", near = " e=ep_n b=near_d s=near_s\n";
  std::string text = plan.dispatch == Dispatch::node_gather ? "m [bsd]: b=near_d s=near_s\n"
                                                            : "m [bsd]: s=home_s !\n";
  const std::string at = plan.dispatch == Dispatch::node_gather ? near : home;
  text += "@dispatch:" + at + "@combine:" + at;
  if (plan.dispatch == Dispatch::node_relay)
    text += "[xy]l [ebsd]:" + near + "@spread:" + near + "@collapse:" + near;
  return text;
}

}  // namespace

std::string rules_of(const Plan& plan) {
  std::string text =
      "*: b=dp s=cp g=tg r=tr f=tp v=tp\n"  // by label, all named values and states
      "*.w: fixed\n"
      "*/g*: !\n";  // gradients as the optimizer reads them
  std::string expert =
      "* [e*]: e=ep b=edp_d s=edp_s f=etp d=\n"  // experts: weights and routed rows
      "id[xrl]: b=edp_d s=edp_s !\n"  // who goes where is known to all that share the experts
      "rounds: !\n"
      "cnt*: !\n";
  if (plan.zero >= 1) {
    text += "[mv]:*: +zero=dp,cp\n*/g*: +zero=dp,cp\n";
    expert += "[mv]:* [e*]: +zero=edp\n*/g* [e*]: +zero=edp\n";
  }
  if (plan.grad_reduce == GradReduce::micro_batch) {
    text += plan.zero >= 2 ? "g:*: +zero=dp,cp !\n" : "g:*: !\n";
    if (plan.zero >= 2) expert += "g:* [e*]: +zero=edp !\n";
  }
  if (plan.zero >= 3) {
    text += "p:*: +zero=dp,cp\n";
    expert += "p:* [e*]: +zero=edp\n";
  }
  // With node_gather what experts hand back ("m") may wait over nodes until all rounds have run.
  text += plan.dispatch == Dispatch::node_gather ? "[!m]*" : "*";
  text += plan.sp ? " [bsd]: s=cp,tp !\n" : " [bsd]: !\n";
  return text + expert + dispatch_rules(plan) + plan.rules;
}

}  // namespace myriad
