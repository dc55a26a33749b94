// From a plan to the mesh of its ranks and the sharding constraints of its values. This is the only
// place that knows what dp, tp, sp, ZeRO and expert parallelism mean.
#pragma once

#include <map>
#include <string>

#include "ir/plan.h"
#include "ir/program.h"

namespace myriad {

// The mesh of a plan has the axes pp, dp, cp, tg and tr, slowest first; tg x tr is tp, of which tg
// shards the groups of keys and values and tr the queries within a group. An axis is split in two
// (dp.1, dp.0) where the grid of the experts ends inside it or, with node-aware dispatch, where
// their nodes end. Under node_relay nodes may also end where no axis can be split; the mesh then
// has the atoms kNode and kNear. Throws Error if
// - etp or etp x ep is no product of axes and their parts,
// - under node_gather the part of etp x ep on one node is no such product, or
// - under node_gather a node would hold a part of cp while tp shards tokens too.
Mesh mesh_of(const Plan& plan, const Pieces& pieces);

// Names for the lists of atoms that the rules speak of.
//   dp, cp, tg, tr  the parts of an axis that was split
//   tp              tg and tr
//   etp, ep         the grid of the experts: ranks of one owner, and the owners
//   edp             all atoms that are not in etp or ep. Ranks that differ in these hold replicas
//   of
//                   the experts. edp_d is the part of edp inside dp, and edp_s the part inside cp
//                   and tp; the latter shards the sequence.
//   home_s          the atoms that shard the sequence before tokens are dispatched: all of cp and,
//                   of tp, all with sp but without sp those outside etp. So each token is on one
//                   rank of its group of owners.
// With node-aware dispatch there are three more; without it ep_n is empty:
//   ep_n            the atoms of ep that distinguish nodes
//   near_d, near_s  dp and home_s without ep_n: how tokens lie after they were gathered over nodes
// The atoms of ep_n come last in dp, cp and tp, so that gathering over ep_n leaves ordinary shards.
// Where nodes are uneven, ep_n is kNode, and kNear stands for ep in near_s.
std::map<std::string, std::string> aliases_of(const Plan& plan, const Mesh& mesh);

// The plan's sharding constraints as text, in the language of passes/rules.h.
std::string rules_of(const Plan& plan);

}  // namespace myriad
