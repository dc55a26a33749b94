#include "passes/strategy.h"

#include <algorithm>

#include "base/error.h"

namespace myriad {

namespace {

// Splits the axes (fastest first) so that the product of the fastest ones passes through
// `boundary`.
void split_at(std::vector<Mesh::Axis>& fastest_first, int boundary, const char* what) {
  int below = 1;
  for (size_t i = 0; i < fastest_first.size() && below < boundary; ++i) {
    const int size = fastest_first[i].size;
    if (boundary % below == 0 && boundary / below < size && size % (boundary / below) == 0) {
      Mesh::Axis slow = fastest_first[i];
      fastest_first[i].size = boundary / below;
      slow.size = size / fastest_first[i].size;
      const bool again = slow.name.find('.') != std::string::npos;
      slow.name += again ? "1" : ".1";
      fastest_first[i].name += again ? "0" : ".0";
      fastest_first.insert(fastest_first.begin() + static_cast<long>(i) + 1, slow);
    }
    below *= fastest_first[i].size;
  }
  if (below == boundary) return;
  std::string sizes;
  int product = 1;
  for (const auto& axis : fastest_first) sizes += fmt::format(" {}", product *= axis.size);
  throw Error(
      fmt::format("{} = {} is no product of atoms of dp x tp", what, boundary), "layout",
      fmt::format("the atoms, fastest first, multiply to{} and what divides the next of them",
                  sizes));
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
  std::vector<Mesh::Axis> axes = {axis("tr", plan.tp / tg, "tp"), axis("tg", tg, "tp"),
                                  axis("cp", 1, "cp"), axis("dp", plan.dp, "dp")};
  split_at(axes, plan.etp, "etp");
  split_at(axes, plan.etp * plan.ep, "etp x ep");
  if (plan.dispatch != Dispatch::flat)
    split_at(axes, plan.etp * plan.ep / nodes_of_experts(plan), "the part of etp x ep on a node");
  axes.push_back(axis("pp", plan.pp, "pp"));
  std::reverse(axes.begin(), axes.end());
  return Mesh(std::move(axes));
}

std::map<std::string, std::string> aliases_of(const Plan& plan, const Mesh& mesh) {
  std::map<std::string, std::string> aliases;
  for (const char* name : {"tp", "etp", "ep", "edp", "edp_d", "edp_t", "home_t", "ep_n", "near_d", "near_t"})
    aliases[name] = "";
  const auto add = [&](const std::string& alias, const std::string& atom) {
    std::string& list = aliases[alias];
    list += (list.empty() ? "" : ",") + atom;
  };
  const int group = plan.etp * plan.ep;
  const int node = plan.dispatch == Dispatch::flat ? group : group / nodes_of_experts(plan);
  for (const bool far : {false, true}) {  // atoms that tell nodes apart come last
    int64_t below = mesh.ranks() / plan.pp;
    for (const auto& x : mesh.declared()) {  // slowest first
      if (x.name == "pp") continue;
      below /= x.size;
      const bool tells_nodes = x.size > 1 && below >= node && below < group;
      if (tells_nodes != far) continue;
      const bool of_tp = x.name[0] == 't', left_over = below >= group, of_etp = below < plan.etp;
      if (const size_t dot = x.name.find('.'); dot != std::string::npos)
        add(x.name.substr(0, dot), x.name);
      if (of_tp) add("tp", x.name);
      if (x.size == 1) continue;
      if (left_over) add(of_tp ? "edp_t" : "edp_d", x.name);
      if (of_tp && (plan.sp || !of_etp)) add("home_t", x.name);
      if (far) {
        add("ep_n", x.name);
      } else if (!of_tp || plan.sp || !of_etp) {
        add(of_tp ? "near_t" : "near_d", x.name);
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
  const std::string home = " b=dp s=cp,home_t\n", near = " e=ep_n b=near_d s=cp,near_t\n";
  std::string text = plan.sp ? "" : "m [bsd]: s=cp,home_t !\n";
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
      "* [e*]: e=ep b=edp_d s=edp_t f=etp d=\n"  // experts: weights and routed rows
      "id[xrl]: b=edp_d s=edp_t !\n"  // who goes where is known to all that share the experts
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
  text += plan.sp ? "* [bsd]: s=cp,tp !\n" : "* [bsd]: !\n";
  return text + expert + dispatch_rules(plan) + plan.rules;
}

}  // namespace myriad
