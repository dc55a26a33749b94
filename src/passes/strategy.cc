// Builds the mesh of a plan in the order pp, dp, cp, tg, tr (the last varies fastest with the rank
// number), and states each kind of parallelism as a few lines of sharding constraints.
//
// The idea: experts have a grid of their own, etp x ep, laid over the fastest axes of the same
// ranks. Where the boundary of that grid falls inside an axis, `refold` splits the axis in two
// (dp.1, dp.0), so that both grids are made of whole axes; where dispatch distinguishes nodes, it
// also splits where the experts' nodes end. `aliases_of` then gives names to the groups of axes
// that the constraints speak of. Read `rules_of` first: it is the whole strategy library;
// passes/rules.h has its syntax.
#include "passes/strategy.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace myriad {

namespace {

using Axes = std::vector<Mesh::Axis>;  // fastest first

// Finds where the product of the axes' sizes, from the fastest on, reaches `boundary`. The result
// is the axis inside which it does so and the size of the part of that axis below the boundary;
// {number of axes, 1} if the boundary lies between two axes; nothing if the axes cannot be split
// there.
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

// "nearest: NAME 2 or 4": the values between 1 and `most` closest to `value` for which `legal`
// holds; empty if there are none.
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

// Splits axes at the boundaries of the experts' grid and, if dispatch distinguishes nodes, where
// the experts' nodes end. If nodes end where no axis can be split, returns the shape of these
// nodes.
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
  // If a node held a part of cp while tp shards tokens too, tokens in order of their nodes would be
  // in another order than the mesh's.
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

namespace {

// What part an axis plays for dense layers and for experts. `below` is the number of ranks of a
// group over all faster axes: it tells in which part of the experts' grid the axis lies.
struct AxisRole {
  bool trivial;       // of size 1
  bool of_tp, of_dp;  // else of cp
  bool of_etp;        // inside one owner of experts
  bool left_over;     // outside the group of ranks that share the experts
  bool tells_nodes;   // distinguishes nodes inside that group
  bool cuts_tokens;   // shards tokens before they are dispatched
};

AxisRole role_of(const Mesh::Axis& axis, int64_t below, const Plan& plan, int ranks_on_node) {
  const int group = plan.etp * plan.ep;
  AxisRole role{
      .trivial = axis.size == 1,
      .of_tp = axis.name[0] == 't',
      .of_dp = axis.name[0] == 'd',
      .of_etp = below<plan.etp, .left_over = below >= group, .tells_nodes = axis.size> 1 &&
                below >= ranks_on_node && below < group,
      .cuts_tokens = true};
  role.cuts_tokens = !role.of_tp || plan.sp || !role.of_etp;
  return role;
}

class Aliases {
 public:
  Aliases() {
    for (const char* name :
         {"tp", "etp", "ep", "edp", "edp_d", "edp_s", "home_s", "ep_n", "near_d", "near_s"})
      lists_[name] = "";
  }
  void add(const std::string& alias, const std::string& atom) {
    std::string& list = lists_[alias];
    list += (list.empty() ? "" : ",") + atom;
  }
  void add_once(const std::string& alias, const std::string& atom) {
    if (lists_[alias].find(atom) == std::string::npos) add(alias, atom);
  }
  std::map<std::string, std::string> take() { return std::move(lists_); }

 private:
  std::map<std::string, std::string> lists_;
};

// Dense layers: the parts of an axis that was split in two, and tp.
void add_dense(Aliases& aliases, const Mesh::Axis& axis, const AxisRole& role) {
  if (const size_t dot = axis.name.find('.'); dot != std::string::npos)
    aliases.add(axis.name.substr(0, dot), axis.name);
  if (role.of_tp) aliases.add("tp", axis.name);
}

// Where tokens lie before dispatch and, for node-aware dispatch, where the node's tokens lie.
void add_tokens(Aliases& aliases, const Mesh::Axis& axis, const AxisRole& role, bool uneven) {
  if (role.trivial) return;
  if (role.left_over) aliases.add(role.of_dp ? "edp_d" : "edp_s", axis.name);
  if (!role.of_dp && role.cuts_tokens) aliases.add("home_s", axis.name);
  if (uneven && !role.left_over && !role.of_etp) {
    aliases.add_once("near_s", "near");
  } else if (role.tells_nodes) {
    aliases.add("ep_n", axis.name);
  } else if (role.cuts_tokens) {
    aliases.add(role.of_dp ? "near_d" : "near_s", axis.name);
  }
}

// The experts' own grid.
void add_experts(Aliases& aliases, const Mesh::Axis& axis, const AxisRole& role) {
  if (role.trivial) return;
  aliases.add(role.left_over ? "edp" : role.of_etp ? "etp" : "ep", axis.name);
}

}  // namespace

std::map<std::string, std::string> aliases_of(const Plan& plan, const Mesh& mesh) {
  const int group = plan.etp * plan.ep;
  const bool uneven = mesh.nodes().ranks_per_node > 0;
  const int on_node =
      plan.dispatch == Dispatch::flat || uneven ? group : group / nodes_of_experts(plan);
  std::vector<std::pair<const Mesh::Axis*, AxisRole>> axes;  // slowest first
  int64_t below = mesh.ranks() / plan.pp;
  for (const Mesh::Axis& axis : mesh.declared()) {
    if (axis.name == "pp") continue;
    below /= axis.size;
    axes.emplace_back(&axis, role_of(axis, below, plan, on_node));
  }
  Aliases aliases;
  if (uneven) aliases.add("ep_n", "node");
  // Axes that distinguish nodes come last, so that gathering over them leaves ordinary shards.
  for (const bool tells_nodes : {false, true}) {
    for (const auto& [axis, role] : axes) {
      if (role.tells_nodes != tells_nodes) continue;
      add_dense(aliases, *axis, role);
      add_tokens(aliases, *axis, role, uneven);
    }
  }
  for (const auto& [axis, role] : axes) add_experts(aliases, *axis, role);
  return aliases.take();
}

namespace {

// How tokens reach their experts: where the rows of routed tokens are made and where the experts'
// outputs are added up again.
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
      "*/g*: !\n";  // gradients that the optimizer reads are not partial
  std::string expert =
      "* [e*]: e=ep b=edp_d s=edp_s f=etp d=\n"  // weights of experts and routed rows
      "id[xrl]: b=edp_d s=edp_s !\n"  // the router's choices are known to all ranks that share the
                                      // experts
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
  // With node_gather the output of the experts ("m") may stay partial over nodes until all rounds
  // have run.
  text += plan.dispatch == Dispatch::node_gather ? "[!m]*" : "*";
  text += plan.sp ? " [bsd]: s=cp,tp !\n" : " [bsd]: !\n";
  return text + expert + dispatch_rules(plan) + plan.rules;
}

}  // namespace myriad
