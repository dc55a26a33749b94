// Sorts the ranks of a program into classes, so that the simulator walks one rank of each class
// instead of all of them. It is colour refinement: all columns start with one colour, and each look
// at them (`refine`) gives different colours to columns that look different. They are split by the
// sizes that they hold (only cuts that do not divide can differ), by where their groups and the
// receivers of their messages lie in the network, and then, until nothing changes, by the colours
// that they meet in each kind of group. A look never joins colours again, so this ends.
//
// One rank may stand for its class because the ranks of a class see the same sizes, the same kinds
// of partners and the same order: the ranks of a stage run one list of actions, the first looks
// make sizes and distances equal, and at the end two columns of one colour meet equally many of
// every colour in every collective. So all of them are ready at the same times; simulate.cc gives
// the induction. If too many colours remain, the ranks of a stage are taken as one, and the result
// is marked as inexact. Read Painter::run first.
#include "machine/simulate_classes.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/flight.h"

namespace myriad {

int Classes::index_of(AtomList list) const {
  const auto at = std::find(atoms.begin(), atoms.end(), list);
  CHECK(at != atoms.end(), "atoms of no collective");
  return static_cast<int>(at - atoms.begin());
}

const GroupShape& Classes::shape(int a, int rank) const {
  return uniform[a].ranks > 0 ? uniform[a] : shapes[shape_of_rank[a][rank]];
}

namespace {

class Painter {
 public:
  Painter(const Program& program, const Cluster& cluster) : p_(program), cluster_(cluster) {
    c_.stages = program.stages;
    c_.columns = program.mesh.ranks() / program.stages;
    c_.colour.assign(c_.columns, 0);
    const int pp = program.mesh.find("pp");
    stage_atom_ = pp < 0 ? 0 : static_cast<AtomSet>(1u << pp);
  }

  Classes run(int64_t most_colours) {
    collect_atoms();
    by_sizes();
    by_place();
    by_company();
    const int n = 1 + *std::max_element(c_.colour.begin(), c_.colour.end());
    if (n > most_colours) {
      take_as_one();
    } else {
      c_.priced.resize(n);
      c_.size.assign(n, 0);
      for (int i = 0; i < c_.columns; ++i) {
        if (c_.size[c_.colour[i]]++ == 0) c_.priced[c_.colour[i]] = {i};
      }
    }
    find_kinds();
    return std::move(c_);
  }

 private:
  // A new colour for each pair of an old colour and what is seen, numbered by its first column.
  template <class F>
  void refine(const F& seen) {
    std::map<std::pair<int, int64_t>, int> ids;
    for (int i = 0; i < c_.columns; ++i) {
      c_.colour[i] =
          ids.try_emplace({c_.colour[i], seen(i)}, static_cast<int>(ids.size())).first->second;
    }
  }

  void collect_atoms() {
    std::set<AtomList> all;
    for (const LoweredBody& body : p_.bodies) {
      for (const Step& s : body.steps) {
        if (begins_collective(s)) all.insert(s.atoms);
      }
    }
    for (const AtomList& a : all) {
      c_.atoms.push_back(a);
      c_.over_stages.push_back(a.set() & stage_atom_);
      c_.uniform.push_back(uniform_shape(cluster_, p_.mesh, a));
    }
  }

  void by_sizes() {
    std::set<std::pair<int64_t, AtomList>> uneven;
    const auto see = [&](int64_t size, AtomList cut) {
      if (cut.set() & kOfNodes || size % p_.mesh.parts(cut) != 0) uneven.insert({size, cut});
    };
    for (const LoweredBody& body : p_.bodies) {
      for (const Version& v : body.versions) {
        const Sizes& sizes = (*body.graph)[v.value].sizes;
        for (int d = 0; d < v.layout.dims; ++d) see(sizes[d], v.layout.cuts[d]);
      }
      for (const Step& s : body.steps) {
        for (size_t l = 0; l < s.cuts.size(); ++l) see(body.ops[s.op].size.sizes[l], s.cuts[l]);
      }
      for (const StateUse& s : body.states) {
        const Sizes& sizes = (*body.graph)[s.value].sizes;
        for (int d = 0; d < s.layout.dims; ++d) see(sizes[d], s.layout.cuts[d]);
      }
    }
    for (const auto& [size, cut] : uneven) {
      for (int s = 0; s < unlike_stages(cut); ++s) {
        refine([&, size = size, cut = cut](int column) {
          return p_.mesh.range(size, cut, c_.rank(s, column)).size();
        });
      }
    }
  }

  void by_place() {
    c_.shape_of_rank.resize(c_.atoms.size());
    std::map<GroupShape, int> ids;
    for (size_t a = 0; a < c_.atoms.size(); ++a) {
      if (c_.uniform[a].ranks > 0) continue;
      std::vector<int>& of = c_.shape_of_rank[a];
      of.assign(p_.mesh.ranks(), -1);
      for (int r = 0; r < p_.mesh.ranks(); ++r) {
        if (of[r] >= 0) continue;
        const std::vector<int> group = p_.mesh.group(c_.atoms[a], r);
        const int id =
            ids.try_emplace(shape_of(cluster_, group), static_cast<int>(ids.size())).first->second;
        for (int g : group) of[g] = id;
      }
      for (int s = 0; s < p_.stages; ++s) {
        refine([&](int column) { return of[c_.rank(s, column)]; });
      }
    }
    c_.shapes.resize(ids.size());
    for (const auto& [shape, id] : ids) c_.shapes[id] = shape;
    std::set<std::pair<int, int>> pairs;
    for (int s = 0; s < p_.stages; ++s) {
      for (const Action& a : p_.actions[s]) {
        if (a.act == Act::send) pairs.insert({s, a.peer});
      }
    }
    for (const auto& [from, to] : pairs) {
      refine([&, from = from, to = to](int column) {
        return level_between(cluster_, c_.rank(from, column), c_.rank(to, column));
      });
    }
  }

  // The columns of the part of a group that lies in a stage. A group over stages has such a part,
  // with the same columns, in each of them.
  std::vector<int> group(AtomList atoms, int stage, int column) const {
    AtomList inside;
    for (Atom a : atoms) {
      if (!(stage_atom_ >> a & 1)) inside.push(a);
    }
    std::vector<int> members = p_.mesh.group(inside, c_.rank(stage, column));
    for (int& m : members) m -= c_.rank(stage, 0);
    return members;
  }

  // How many stages have to be looked at. Groups are alike in all stages unless they depend on
  // nodes, whose borders need not lie alike in them.
  int unlike_stages(AtomList atoms) const { return atoms.set() & kOfNodes ? p_.stages : 1; }

  void by_company() {
    for (int before = -1, now = 0; before != now;) {
      before = 1 + *std::max_element(c_.colour.begin(), c_.colour.end());
      if (before == 1) return;
      for (const AtomList& a : c_.atoms) {
        for (int s = 0; s < unlike_stages(a); ++s) by_company_in(a, s);
      }
      now = 1 + *std::max_element(c_.colour.begin(), c_.colour.end());
    }
  }

  void by_company_in(AtomList atoms, int stage) {
    std::map<std::vector<int>, int> ids;
    std::vector<int64_t> seen(c_.columns, -1);
    for (int i = 0; i < c_.columns; ++i) {
      if (seen[i] >= 0) continue;
      const std::vector<int> members = group(atoms, stage, i);
      std::vector<int> colours;
      for (int m : members) colours.push_back(c_.colour[m]);
      std::sort(colours.begin(), colours.end());
      const int id = ids.try_emplace(colours, static_cast<int>(ids.size())).first->second;
      for (int m : members) seen[m] = id;
    }
    refine([&](int column) { return seen[column]; });
  }

  void take_as_one() {
    c_.exact = false;
    std::set<int> sample;
    for (int64_t i = 0; i < 64; ++i) sample.insert(static_cast<int>(i * (c_.columns - 1) / 63));
    c_.priced = {std::vector<int>(sample.begin(), sample.end())};
    c_.size = {c_.columns};
    c_.colour.assign(c_.columns, 0);
  }

  void find_kinds() {
    for (const AtomList& a : c_.atoms) {
      std::map<std::vector<int>, int> ids;
      std::vector<int> kind;
      for (int s = 0; s < unlike_stages(a); ++s) {
        for (int colour = 0; colour < c_.colours(); ++colour) {
          std::set<int> colours;
          for (int m : group(a, s, c_.priced[colour][0])) colours.insert(c_.colour[m]);
          const std::vector<int> list(colours.begin(), colours.end());
          kind.push_back(ids.try_emplace(list, static_cast<int>(ids.size())).first->second);
        }
      }
      while (kind.size() < static_cast<size_t>(p_.stages * c_.colours()))
        kind.push_back(kind[kind.size() - static_cast<size_t>(c_.colours())]);
      std::vector<std::vector<int>> kinds(ids.size());
      for (const auto& [list, id] : ids) kinds[id] = list;
      c_.kind_of.push_back(std::move(kind));
      c_.kinds.push_back(std::move(kinds));
    }
  }

  const Program& p_;
  const Cluster& cluster_;
  AtomSet stage_atom_ = 0;
  Classes c_;
};

}  // namespace

Classes classes_of(const Program& program, const Cluster& cluster, int64_t most_colours) {
  return Painter(program, cluster).run(most_colours);
}

}  // namespace myriad
