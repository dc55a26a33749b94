// Wanted layouts as text.
#include "passes/rules.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace myriad {
namespace {

const Mesh kMesh({{"pp", 1}, {"dp", 2}, {"cp", 1}, {"tg", 2}, {"tr", 3}});

Value value(std::string name, std::string labels, Sizes sizes) {
  return {.name = std::move(name), .labels = std::move(labels), .sizes = std::move(sizes)};
}

// The cuts wanted of a value, as a layout's text.
std::string wanted(const std::string& rules, const Value& v) {
  const Want w = Rules(rules, kMesh)(v);
  if (!w.asked) return "no wish";
  Layout l(static_cast<int>(v.sizes.size()));
  l.cuts = w.cuts;
  return show(l, v.labels, kMesh) + (w.settle ? " !" : "") + (w.fixed ? " fixed" : "");
}

TEST(Rules, LaterLinesWinForTheirLabels) {
  const Value v = value("u", "bsf", {4, 8, 12});
  EXPECT_EQ(wanted("*: b=dp f=tp\n", v), "b:dp f:tg,tr");
  EXPECT_EQ(wanted("*: b=dp f=tp\n*: f=tg\n", v), "b:dp f:tg");
  EXPECT_EQ(wanted("*: b=dp f=tp\nu: f=\n", v), "b:dp");
  EXPECT_EQ(wanted("u: f=\n*: b=dp f=tp\n", v), "b:dp f:tg,tr");
}

TEST(Rules, PatternsAreGlobsOnNameAndLabels) {
  EXPECT_EQ(wanted("*.w: d=dp\n", value("q.w", "gd", {2, 8})), "d:dp");
  EXPECT_EQ(wanted("*.w: d=dp\n", value("q", "gd", {2, 8})), "no wish");
  EXPECT_EQ(wanted("* [bsd]: s=tg\n", value("x", "bsd", {2, 4, 8})), "s:tg");
  EXPECT_EQ(wanted("* [bsd]: s=tg\n", value("x", "bsf", {2, 4, 8})), "no wish");
  EXPECT_EQ(wanted("[mv]:*: d=dp\n", value("m:q.w", "d", {8})), "d:dp");
}

TEST(Rules, TheFirstDimThatAsksGetsTheAtom) {
  EXPECT_EQ(wanted("*: s=tg g=tg\n", value("q", "bsg", {2, 4, 8})), "s:tg");
  EXPECT_EQ(wanted("*: s=tg g=tp\n", value("q", "bsg", {2, 4, 8})), "s:tg g:tr");
}

TEST(Rules, MarksAddUp) {
  EXPECT_EQ(wanted("*: b=dp\n* [bsd]: !\n", value("x", "bsd", {2, 4, 8})), "b:dp !");
  EXPECT_EQ(wanted("*.w: fixed\n*: d=dp\n", value("q.w", "d", {8})), "d:dp fixed");
}

TEST(Rules, GradientsObeyTheLinesOfTheirValues) {
  const std::string rules = "*: f=tg\nu: b=dp !\n*.w: fixed +zero=dp\n";
  EXPECT_EQ(wanted(rules, value("d.u", "bsf", {4, 8, 12})), "b:dp f:tg !");
  EXPECT_EQ(wanted(rules, value("d.up.w", "fd", {4, 8})), "f:tg")
      << "neither fixed nor cut by +zero";
  EXPECT_EQ(wanted(rules + "d.u: f=\n", value("d.u", "bsf", {4, 8, 12})), "b:dp !");
}

TEST(Rules, TemporariesHaveNoWish) {
  EXPECT_EQ(wanted("*: b=dp\n", value("%12", "bs", {2, 4})), "no wish");
}

TEST(Rules, ZeroCutsTheDimOfLeastWasteThenTheLeadingOne) {
  EXPECT_EQ(wanted("*: +zero=dp\n", value("w", "fd", {4, 8})), "f:dp");
  EXPECT_EQ(wanted("*: +zero=dp\n", value("w", "fd", {5, 8})), "d:dp") << "5 over 2 wastes a sixth";
  EXPECT_EQ(wanted("*: +zero=dp\n", value("w", "fd", {3, 5})), "d:dp")
      << "5 of 6 is better than 3 of 4";
  EXPECT_EQ(wanted("*: f=tg\n*: +zero=dp\n", value("w", "fd", {8, 8})), "f:tg,dp");
  EXPECT_EQ(wanted("*: f=dp\n*: +zero=dp,tg\n", value("w", "fd", {8, 8})), "f:dp,tg")
      << "what is taken already is not cut again";
  EXPECT_EQ(wanted("*: +zero=dp\n", value("s", "", {})), "whole");
}

TEST(Rules, AtomsOfSizeOneVanishAndAliasesExpand) {
  EXPECT_EQ(wanted("*: b=cp,dp\n", value("x", "b", {8})), "b:dp");
  EXPECT_EQ(show(
                [] {
                  Layout l(1);
                  l.cuts = Rules("*: e=ep\n", kMesh, {{"ep", "dp,tp"}})(value("w", "e", {12})).cuts;
                  return l;
                }(),
                "e", kMesh),
            "e:dp,tg,tr");
}

TEST(Rules, CommentsAndEmptyLinesSayNothing) {
  EXPECT_EQ(wanted("\n# *: b=dp\n*: s=tg # b=dp\n", value("x", "bs", {2, 4})), "s:tg");
}

void expect_refused(const std::string& rules, const std::string& named) {
  try {
    const Rules r(rules, kMesh);
    ADD_FAILURE() << rules << " is not refused";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
  }
}

TEST(Rules, MistakesAreRefusedByName) {
  expect_refused("*: b=dq\n", "\"dq\"");
  expect_refused("*: b=dp,ep\n", "\"ep\"");
  expect_refused("*: fixt\n", "\"fixt\"");
  expect_refused("*: +zero=zp\n", "\"zp\"");
  expect_refused("* b=dp\n", "* b=dp");
  expect_refused("*: b=dp\n*: s=nowhere\n", "*: s=nowhere");
}

}  // namespace
}  // namespace myriad
