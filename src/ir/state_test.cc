// Names of states and ports as text.
#include "ir/state.h"

#include <gtest/gtest.h>

#include "ir/graph.h"

namespace myriad {
namespace {

TEST(StateName, ReadsBack) {
  for (int kind = 0; kind < kStateKinds; ++kind) {
    const StateName name{static_cast<StateKind>(kind), "q.w"};
    EXPECT_EQ(state_named(show(name)), name);
    EXPECT_EQ(show(name)[0], letter_of(name.kind));
  }
  EXPECT_EQ(show({StateKind::exp_avg_sq, "q.w"}), "v:q.w");
  for (const char* text : {"", "p", "q:w", "pq.w", "P:w"}) EXPECT_FALSE(state_named(text)) << text;
}

TEST(Port, FollowsTheNameOfAValue) {
  for (int p = 1; p < static_cast<int>(Port::count_); ++p) {
    const Port port = static_cast<Port>(p);
    EXPECT_EQ(port_named(name_of(port)), port);
  }
  Graph graph;
  const int x = graph.add({.name = "x"}), other = graph.add({.name = "x1"});
  EXPECT_EQ(graph[x].port, Port::x);
  EXPECT_EQ(graph[other].port, Port::none);
  EXPECT_EQ(graph.find(Port::x), x);
  EXPECT_EQ(graph.find(Port::y), -1);
  graph.rename(other, "d.x");
  EXPECT_EQ(graph[other].port, Port::dx);
}

}  // namespace
}  // namespace myriad
