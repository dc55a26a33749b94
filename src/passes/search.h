// The search for the layout of one op. `search` is a function of a SearchInput and of the mesh. It
// sees neither the op nor the graph, so two ops with equal inputs have the same decision and
// `decide` may remember it: a rule that needs to know more of an op needs a new field here, and the
// comparison of inputs takes in each field by default.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "passes/move_cost.h"
#include "passes/rules.h"

namespace myriad {

using Cuts = std::array<AtomList, kMaxLayoutDims>;  // by dim of a value

struct SearchInput {
  struct Operand {
    std::string labels;
    int shape = -1;            // number in MoveCosts
    std::vector<Layout> held;  // the layouts in which it exists already; the primary one first
    bool fixed = false;        // it may be sliced but must not be sent
    bool operator==(const Operand&) const = default;
  };
  struct Result {
    std::string labels;
    int shape = -1;
    Want want;
    // An unnamed contribution to a gradient has no constraint of its own. It is priced up to the
    // layout of the gradient to which it will be added.
    std::optional<Cuts> heading;
    // The gradient of a fixed value is to be made where the value lies, whatever the price.
    std::optional<Cuts> stays;
    bool operator==(const Result&) const = default;
  };
  std::string labels;  // of the op
  Sizes sizes;         // global, by label
  std::vector<Operand> ins;
  std::vector<Result> outs;
  // For a label whose sharding is not for the search to choose: what it is.
  std::vector<std::optional<AtomList>> imposed;
  std::vector<uint32_t> linear;  // the op's linear sets (ir/rows.h)
  bool reduces_max = false;
  bool operator==(const SearchInput&) const = default;
};

// How one op is laid out.
struct Decision {
  std::vector<AtomList> cuts;    // by label of the op
  std::vector<Layout> needs;     // of the operands
  std::vector<Layout> naturals;  // of the outputs as the op makes them, before any move
  bool operator==(const Decision&) const = default;
};

// The goodness of an assignment, the lowest being the best: the first field that differs decides.
struct Score {
  int violations = 0;    // gradients of fixed values made elsewhere than their values
  double bytes = 0;      // sent by all the moves before and after the op
  int messages = 0;      // collectives among these moves
  int disagreement = 0;  // labels not sharded as both an operand and an output would have it
  double work = 0;       // elements of the op's index space on one rank
  int kept = 0;          // atoms over which operands stay partial
  auto operator<=>(const Score&) const = default;
};

// The layout in which a value made in `natural` is to lie by its constraint: what is partial may
// stay so unless the constraint says otherwise or shards by the same atom.
Layout target(const Want& want, const Layout& natural);

// nullopt: no layout is legal.
std::optional<Decision> search(const Mesh& mesh, MoveCosts& costs, const SearchInput& input);

// Only speed depends on the hash: a field that it passes over is still compared.
struct SearchInputHash {
  size_t operator()(const SearchInput& input) const;
};

// What all sharders of a plan share: it depends on the mesh alone.
struct LayoutMemory {
  MoveCosts costs;
  std::unordered_map<SearchInput, Decision, SearchInputHash> decisions;
};

// `search` with memory; null: no layout is legal.
const Decision* decide(const Mesh& mesh, LayoutMemory& memory, const SearchInput& input);

}  // namespace myriad
