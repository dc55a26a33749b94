// Lowers global bodies to laid-out ones: chooses the layout of every op and inserts the moves
// between them. Tensor, sequence, data, context and expert parallelism and ZeRO are different
// sharding constraints (passes/rules.h), not different passes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/program.h"
#include "passes/rules.h"
#include "passes/search.h"
#include "passes/versions.h"

namespace myriad {

// A value that a body must hand over.
struct Output {
  int value;
  std::optional<Layout> layout;  // none: whichever version is best to carry (passes/versions.h)
};

// The sharder of one piece. It lowers the bodies of the piece one after the other, so that a
// recomputed op finds the decision of its original.
class Sharder {
 public:
  // states: layouts at rest by state name, shared by all sharders of a piece, whose numbers of rows
  // may differ. pending_scalars: the atoms over which "s:" states are partial. All references must
  // outlive the sharder.
  Sharder(const Mesh& mesh, const Wanted& wanted, LayoutMemory& memory,
          std::shared_ptr<Graph> graph, int piece, std::map<StateName, Layout>& states,
          AtomSet pending_scalars);

  // given: layouts of inputs. An input that is not given lies as its constraint says or, without
  // one, replicated.
  LoweredBody lower(const Body& body, const std::map<int, Layout>& given,
                    const std::vector<Output>& outputs);

  // Layout of a lowered body's output or input.
  static Layout layout_of(const LoweredBody& body, int value, bool output);

 private:
  using Groups = std::vector<std::pair<Layout, std::vector<int>>>;  // operands by layout

  const Want& want(int value);
  std::optional<Cuts> heading(int value);
  std::vector<std::optional<AtomList>> imposed(const Op& op);
  SearchInput search_input(const Op& op);
  const Decision& decision_of(const Op& op);
  void input(int value, const Layout& layout);
  void prefer_wanted(int value);
  void run(Op op, const Decision& decision);
  void lower_op(Op op);
  Op sum_alike_first(const Op& op);
  void lower_read(const Op& op);
  void lower_store(const Op& op);
  Layout state_at_rest(const StateName& name, int value);
  Value as_state(const StateName& name, int value) const;

  const Mesh& mesh_;
  const Wanted& wanted_;
  LayoutMemory& memory_;
  std::shared_ptr<Graph> graph_;
  int piece_;
  std::map<StateName, Layout>& states_;
  AtomSet pending_scalars_;
  Versions versions_;
  std::vector<std::optional<Want>> wants_;  // by value
  // By first output, for all bodies so far: a recomputed op is laid out like its original and adds
  // in the order of its original.
  std::map<int, Decision> decided_;
  std::map<int, Groups> groups_;
};

}  // namespace myriad
