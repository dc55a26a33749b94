// Lowers global bodies to laid-out ones: chooses the layout of every op and inserts the moves
// between them. Tensor, sequence, data, context and expert parallelism and ZeRO are different
// wanted layouts (passes/rules.h), not different passes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/program.h"
#include "passes/rules.h"

namespace myriad {

// How one op is laid out.
struct Decision {
  std::vector<AtomList> cuts;    // by label of op.size
  std::vector<Layout> needs;     // of the operands
  std::vector<Layout> naturals;  // of the outputs as made
};

// Shared by all sharders of a plan: what depends on the mesh alone.
struct LayoutMemory {
  struct Cost {
    double bytes;  // a rank sends on average, times the price of the dearest atom; infinite if the
                   // step is not legal
    int messages;  // number of collectives
  };
  std::unordered_map<std::string, Decision> decisions;
  std::unordered_map<std::string, Cost> costs;
  std::map<Sizes, int> sizes;  // interned
};

// What a body must hand over.
struct Output {
  int value;
  std::optional<Layout> layout;  // none: as it lies, settled if that takes no more room
};

class Sharder {
 public:
  // states: layouts at rest by state name, shared by all sharders of a piece (row counts may
  // differ). pending_scalars: the layout of "s:" states. All references must outlive the sharder.
  Sharder(const Mesh& mesh, const Wanted& wanted, LayoutMemory& memory,
          std::shared_ptr<Graph> graph, int piece, std::map<StateName, Layout>& states,
          AtomSet pending_scalars);

  // given: layouts of inputs; others lie as wanted, or whole.
  LoweredBody lower(const Body& body, const std::map<int, Layout>& given,
                    const std::vector<Output>& outputs);

  // Layout of a lowered body's output or input.
  static Layout layout_of(const LoweredBody& body, int value, bool output);

 private:
  struct Held {
    int version;
    Layout layout;
  };
  struct Search;  // the state of one decision

  const Want& want(int value);
  Want place_of(const Op& op);
  Layout target(int value, const Layout& natural);
  std::optional<std::array<AtomList, kMaxLayoutDims>> heading(int value);
  LayoutMemory::Cost cost(const Layout& from, const Layout& to, int value);
  int get(int value, const Layout& layout);
  int add_version(int value, const Layout& layout);
  void settle(int value);
  const Decision& decide(const Op& op);
  std::string key_of(const Op& op);
  void lower_op(Op op);
  void lower_read(const Op& op);
  void lower_store(const Op& op);
  using Alike = std::vector<std::pair<Layout, std::vector<int>>>;  // operands by layout
  Alike alike(const Op& op);
  Op sum_alike_first(const Op& op);
  int state_index(const StateName& name, int value, const Layout& layout);
  Layout state_at_rest(const StateName& name, int value);
  void input(int value, const Layout& layout);
  int carried(int value);
  int size_id(int value);

  const Mesh& mesh_;
  const Wanted& wanted_;
  LayoutMemory& memory_;
  std::shared_ptr<Graph> graph_;
  int piece_;
  std::map<StateName, Layout>& states_;
  AtomSet pending_scalars_;
  std::vector<std::optional<Want>> wants_;
  std::vector<int> size_ids_;
  // By first output: a clone lies as its original, and adds in its order.
  std::map<int, Decision> decided_;
  std::map<int, Alike> alike_;
  std::map<int, std::vector<Held>> held_;  // value -> versions so far, the primary one first
  LoweredBody out_;
};

}  // namespace myriad
