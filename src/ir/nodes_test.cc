// Owners on nodes: against the definition, over all small groups, and the cuts that follow from it.
#include "ir/nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/layout.h"

namespace myriad {
namespace {

// Calls f for groups of every small shape, wherever they begin.
template <class F>
void for_each_group(F f) {
  for (int64_t owners = 1; owners <= 6; ++owners) {
    for (int64_t inner = 1; inner <= 3; ++inner) {
      for (int64_t per_node = 1; per_node <= 8; ++per_node) {
        for (int64_t group = 0; group < 5; ++group)
          f(OwnerNodes{owners, inner, per_node, group * owners * inner});
      }
    }
  }
}

TEST(Nodes, AnOwnerIsOnTheNodeOfItsFirstRank) {
  for_each_group([](const OwnerNodes& n) {
    std::set<int64_t> nodes;
    for (int64_t p = 0; p < n.owners; ++p) {
      nodes.insert((n.first + p * n.inner) / n.ranks_per_node);
      ASSERT_EQ(n.node_of(p), static_cast<int64_t>(nodes.size()) - 1);
      ASSERT_LE(n.first_owner(n.node_of(p)), p);
      ASSERT_GT(n.first_owner(n.node_of(p) + 1), p);
    }
    ASSERT_EQ(n.nodes(), static_cast<int64_t>(nodes.size()));
    ASSERT_EQ(n.first_owner(0), 0);
    ASSERT_EQ(n.first_owner(n.nodes()), n.owners);
    for (int64_t r = n.first; r < n.first + n.owners * n.inner; ++r) ASSERT_EQ(n.around(r), n);
  });
}

TEST(Nodes, OneNodeHoldsAllWhereNoneIsNamed) {
  const OwnerNodes one{.owners = 5, .inner = 2};
  EXPECT_EQ(one.nodes(), 1);
  EXPECT_EQ(one.first_owner(0), 0);
  EXPECT_EQ(one.first_owner(1), 5);
}

// Cut by node and near, each expert's share of each position is on one rank of its group, with
// its owner's node; and a dim cut by near alone is whole on each node.
TEST(Nodes, CutsTileExpertsAndPositions) {
  for_each_group([](const OwnerNodes& n) {
    const auto ranks = static_cast<int>(n.owners * n.inner);
    const Mesh mesh(
        {{"edp", 5}, {"ep", static_cast<int>(n.owners)}, {"etp", static_cast<int>(n.inner)}},
        {n.owners, n.inner, n.ranks_per_node});
    const Atom node = static_cast<Atom>(mesh.find("node")),
               near = static_cast<Atom>(mesh.find("near"));
    constexpr int64_t kExperts = 7, kPositions = 11;
    for (int64_t e = 0; e < kExperts; ++e) {
      for (int64_t s = 0; s < kPositions; ++s) {
        std::set<int64_t> holders;
        for (int r = static_cast<int>(n.first); r < n.first + ranks; ++r) {
          const Range experts = mesh.range(kExperts, {node}, r),
                      positions = mesh.range(kPositions, {near}, r);
          if (e >= experts.lo && e < experts.hi && s >= positions.lo && s < positions.hi)
            holders.insert(n.owner_of_rank(r));
        }
        ASSERT_EQ(holders.size(), 1u);
        ASSERT_EQ(n.node_of(*holders.begin()), n.node_of_expert(e, kExperts));
      }
    }
    for (int r = static_cast<int>(n.first); r < n.first + ranks; ++r) {
      const std::vector<int> group = mesh.group({near}, r);
      ASSERT_EQ(std::count(group.begin(), group.end(), r), 1);
      for (int other : group) {
        ASSERT_EQ((other - r) % n.inner, 0);
        ASSERT_EQ(n.node_of(n.owner_of_rank(other)), n.node_of(n.owner_of_rank(r)));
      }
    }
  });
}

TEST(Nodes, AMeshRefusesGroupsThatDoNotDivideIt) {
  EXPECT_THROW(Mesh({{"dp", 4}}, {3, 1, 2}), Error);
  EXPECT_THROW(Mesh({{"dp", 4}}, {2, 0, 2}), Error);
}

std::vector<MoveKind> kinds_of(const Layout& from, const Layout& to) {
  std::vector<MoveKind> out;
  Layout at = from;
  for (const MoveStep& s : reshard(from, to)) {
    out.push_back(s.what);
    at = s.after;
  }
  EXPECT_EQ(at, to);
  return out;
}

// Between tokens at home, rows by node and rows at their owners there is one exchange each; the
// last stays on the node.
TEST(Nodes, ReshardsByWayOfNodes) {
  const Mesh mesh({{"edp", 2}, {"dp", 3}, {"tp", 2}, {"etp", 2}}, {6, 2, 5});
  const std::string_view labels = "ebsd";
  const auto layout = [&](const char* text) { return parse_layout(text, labels, mesh); };
  const Layout home = layout("b:edp,dp s:tp,etp"), near = layout("e:node b:edp s:near,etp"),
               owners = layout("e:dp,tp b:edp"), partial = layout("e:dp,tp b:edp sum:etp"),
               near_sum = layout("e:node b:edp s:near sum:etp");
  const auto first_over = [](const Layout& from, const Layout& to) {
    return reshard(from, to)[0].atoms;
  };
  using enum MoveKind;
  EXPECT_EQ(kinds_of(home, near), std::vector{all_to_all});
  EXPECT_EQ(mesh.show(first_over(home, near)), "dp,tp,etp");
  EXPECT_EQ(kinds_of(near, owners), (std::vector{all_gather, all_to_all}));
  EXPECT_EQ(mesh.show(reshard(near, owners)[1].atoms), "near");
  EXPECT_EQ(kinds_of(partial, near), (std::vector{all_to_all, reduce_scatter}));
  EXPECT_EQ(mesh.show(first_over(partial, near)), "near");
  EXPECT_EQ(kinds_of(partial, near_sum), std::vector{all_to_all});
  EXPECT_EQ(kinds_of(near, home), std::vector{all_to_all});
  EXPECT_EQ(show(near, labels, mesh), "e:node b:edp s:near,etp");
}

}  // namespace
}  // namespace myriad
