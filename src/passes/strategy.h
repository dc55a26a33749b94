// From a plan to the mesh of its ranks and the wanted layouts of its values: the only place that
// knows what dp, tp, sp, ZeRO and expert parallelism mean.
#pragma once

#include <map>
#include <string>

#include "ir/plan.h"
#include "ir/program.h"

namespace myriad {

// The mesh of a plan: pp, dp, cp, tg, tr, an axis split in two (dp.1, dp.0) where experts are
// refolded inside it or their nodes end; under node_relay nodes may also end between atoms (kNode,
// kNear). Throws Error where etp, etp x ep or, under node_gather, the part of it on one node is no
// product of atoms, or parts cp while tp cuts tokens too.
Mesh mesh_of(const Plan& plan, const Pieces& pieces);

// Names for lists of atoms. tp; dp, cp, tg, tr where they are split. etp, ep; edp: the atoms that
// experts leave over, of them edp_d in dp, edp_s in cp and tp, which cut the sequence. home_s: the
// atoms of cp, and those of tp that cut tokens before they are dispatched (with sp all, else all
// but etp), so that each is on one rank of its ep group; with node-aware dispatch also ep_n: those
// of ep that tell its nodes apart, near_d and near_s: dp and home_s without them. ep_n comes last
// in dp, cp and tp, so that gathering over it leaves ordinary cuts. Where nodes are uneven ep_n is
// kNode, and kNear stands for ep in near_s.
std::map<std::string, std::string> aliases_of(const Plan& plan, const Mesh& mesh);

// The plan's wanted layouts as text (passes/rules.h).
std::string rules_of(const Plan& plan);

}  // namespace myriad
