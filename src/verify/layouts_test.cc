#include "verify/layouts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "verify/trial.h"

namespace myriad {
namespace {

const Variant& variant(const std::string& name) {
  static const std::vector<Variant> all = all_variants();
  for (const Variant& v : all) {
    if (v.name == name) return v;
  }
  throw std::logic_error(name);
}

TEST(Plans, EachOnceAndLegal) {
  const std::vector<Plan> plans = all_plans(variant("base"), 8);
  EXPECT_GT(plans.size(), 1000u);
  std::set<std::string> names;
  for (const Plan& p : plans) {
    EXPECT_LE(p.ranks(), 8);
    EXPECT_TRUE(names.insert(show(p)).second) << show(p);
  }
}

TEST(Plans, PairwiseHasEveryPair) {
  const std::vector<Plan> all = all_plans(variant("tied"), 8), some = pairwise(all, 3);
  EXPECT_LT(some.size(), 100u);
  const auto pairs = [](const std::vector<Plan>& plans) {
    std::set<std::vector<int>> seen;
    for (const Plan& p : plans) {
      const std::vector<int> s = {p.dp,
                                  p.tp,
                                  p.pp,
                                  p.vpp,
                                  p.micro_batches,
                                  p.zero,
                                  p.sp,
                                  p.schedule[0],
                                  static_cast<int>(p.recompute),
                                  static_cast<int>(p.grad_reduce)};
      for (size_t i = 0; i < s.size(); ++i) {
        for (size_t j = 0; j < i; ++j)
          seen.insert({static_cast<int>(i), static_cast<int>(j), s[i], s[j]});
      }
    }
    return seen;
  };
  EXPECT_EQ(pairs(some), pairs(all));
}

TEST(Variants, MaskedHasRowsAndAStepWithoutTargets) {
  const Variant& v = variant("masked");
  EXPECT_GT(v.steps[0].valid(), 0);
  EXPECT_EQ(v.steps[1].valid(), 0);
  EXPECT_GT(v.steps[2].valid(), 0);
  const auto& t = v.steps[0].targets;
  EXPECT_TRUE(
      std::all_of(t.begin() + v.sequence, t.begin() + 2 * v.sequence, [](int x) { return x < 0; }));
}

TEST(Trial, SeesADifference) {
  Pool pool(1);
  const Variant& v = variant("base");
  const Record one = run_trial(v, resolve({}, 4, v.rows), pool);
  EXPECT_TRUE(one.faults.empty());
  EXPECT_EQ(compare(one, one).front().error, 0);
  EXPECT_EQ(first_difference(one, one), "");
  Record other = one;
  double& x = other.tensors.at("gradient 2 model.layers.1.mlp.down_proj.weight")[5];
  x += 1e-8;
  EXPECT_EQ(compare(other, one).front().tensor, "gradient 2 model.layers.1.mlp.down_proj.weight");
  EXPECT_GT(compare(other, one).front().error, kLayoutBound);
  EXPECT_EQ(first_difference(one, other), "gradient 2 model.layers.1.mlp.down_proj.weight");
  other.tensors.erase("loss 1");
  EXPECT_FALSE(std::isfinite(compare(other, one).front().error));
}

TEST(Layouts, OfTwoRanksAgree) {
  const LayoutReport r = verify_layouts({.max_ranks = 2, .variants = {"base", "tied", "masked"}});
  EXPECT_TRUE(r.ok()) << to_text(r);
  EXPECT_GT(r.layouts, 100);
  const auto j = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(j.at("layouts"), r.layouts);
  EXPECT_TRUE(j.at("failed").empty() && j.at("bits_failed").empty());
  EXPECT_LT(j.at("worst"), kLayoutBound);
}

TEST(Layouts, OfExpertsAgree) {
  const LayoutReport r =
      verify_layouts({.max_ranks = 2, .variants = {"experts", "capacity", "sequence", "groups"}});
  EXPECT_TRUE(r.ok()) << to_text(r);
  EXPECT_GT(r.layouts, 100);
}

TEST(Plans, RefoldForExperts) {
  std::set<std::vector<int>> folds;
  for (const Plan& p : all_plans(variant("experts"), 6)) {
    if (p.dp == 3 && p.tp == 2) folds.insert({p.ep, p.etp, p.expert_rows_bound < 1});
  }
  EXPECT_TRUE(folds.count({2, 1, 1}) && folds.count({3, 2, 0}) && folds.count({6, 1, 0}));
  EXPECT_FALSE(folds.count({3, 1, 0}));  // no product of the atoms tp 2, dp 3
}

}  // namespace
}  // namespace myriad
