// Finds the cheapest layout of one op.
//
// What is enumerated. An op's layout is an assignment of a list of atoms to each of its labels,
// with no atom used twice, plus, for each atom over which some operand exists as a partial sum, the
// choice to finalize the operand first or to keep it partial through the op. `assign_label` walks
// the first choice label by label, `choose_partial` the second, `evaluate` prices one complete
// assignment. Lists of atoms are not enumerated freely: a label is offered the lists by which the
// dims it names are sharded in some version of an operand or in the constraint of an output, all
// prefixes of them, and the empty list. Another list could only move more, since it agrees with
// nothing that exists or is wanted.
//
// Why each assignment is legal. A rank computes the op on its parts of all labels. A label that
// stands in an output shards that output; one that does not is reduced over, so the output is
// partial over its atoms (a sum, or a maximum for ops that reduce by maximum). Operands may stay
// partial over an atom only where the op is jointly linear in a set of operands: then exactly the
// operands of that set are partial, and so are the outputs. No atom both shards a label and keeps a
// partial sum. The moves from existing versions to `needs` are those of `reshard`, which arrives at
// every layout; a move that mixes sums and maxima or that sends a fixed operand costs kNever and is
// refused.
//
// Why the decision is deterministic. Every rank and every run walks the same ordered lists, and the
// order of Score, ended by the order of the atom lists themselves, leaves ties only between choices
// of partial sums; there the first one found stays. No hash order or address enters.
//
// Complexity. At most the product over labels of 1 + the sum of the lengths of the distinct lists
// offered, times (1 + linear sets) for each partial atom; the rule that no atom is used twice and
// the cut-off in `evaluate` (prices only grow) keep it to some hundred evaluations. Equal inputs
// are searched once a plan.
#include "passes/search.h"

#include <algorithm>
#include <functional>

namespace myriad {

namespace {

using Lists = std::vector<AtomList>;

void sort_unique(Lists& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

// The lists of atoms that one label may be sharded by, in order.
struct Candidates {
  Lists lists = {AtomList{}};
  // The one sharding that the primary version of an operand has and an output wants, if there is
  // one and only one: among equally cheap layouts the search prefers it.
  std::optional<AtomList> agreed;
};

Candidates candidates_of(const SearchInput& in, size_t l) {
  Candidates out;
  if (in.imposed[l]) {
    out.lists = {*in.imposed[l]};
    return out;
  }
  const char label = in.labels[l];
  const auto offer = [&](AtomList t) {
    // kNode and kNear name ranks that other atoms name too: they are used only where imposed.
    if (t.set() & kOfNodes) return;
    for (int k = 1; k <= t.n; ++k) out.lists.push_back(t.prefix(k));
  };
  Lists primary, wished;
  for (const auto& operand : in.ins) {
    const size_t d = operand.labels.find(label);
    if (d == std::string::npos) continue;
    for (const Layout& held : operand.held) offer(held.cuts[d]);
    primary.push_back(operand.held[0].cuts[d]);
  }
  for (const auto& result : in.outs) {
    const size_t d = result.labels.find(label);
    if (d == std::string::npos || (!result.heading && !result.want.asked)) continue;
    wished.push_back(result.heading ? (*result.heading)[d] : result.want.cuts[d]);
    offer(wished.back());
  }
  sort_unique(out.lists);
  sort_unique(wished);
  int both = 0;
  for (AtomList t : wished) {
    if (t.empty() || std::find(primary.begin(), primary.end(), t) == primary.end()) continue;
    out.agreed = t;
    ++both;
  }
  if (both != 1) out.agreed.reset();
  return out;
}

// The state of one search: the assignment under construction and the best one so far.
class Search {
 public:
  Search(const Mesh& mesh, MoveCosts& costs, const SearchInput& input)
      : mesh_(mesh), costs_(costs), in_(input) {
    AtomSet atoms = 0;
    for (const auto& operand : in_.ins) {
      for (const Layout& held : operand.held) atoms = static_cast<AtomSet>(atoms | held.pending);
    }
    for (Atom a = 0; a < kMaxAtoms; ++a) {
      if (atoms >> a & 1) partial_.push_back(a);
    }
    for (size_t l = 0; l < in_.labels.size(); ++l) candidates_.push_back(candidates_of(in_, l));
    cut_.resize(in_.labels.size());
    set_of_.resize(partial_.size());
  }

  std::optional<Decision> run() {
    assign_label(0);
    if (!best_) return std::nullopt;
    return std::move(decision_);
  }

 private:
  void assign_label(size_t l) {
    if (l == in_.labels.size()) return choose_partial(0);
    for (AtomList t : candidates_[l].lists) {
      if (used_ & t.set()) continue;
      cut_[l] = t;
      used_ = static_cast<AtomSet>(used_ | t.set());
      assign_label(l + 1);
      used_ = static_cast<AtomSet>(used_ & ~t.set());
    }
  }

  void choose_partial(size_t i) {
    if (i == partial_.size()) return evaluate();
    set_of_[i] = kFinalized;
    choose_partial(i + 1);
    if (used_ >> partial_[i] & 1) return;
    for (size_t k = 0; k < in_.linear.size(); ++k) {
      set_of_[i] = static_cast<int>(k);
      choose_partial(i + 1);
    }
  }

  void evaluate() {
    Score score;
    const std::vector<Layout> naturals = naturals_of_assignment(score);
    if (best_ && score.violations > best_->violations) return;
    std::vector<Layout> needs;
    for (size_t j = 0; j < in_.ins.size(); ++j) {
      needs.push_back(need(j));
      const MoveCost c = cheapest(in_.ins[j], needs.back());
      if (c.bytes == kNever) return;
      score.bytes += c.bytes;
      score.messages += c.messages;
      if (too_dear(score)) return;
    }
    for (size_t o = 0; o < in_.outs.size(); ++o) {
      const auto& result = in_.outs[o];
      Layout after = target(result.want, naturals[o]);
      if (result.heading) {
        after = Layout(naturals[o].dims);
        after.cuts = *result.heading;
      }
      const MoveCost c = costs_(mesh_, naturals[o], after, result.shape);
      score.bytes += c.bytes;
      score.messages += c.messages;
    }
    if (too_dear(score)) return;
    score.work = 1;
    for (size_t l = 0; l < cut_.size(); ++l) {
      const auto& agreed = candidates_[l].agreed;
      score.disagreement += agreed && cut_[l] != *agreed;
      score.work *= static_cast<double>(in_.sizes[l]) / static_cast<double>(mesh_.parts(cut_[l]));
    }
    if (best_ && (score > *best_ || (score == *best_ && cut_ >= decision_.cuts))) return;
    best_ = score;
    decision_ = {cut_, std::move(needs), naturals};
  }

  // The layouts in which the op makes its outputs. Counts violations and atoms kept partial.
  std::vector<Layout> naturals_of_assignment(Score& score) const {
    AtomSet kept = 0;
    for (size_t i = 0; i < partial_.size(); ++i) {
      if (set_of_[i] == kFinalized) continue;
      kept = static_cast<AtomSet>(kept | 1u << partial_[i]);
      ++score.kept;
    }
    std::vector<Layout> naturals;
    for (const auto& result : in_.outs) {
      Layout natural = laid(result.labels);
      if (result.stays && natural.cuts != *result.stays) ++score.violations;
      natural.pending = static_cast<AtomSet>(kept | (used_ & ~natural.cut_atoms()));
      natural.max = in_.reduces_max && natural.pending;
      naturals.push_back(natural);
    }
    return naturals;
  }

  Layout need(size_t operand) const {
    Layout need = laid(in_.ins[operand].labels);
    for (size_t i = 0; i < partial_.size(); ++i) {
      if (set_of_[i] != kFinalized && (in_.linear[static_cast<size_t>(set_of_[i])] >> operand & 1))
        need.pending = static_cast<AtomSet>(need.pending | 1u << partial_[i]);
    }
    return need;
  }

  Layout laid(const std::string& labels) const {
    Layout l(static_cast<int>(labels.size()));
    for (size_t d = 0; d < labels.size(); ++d) l.cuts[d] = cut_[in_.labels.find(labels[d])];
    return l;
  }

  MoveCost cheapest(const SearchInput::Operand& operand, const Layout& need) const {
    MoveCost least{kNever, 0};
    for (const Layout& held : operand.held)
      least = std::min(least, costs_(mesh_, held, need, operand.shape));
    if (operand.fixed && least.messages) return {kNever, 0};
    return least;
  }

  bool too_dear(const Score& score) const {
    return best_ &&
           std::pair(score.violations, score.bytes) > std::pair(best_->violations, best_->bytes);
  }

  static constexpr int kFinalized = -1;

  const Mesh& mesh_;
  MoveCosts& costs_;
  const SearchInput& in_;
  std::vector<Candidates> candidates_;  // by label
  std::vector<Atom> partial_;           // atoms over which some version of an operand is partial
  // The assignment under construction.
  Lists cut_;                // by label
  AtomSet used_ = 0;         // the atoms in cut_
  std::vector<int> set_of_;  // by partial atom: the linear set that stays partial, or kFinalized
  std::optional<Score> best_;
  Decision decision_;  // of the best score
};

void mix(size_t& seed, size_t x) { seed ^= x + 0x9e3779b97f4a7c15 + (seed << 6) + (seed >> 2); }
void mix(size_t& seed, const std::string& text) { mix(seed, std::hash<std::string>()(text)); }
void mix(size_t& seed, const Cuts& cuts) {
  Layout l(kMaxLayoutDims);
  l.cuts = cuts;
  mix(seed, LayoutHash()(l));
}

}  // namespace

Layout target(const Want& want, const Layout& natural) {
  if (!want.asked) return natural;
  Layout t(natural.dims);
  t.cuts = want.cuts;
  t.pending = want.settle ? 0 : static_cast<AtomSet>(natural.pending & ~t.cut_atoms());
  t.max = t.pending && natural.max;
  return t;
}

std::optional<Decision> search(const Mesh& mesh, MoveCosts& costs, const SearchInput& input) {
  return Search(mesh, costs, input).run();
}

size_t SearchInputHash::operator()(const SearchInput& input) const {
  size_t seed = input.linear.size();
  mix(seed, input.labels);
  for (int64_t n : input.sizes) mix(seed, static_cast<size_t>(n));
  for (uint32_t set : input.linear) mix(seed, set);
  for (const auto& operand : input.ins) {
    mix(seed, operand.labels);
    mix(seed, static_cast<size_t>(operand.shape) << 1 | operand.fixed);
    for (const Layout& held : operand.held) mix(seed, LayoutHash()(held));
  }
  for (const auto& result : input.outs) {
    mix(seed, result.labels);
    mix(seed, static_cast<size_t>(result.shape) << 1 | result.want.settle);
    mix(seed, result.want.cuts);
    if (result.heading) mix(seed, *result.heading);
  }
  return seed;
}

const Decision* decide(const Mesh& mesh, LayoutMemory& memory, const SearchInput& input) {
  if (const auto at = memory.decisions.find(input); at != memory.decisions.end())
    return &at->second;
  std::optional<Decision> found = search(mesh, memory.costs, input);
  if (!found) return nullptr;
  return &memory.decisions.emplace(input, *std::move(found)).first->second;
}

}  // namespace myriad
