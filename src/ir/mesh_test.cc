// Meshes: coordinates, groups and cuts hold what they promise on every small grid.
#include "ir/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace myriad {
namespace {

std::vector<Mesh> meshes() {
  std::vector<Mesh> all;
  for (int a : {1, 2, 3}) {
    for (int b : {1, 2, 5}) {
      for (int c : {1, 4}) all.push_back(Mesh({{"a", a}, {"b", b}, {"c", c}}));
    }
  }
  return all;
}

// All orders of all subsets of the atoms.
std::vector<AtomList> lists(const Mesh& mesh) {
  std::vector<AtomList> all = {{}};
  for (size_t i = 0; i < all.size(); ++i) {
    for (int x = 0; x < mesh.atoms(); ++x) {
      if (all[i].set() >> x & 1) continue;
      AtomList longer = all[i];
      longer.push(static_cast<Atom>(x));
      all.push_back(longer);
    }
  }
  return all;
}

TEST(Mesh, TheLastAxisVariesFastest) {
  const Mesh mesh({{"pp", 2}, {"dp", 1}, {"tp", 3}});
  ASSERT_EQ(mesh.ranks(), 6);
  ASSERT_EQ(mesh.atoms(), 2);
  for (int r = 0; r < 6; ++r) {
    EXPECT_EQ(mesh.coordinate(r, 0), r / 3);
    EXPECT_EQ(mesh.coordinate(r, 1), r % 3);
  }
}

TEST(Mesh, AxesOfSizeOneAreKnownButVanish) {
  const Mesh mesh({{"pp", 2}, {"dp", 1}});
  EXPECT_EQ(mesh.find("dp"), -1);
  EXPECT_TRUE(mesh.knows("dp"));
  EXPECT_FALSE(mesh.knows("tp"));
  EXPECT_EQ(mesh.declared().size(), 2u);
  EXPECT_EQ(Mesh().ranks(), 1);
}

TEST(Mesh, BadAxesAreRefused) {
  EXPECT_THROW(Mesh({{"dp", 0}}), Error);
  EXPECT_THROW(Mesh({{"dp", -1}}), Error);
  EXPECT_THROW(Mesh({{"dp", 2}, {"dp", 3}}), Error);
  EXPECT_THROW(Mesh({{"dp", 1 << 20}, {"tp", 1 << 20}}), Error);
  std::vector<Mesh::Axis> many;
  for (int i = 0; i < 17; ++i) many.push_back({fmt::format("x{}", i), 2});
  EXPECT_THROW(Mesh{many}, Error);
}

TEST(Mesh, RangesTileADimInOrderOfTheList) {
  for (const Mesh& mesh : meshes()) {
    for (AtomList list : lists(mesh)) {
      for (int64_t size : {0, 1, 3, 7, 24}) {
        const int64_t n = mesh.parts(list);
        int64_t at = 0;
        for (int r : mesh.group(list, 0)) {
          const Range range = mesh.range(size, list, r);
          EXPECT_EQ(range.lo, at);
          EXPECT_GE(range.size(), size / n);
          EXPECT_LE(range.size(), (size + n - 1) / n);
          at = range.hi;
        }
        EXPECT_EQ(at, size) << mesh.show(list);
      }
    }
  }
}

// A longer list refines its prefix: a suffix is dropped by one gather, added by a slice.
TEST(Mesh, ASuffixRefinesItsPrefix) {
  for (const Mesh& mesh : meshes()) {
    for (AtomList list : lists(mesh)) {
      for (int n = 0; n <= list.n; ++n) {
        for (int r = 0; r < mesh.ranks(); ++r) {
          const Range part = mesh.range(13, list, r), whole = mesh.range(13, list.prefix(n), r);
          EXPECT_TRUE(whole.lo <= part.lo && part.hi <= whole.hi);
        }
      }
    }
  }
}

TEST(Mesh, GroupsPartTheRanks) {
  for (const Mesh& mesh : meshes()) {
    for (AtomList list : lists(mesh)) {
      std::multiset<int> seen;
      for (int r = 0; r < mesh.ranks(); ++r) {
        const std::vector<int> group = mesh.group(list, r);
        EXPECT_EQ(static_cast<int64_t>(group.size()), mesh.parts(list));
        EXPECT_EQ(std::count(group.begin(), group.end(), r), 1);
        for (int member : group) {
          EXPECT_EQ(mesh.group(list, member), group);
          for (int a = 0; a < mesh.atoms(); ++a) {
            if (!(list.set() >> a & 1)) {
              EXPECT_EQ(mesh.coordinate(member, static_cast<Atom>(a)),
                        mesh.coordinate(r, static_cast<Atom>(a)));
            }
          }
        }
        seen.insert(group.front());
      }
      for (int first : std::set<int>(seen.begin(), seen.end()))
        EXPECT_EQ(static_cast<int64_t>(seen.count(first)), mesh.parts(list));
    }
  }
}

TEST(Mesh, GroupsFollowTheirList) {
  const Mesh mesh({{"a", 2}, {"b", 3}});
  EXPECT_EQ(mesh.group({0, 1}, 4), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(mesh.group({1, 0}, 4), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(mesh.group({1}, 4), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(mesh.group({}, 4), std::vector<int>{4});
}

TEST(Mesh, PartsOfSetsAndPrices) {
  const Mesh mesh({{"a", 2, 8}, {"b", 3}, {"c", 5, 2}});
  EXPECT_EQ(mesh.parts(AtomSet{0b101}), 10);
  EXPECT_EQ(mesh.parts(mesh.all()), 30);
  EXPECT_EQ(mesh.price({1, 2}), 2);
  EXPECT_EQ(mesh.price({2, 0}), 8);
  EXPECT_EQ(mesh.show(AtomList{2, 0}), "c,a");
  EXPECT_EQ(mesh.show(AtomSet{0b101}), "a,c");
}

// Lists compare as bytes: what was cut off must leave nothing behind.
TEST(AtomList, PrefixAndSuffix) {
  const AtomList list = {3, 1, 2};
  AtomList joined = list.prefix(1);
  joined.append(list.suffix(1));
  EXPECT_EQ(joined, list);
  EXPECT_EQ(list.prefix(2), (AtomList{3, 1}));
  EXPECT_EQ(list.suffix(3), AtomList{});
  EXPECT_TRUE(list.starts_with({3, 1}));
  EXPECT_FALSE(list.starts_with({1}));
  EXPECT_EQ(list.set(), 0b1110);
}

}  // namespace
}  // namespace myriad
