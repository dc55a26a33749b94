#include "ir/layout.h"

#include <algorithm>

#include "base/error.h"

namespace myriad {

AtomSet Layout::cut_atoms() const {
  AtomSet s = 0;
  for (int d = 0; d < dims; ++d) s = static_cast<AtomSet>(s | cuts[d].set());
  return s;
}

size_t LayoutHash::operator()(const Layout& l) const {
  uint64_t h = 0x9e3779b97f4a7c15u ^ (uint64_t{l.pending} << 8 | l.dims << 1 | l.max);
  for (int d = 0; d < l.dims; ++d) {
    uint64_t w = l.cuts[d].n;
    for (Atom a : l.cuts[d]) w = w * 31 + a + 1;
    h = (h ^ w) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h;
}

const char* name_of(MoveKind kind) {
  switch (kind) {
    case MoveKind::slice:
      return "slice";
    case MoveKind::first:
      return "first";
    case MoveKind::reduce_scatter:
      return "reduce_scatter";
    case MoveKind::all_to_all:
      return "all_to_all";
    case MoveKind::all_reduce:
      return "all_reduce";
    case MoveKind::all_gather:
      return "all_gather";
  }
  return "?";
}

namespace {

AtomList list_of(AtomSet set) {
  AtomList list;
  for (Atom a = 0; a < kMaxAtoms; ++a) {
    if (set >> a & 1) list.push(a);
  }
  return list;
}

// The planner's working state; each rule returns whether it applied.
class Resharder {
 public:
  Resharder(const Layout& from, const Layout& to)
      : cur_(from), goal_(to), wanted_(to.cut_atoms()) {}

  std::vector<MoveStep> run() {
    while (over_nodes() || slice() || reduce_scatter() || all_to_all() || all_reduce() ||
           all_gather() || first()) {
    }
    CHECK(cur_.cuts == goal_.cuts && cur_.pending == goal_.pending, "reshard did not arrive");
    return std::move(steps_);
  }

 private:
  // Atoms that dim d still lacks, if what it has is a prefix of what it wants.
  AtomList missing(int d) const {
    return goal_.cuts[d].starts_with(cur_.cuts[d]) ? goal_.cuts[d].suffix(cur_.cuts[d].n)
                                                   : AtomList{};
  }

  int common(int d) const {
    const AtomList &c = cur_.cuts[d], &w = goal_.cuts[d];
    int k = 0;
    while (k < c.n && k < w.n && c[k] == w[k]) ++k;
    return k;
  }

  bool did(MoveKind what, AtomList atoms) {
    if (cur_.pending == 0) cur_.max = false;
    steps_.push_back({what, atoms, cur_});
    return true;
  }

  // The longest prefix of `list` whose atoms all satisfy `test`.
  template <class Test>
  static AtomList take_while(AtomList list, Test test) {
    int k = 0;
    while (k < list.n && test(list[k])) ++k;
    return list.prefix(k);
  }

  bool slice() {
    AtomSet held = static_cast<AtomSet>(cur_.cut_atoms() | cur_.pending);
    AtomList all;
    bool any = false;
    for (int d = 0; d < cur_.dims; ++d) {
      const AtomList run = take_while(missing(d), [&](Atom a) { return !(held >> a & 1); });
      if (run.empty()) continue;
      cur_.cuts[d].append(run);
      held = static_cast<AtomSet>(held | run.set());
      for (Atom a : run) {
        if (all.n < 7) all.push(a);
      }
      any = true;
    }
    return any && did(MoveKind::slice, all);
  }

  // Pending atoms that are wanted nowhere join a reduce_scatter and are gathered again. So a sum
  // over the same atoms has the same order, that of the mesh, however its result is cut (ZeRO), and
  // costs no more than in two steps.
  AtomList with_settled(AtomList run) const {
    for (Atom a = 0; a < kMaxAtoms; ++a) {
      if (cur_.pending & ~goal_.pending & ~wanted_ & 1u << a) run.push(a);
    }
    return run;
  }

  bool reduce_scatter() {
    for (int d = 0; d < cur_.dims; ++d) {
      const AtomList run = take_while(
          missing(d), [&](Atom a) { return (cur_.pending >> a & 1) && !(goal_.pending >> a & 1); });
      if (run.empty()) continue;
      const AtomList all = with_settled(run);
      cur_.pending = static_cast<AtomSet>(cur_.pending & ~all.set());
      cur_.cuts[d].append(all);
      return did(MoveKind::reduce_scatter, all);
    }
    return false;
  }

  // What the tails of all dims hold is what dims want next: one exchange instead of one a dim.
  bool all_to_all_of_several() {
    AtomSet given = 0, taken = 0;
    std::vector<AtomList> next;
    int moved = 0;
    for (int d = 0; d < cur_.dims; ++d) {
      const AtomList tail = cur_.cuts[d].suffix(common(d));
      given = static_cast<AtomSet>(given | tail.set());
      moved += !tail.empty();
    }
    for (int d = 0; d < cur_.dims; ++d) {
      const AtomList run =
          take_while(goal_.cuts[d].suffix(common(d)), [&](Atom a) { return given >> a & 1; });
      AtomList cut = cur_.cuts[d].prefix(common(d));
      cut.append(run);
      next.push_back(cut);
      taken = static_cast<AtomSet>(taken | run.set());
      moved += !run.empty();
    }
    if (given != taken || moved < 3) return false;
    std::copy(next.begin(), next.end(), cur_.cuts.begin());
    return did(MoveKind::all_to_all, list_of(given));
  }

  // Between cuts by uneven nodes and others: all that moves goes at once. Where the other side cuts
  // the same dim alone it stays on its node; else it goes over all ranks that share the experts,
  // which the other side's atoms name. On leaving, atoms that are wanted nowhere are gathered
  // first.
  bool over_nodes() {
    const bool leaves = cur_.cut_atoms() >> kNode & 1, enters = wanted_ >> kNode & 1;
    if (leaves == enters) return false;
    if (leaves && gather_all_but(wanted_ | kOfNodes)) return true;
    AtomSet moved = 0, by_node = 0;  // the other side's atoms of what changes; those for kNode
    for (int d = 0; d < cur_.dims; ++d) {
      const AtomSet there = (leaves ? goal_ : cur_).cuts[d].suffix(common(d)).set();
      moved = static_cast<AtomSet>(moved | there);
      if ((leaves ? cur_ : goal_).cuts[d].set() >> kNode & 1) by_node = there;
    }
    moved = static_cast<AtomSet>(moved & ~cur_.pending);
    for (int d = 0; d < cur_.dims; ++d) {
      AtomList cut = cur_.cuts[d].prefix(common(d));
      cut.append(take_while(goal_.cuts[d].suffix(common(d)),
                            [&](Atom a) { return (moved | kOfNodes) >> a & 1; }));
      cur_.cuts[d] = cut;
    }
    return did(MoveKind::all_to_all, moved == by_node ? AtomList{kNear} : list_of(moved));
  }

  bool all_to_all() {
    if (all_to_all_of_several()) return true;
    for (int d = 0; d < cur_.dims; ++d) {
      const int tail = cur_.cuts[d].n - common(d);
      for (int k = tail; k > 0; --k) {
        const AtomList run = cur_.cuts[d].suffix(cur_.cuts[d].n - k);
        for (int e = 0; e < cur_.dims; ++e) {
          if (e == d || !missing(e).starts_with(run)) continue;
          cur_.cuts[d].truncate(cur_.cuts[d].n - k);
          cur_.cuts[e].append(run);
          return did(MoveKind::all_to_all, run);
        }
      }
    }
    return false;
  }

  bool all_reduce() {
    const AtomSet run = static_cast<AtomSet>(cur_.pending & ~goal_.pending & ~wanted_);
    if (!run) return false;
    cur_.pending = static_cast<AtomSet>(cur_.pending & ~run);
    return did(MoveKind::all_reduce, list_of(run));
  }

  bool all_gather() {
    if (gather_all_but(wanted_)) return true;  // first what is wanted nowhere
    for (int d = 0; d < cur_.dims; ++d) {      // then the last atom of any tail
      if (cur_.cuts[d].n > common(d)) return gather(d, 1);
    }
    return false;
  }

  // What stands at the end of a dim's tail and is none of `kept`.
  bool gather_all_but(AtomSet kept) {
    for (int d = 0; d < cur_.dims; ++d) {
      int k = 0;
      const int tail = cur_.cuts[d].n - common(d);
      while (k < tail && !(kept >> cur_.cuts[d][cur_.cuts[d].n - 1 - k] & 1)) ++k;
      if (k > 0) return gather(d, k);
    }
    return false;
  }

  bool gather(int d, int k) {
    const AtomList run = cur_.cuts[d].suffix(cur_.cuts[d].n - k);
    cur_.cuts[d].truncate(cur_.cuts[d].n - k);
    return did(MoveKind::all_gather, run);
  }

  bool first() {
    const AtomSet run = static_cast<AtomSet>(goal_.pending & ~cur_.pending);
    if (!run) return false;
    CHECK(!goal_.max, "a whole value cannot become a pending maximum");
    cur_.pending = static_cast<AtomSet>(cur_.pending | run);
    return did(MoveKind::first, list_of(run));
  }

  Layout cur_;
  const Layout goal_;
  const AtomSet wanted_;
  std::vector<MoveStep> steps_;
};

}  // namespace

std::vector<MoveStep> reshard(const Layout& from, const Layout& to) {
  CHECK(from.dims == to.dims, "{} dims and {}", from.dims, to.dims);
  return Resharder(from, to).run();
}

double average_elements(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes) {
  double n = 1;
  for (int d = 0; d < layout.dims; ++d) {
    n *= static_cast<double>(sizes[d]) / static_cast<double>(mesh.parts(layout.cuts[d]));
  }
  return n;
}

double elements_sent(const Mesh& mesh, const MoveStep& step, const Layout& before,
                     std::span<const int64_t> sizes) {
  const double k = static_cast<double>(mesh.parts(step.atoms));
  const double held = average_elements(mesh, before, sizes),
               left = average_elements(mesh, step.after, sizes);
  switch (step.what) {
    case MoveKind::slice:
    case MoveKind::first:
      return 0;
    case MoveKind::all_gather:
      return held * (k - 1);
    case MoveKind::reduce_scatter:
      return left * (k - 1);
    case MoveKind::all_reduce:
      return 2 * held * (k - 1) / k;
    case MoveKind::all_to_all:
      return held * (k - 1) / k;
  }
  return 0;
}

Range local_range(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes, int dim,
                  int rank) {
  return mesh.range(sizes[dim], layout.cuts[dim], rank);
}

int64_t local_elements(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes,
                       int rank) {
  int64_t n = 1;
  for (int d = 0; d < layout.dims; ++d) n *= local_range(mesh, layout, sizes, d, rank).size();
  return n;
}

std::string show(const Layout& layout, std::string_view labels, const Mesh& mesh) {
  std::string text;
  const auto word = [&](const std::string& w) { text += (text.empty() ? "" : " ") + w; };
  for (int d = 0; d < layout.dims; ++d) {
    if (!layout.cuts[d].empty()) word(fmt::format("{}:{}", labels[d], mesh.show(layout.cuts[d])));
  }
  if (layout.pending)
    word(fmt::format("{}:{}", layout.max ? "max" : "sum", mesh.show(layout.pending)));
  return text.empty() ? "whole" : text;
}

namespace {

AtomList parse_atoms(std::string_view text, const Mesh& mesh, std::string_view whole) {
  AtomList list;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view name = text.substr(0, comma);
    const int a = mesh.find(name);
    if (a < 0) {
      throw Error(fmt::format("layout \"{}\": no atom \"{}\"", whole, name), "",
                  fmt::format("atoms are {}", mesh.show(mesh.all())));
    }
    list.push(static_cast<Atom>(a));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

}  // namespace

Layout parse_layout(std::string_view text, std::string_view labels, const Mesh& mesh) {
  Layout layout(static_cast<int>(labels.size()));
  if (text == "whole") return layout;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t space = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, space);
    rest.remove_prefix(std::min(space + 1, rest.size()));
    const size_t colon = word.find(':');
    if (colon == std::string_view::npos || colon == 0) {
      throw Error(fmt::format("layout \"{}\": \"{}\" is not LABEL:ATOMS", text, word));
    }
    const std::string_view key = word.substr(0, colon);
    const AtomList atoms = parse_atoms(word.substr(colon + 1), mesh, text);
    if (key == "sum" || key == "max") {
      layout.pending = atoms.set();
      layout.max = key == "max";
      continue;
    }
    const size_t d = labels.find(key);
    if (key.size() != 1 || d == std::string_view::npos) {
      throw Error(fmt::format("layout \"{}\": no label \"{}\"", text, key), "",
                  fmt::format("labels are \"{}\"", labels));
    }
    layout.cuts[d] = atoms;
  }
  return layout;
}

}  // namespace myriad
