#include "ir/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "ir/testing.h"

namespace myriad {
namespace {

// What a step of this kind may change, or why not.
std::string unlawful(const MoveStep& step, const Layout& before) {
  const Layout& after = step.after;
  const AtomSet atoms = step.atoms.set();
  const AtomSet cut_before = before.cut_atoms(), cut_after = after.cut_atoms();
  const auto same_cuts = [&] { return before.cuts == after.cuts; };
  switch (step.what) {
    case MoveKind::slice:
      if (after.pending != before.pending || (cut_before | atoms) != cut_after) return "slice";
      if (atoms & (cut_before | before.pending)) return "slice of what is held in parts";
      for (int d = 0; d < before.dims; ++d) {
        if (!after.cuts[d].starts_with(before.cuts[d])) return "slice of other parts";
      }
      return "";
    case MoveKind::reduce_scatter:
      if ((before.pending & atoms) != atoms || after.pending != (before.pending & ~atoms))
        return "reduce_scatter";
      return cut_after == (cut_before | atoms) ? "" : "reduce_scatter to other parts";
    case MoveKind::all_reduce:
      return same_cuts() && (before.pending & atoms) == atoms &&
                     after.pending == (before.pending & ~atoms)
                 ? ""
                 : "all_reduce";
    case MoveKind::all_gather:
      return after.pending == before.pending && cut_after == (cut_before & ~atoms) &&
                     (cut_before & atoms) == atoms
                 ? ""
                 : "all_gather";
    case MoveKind::all_to_all:
      return after.pending == before.pending && cut_after == cut_before &&
                     (cut_before & atoms) == atoms && !same_cuts()
                 ? ""
                 : "all_to_all";
    case MoveKind::first:
      return same_cuts() && !(before.pending & atoms) && !(cut_before & atoms) &&
                     after.pending == (before.pending | atoms)
                 ? ""
                 : "first";
  }
  return "a step of a kind that is not planned";
}

TEST(Reshard, ArrivesInFewLawfulSteps) {
  size_t most = 0;
  for (unsigned seed = 0; seed < 20000; ++seed) {
    Random random(seed);
    std::vector<Mesh::Axis> axes;
    const int atoms = 1 + below(random, 5);
    for (int i = 0; i < atoms; ++i)
      axes.push_back({std::string(1, static_cast<char>('a' + i)), 2 + below(random, 2)});
    const Mesh mesh(axes);
    const int dims = below(random, 5);
    const bool max = random() % 3 == 0;
    const Layout from = random_layout(random, mesh, dims, mesh.all(), max);
    const Layout to = random_layout(random, mesh, dims, max ? from.pending : mesh.all(), max);
    const auto steps = reshard(from, to);
    Layout at = from;
    for (const MoveStep& step : steps) {
      ASSERT_EQ(unlawful(step, at), "") << "seed " << seed << ": " << name_of(step.what);
      at = step.after;
    }
    EXPECT_EQ(at, to) << "seed " << seed;
    most = std::max(most, steps.size());
  }
  EXPECT_LE(most, 12u);
}

// What the result is cut by must not change the order of a sum.
TEST(Reshard, SettlesAllThatEndsInOneSum) {
  const Mesh mesh({{"dp", 2}, {"tp", 3}});
  const auto layout = [&](const char* text) { return parse_layout(text, "ab", mesh); };
  const auto whole = reshard(layout("sum:dp,tp"), layout("whole"));
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].what, MoveKind::all_reduce);
  const auto cut = reshard(layout("sum:dp,tp"), layout("a:dp"));
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0].what, MoveKind::reduce_scatter);
  EXPECT_EQ(cut[0].atoms.set(), whole[0].atoms.set());
  EXPECT_EQ(show(cut[0].after, "ab", mesh), "a:dp,tp");
  EXPECT_EQ(cut[1].what, MoveKind::all_gather);
}

TEST(Reshard, OneCollectiveWhereOneWillDo) {
  const Mesh mesh({{"dp", 2}, {"tp", 3}});
  const auto kinds = [&](const char* from, const char* to) {
    std::string text;
    for (const MoveStep& s : reshard(parse_layout(from, "ab", mesh), parse_layout(to, "ab", mesh)))
      text += std::string(name_of(s.what)) + " ";
    return text;
  };
  EXPECT_EQ(kinds("whole", "whole"), "");
  EXPECT_EQ(kinds("whole", "a:dp b:tp"), "slice ");
  EXPECT_EQ(kinds("a:dp b:tp", "a:dp"), "all_gather ");
  EXPECT_EQ(kinds("a:dp,tp", "whole"), "all_gather ");
  EXPECT_EQ(kinds("a:tp", "b:tp"), "all_to_all ");
  EXPECT_EQ(kinds("a:dp sum:tp", "a:dp,tp"), "reduce_scatter ");
  EXPECT_EQ(kinds("a:dp max:tp", "a:dp"), "all_reduce ");
  EXPECT_EQ(kinds("a:dp", "a:dp sum:tp"), "first ");
}

// Each rank sends what it has straight to where it is wanted, however many dims change.
TEST(Layout, OneExchangeServesSeveralDims) {
  const Mesh mesh({{"x", 2}, {"y", 2}, {"z", 2}});
  const auto steps = [&](const char* from, const char* to) {
    std::string text;
    for (const MoveStep& s :
         reshard(parse_layout(from, "abc", mesh), parse_layout(to, "abc", mesh)))
      text += fmt::format("{}({}) ", name_of(s.what), mesh.show(s.atoms));
    return text;
  };
  EXPECT_EQ(steps("b:x c:y", "a:x,y"), "all_to_all(x,y) ");
  EXPECT_EQ(steps("a:x,y", "b:x c:y"), "all_to_all(x,y) ");
  EXPECT_EQ(steps("b:z,x c:y", "a:x,y b:z"), "all_to_all(x,y) ");
  EXPECT_EQ(steps("a:x,y sum:z", "b:x c:y,z"), "all_to_all(x,y) reduce_scatter(z) ");
  EXPECT_EQ(steps("a:x", "b:x"), "all_to_all(x) ");
}

TEST(Layout, PartsOfAnUnevenDimCoverItOnce) {
  const Mesh mesh({{"x", 2}, {"y", 3}, {"z", 2}});
  for (int64_t size = 0; size <= 14; ++size) {
    for (const char* text : {"whole", "a:y", "a:x,y", "a:y,x", "a:z,x,y"}) {
      const Layout layout = parse_layout(text, "a", mesh);
      std::vector<int> seen(static_cast<size_t>(size));
      const Sizes sizes = {size};
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const Range r = local_range(mesh, layout, sizes, 0, rank);
        EXPECT_LE(r.size(), (size + mesh.parts(layout.cuts[0]) - 1) / mesh.parts(layout.cuts[0]));
        for (int64_t i = r.lo; i < r.hi; ++i) ++seen[static_cast<size_t>(i)];
      }
      const int copies = static_cast<int>(mesh.ranks() / mesh.parts(layout.cuts[0]));
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [&](int n) { return n == copies; }))
          << text << " of " << size;
    }
  }
}

}  // namespace
}  // namespace myriad
