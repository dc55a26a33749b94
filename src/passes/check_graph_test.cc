// Graphs that are not what they say.
#include "passes/check_graph.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "passes/after_pass.h"
#include "passes/toy.h"

namespace myriad {
namespace {

// What the checker says of the toy's layer after `change`; "" if nothing.
template <class F>
std::string refusal(F change) {
  Pieces pieces = toy_model({}, 2);
  Piece& layer = pieces.pieces[static_cast<size_t>(pieces.units[1])];
  change(layer);
  try {
    check_graph(layer);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

#define EXPECT_REFUSED(change, part)                                         \
  EXPECT_NE(refusal([](Piece& p) { change; }).find(part), std::string::npos) \
      << refusal([](Piece& p) { change; })

TEST(CheckGraph, TakesWhatIsRight) {
  EXPECT_EQ(refusal([](Piece&) {}), "");
}

TEST(CheckGraph, RefusesWhatIsNotSingleAssignment) {
  EXPECT_REFUSED(std::swap(p.forward.ops.front(), p.forward.ops.back()),
                 "is read before it is made");
  EXPECT_REFUSED(p.forward.ops.push_back(p.forward.ops.back()), "is made twice");
  EXPECT_REFUSED(p.forward.outputs.push_back(p.graph.add({.name = "lost"})),
                 "hands out lost, which it does not make");
}

TEST(CheckGraph, RefusesTypesThatDoNotAgree) {
  EXPECT_REFUSED(p.forward.ops.back().out_types[0] = DType::bf16, "the op says bf16");
  EXPECT_REFUSED(p.graph[p.forward.ops.back().outs[0]].sizes[0] = 9, "is 9 along b");
  EXPECT_REFUSED(p.forward.ops.back().in_labels.pop_back(), "lists of labels");
  EXPECT_REFUSED(p.forward.ops.back().out_labels[0] = "b", "dims, the op says");
  EXPECT_REFUSED(p.forward.ops.back().ins[0] = 1000, "is no value of the graph");
  EXPECT_REFUSED(p.forward.ops.front().attrs.state = {}, "names no state");
  EXPECT_REFUSED(p.forward.ops.back().attrs.state = p.forward.ops.front().attrs.state,
                 "names a state");
}

TEST(ShowPasses, ShowsWhatEachPassChanges) {
  const Plan plan = resolve({.tp = 2, .pp = 2, .micro_batches = 2}, 2, 2);
  const std::string text =
      show_passes([](int64_t n) { return toy_model({}, n); }, plan, {.rows = 2});
  size_t from = 0;
  for (const char* pass : {"emit", "bound_rounds", "relay", "differentiate", "split_bodies",
                           "shard", "shard_optimizer", "actions"}) {
    const size_t at = text.find(fmt::format("== {}\n", pass), from);
    ASSERT_NE(at, std::string::npos) << pass;
    from = at;
  }
  EXPECT_NE(text.find("== relay\n  changes nothing"), std::string::npos);
  EXPECT_NE(text.find("body layer.backward: backward (1 rows)"), std::string::npos);
  EXPECT_NE(text.find("move all_reduce [tg]"), std::string::npos);
  EXPECT_NE(text.find("lines as before\nbuffer "), std::string::npos);
}

}  // namespace
}  // namespace myriad
