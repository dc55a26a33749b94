#include "base/yaml.h"

#include <gtest/gtest.h>

namespace myriad {
namespace {

// What a reader that knows every kind of value makes of a file.
struct Read {
  std::string name = "none";
  bool flag = false;
  int64_t whole = 1;
  uint64_t seed = 1;
  double number = 1, positive = 1, share = 1;
  std::vector<std::string> texts;
  std::vector<int> integers;
  int choice = -1;
  std::vector<std::string> items;
};

Read read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  YamlFile file = YamlFile::parse(text, "f.yaml");
  for (const std::string& o : overrides) file.override_with(o);
  const YamlMap root(file, file.root(), "", {"name", "sizes", "lists", "items", "any"});
  Read r;
  root.text("name", r.name);
  const YamlMap sizes =
      root.child("sizes", {"flag", "whole", "seed", "number", "positive", "share"});
  sizes.flag("flag", r.flag);
  sizes.integer("whole", 1, 1000, r.whole);
  sizes.integer("seed", r.seed);
  sizes.number("number", 0, 10, r.number);
  sizes.positive("positive", r.positive);
  sizes.positive("share", r.share, 1);
  const YamlMap lists = root.child("lists", {"texts", "integers", "choice"});
  r.texts = lists.texts("texts");
  r.integers = lists.integers("integers");
  r.choice = lists.choice("choice", {"gpipe", "1f1b"});
  for (const YamlMap& item : root.children("items", {"path"})) {
    if (!item.has("path")) item.refuse("path", "a file");
    item.text("path", r.items.emplace_back());
  }
  root.child("any", {});
  return r;
}

std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    read(text, overrides);
  } catch (const Error& e) {
    return e.what();
  }
  return "not refused";
}

TEST(Yaml, ReadsWhatIsGivenAndLeavesTheRest) {
  const Read r = read(
      "name: \"7\"\nsizes: {flag: true, whole: 1e2, number: 2.5, positive: 1e-9, share: 1}\n"
      "lists: {texts: [a, \"2\"], integers: [3, -1], choice: 1f1b}\n"
      "items: [{path: x}, {path: y}]\nany: {thing: 1, [a]: 2}\n",
      {"sizes.seed=9", "lists.integers=[4]"});
  EXPECT_EQ(r.name, "7");
  EXPECT_TRUE(r.flag);
  EXPECT_EQ(r.whole, 100);
  EXPECT_EQ(r.seed, 9u);
  EXPECT_EQ(r.number, 2.5);
  EXPECT_EQ(r.positive, 1e-9);
  EXPECT_EQ(r.share, 1);
  EXPECT_EQ(r.texts, (std::vector<std::string>{"a", "2"}));
  EXPECT_EQ(r.integers, std::vector<int>{4});
  EXPECT_EQ(r.choice, 1);
  EXPECT_EQ(r.items, (std::vector<std::string>{"x", "y"}));
  for (const char* nothing : {"", "sizes:\nname: ~\nlists: {texts: null}\nitems:\n"}) {
    const Read none = read(nothing);
    EXPECT_EQ(none.name, "none");
    EXPECT_EQ(none.whole, 1);
    EXPECT_TRUE(none.texts.empty() && none.items.empty());
    EXPECT_EQ(none.choice, -1);
  }
}

TEST(Yaml, RefusalsSayPlaceKeyValueRuleAndTheNearest) {
  struct Case {
    std::string text, expected;
  };
  const std::string sizes = "name: a\nsizes:\n  ";
  for (const auto& [text, expected] : std::vector<Case>{
           {"name: a\nsisez: {}\n", "f.yaml:2: unknown key sisez\n  hint: did you mean sizes?"},
           {sizes + "hole: 1\n",
            "f.yaml:3: unknown key sizes.hole\n  hint: did you mean sizes.whole?"},
           {sizes + "xyz: 1\n",
            "f.yaml:3: unknown key sizes.xyz\n  hint: legal keys of sizes: flag, whole, seed"},
           {"name: a\nname: b\n", "f.yaml:2: key name is given twice"},
           {"any: {x: 1, x: 2}\n", "f.yaml:1: key any.x is given twice"},
           {"name: [a]\n", "f.yaml:1: name must be text, not [a]"},
           {"name: a\nsizes: 5\n",
            "f.yaml:2: sizes must be a map of keys, not a single value\n  hint: its keys: flag"},
           {"any: []\n", "f.yaml:1: any must be a map of keys, not a list"},
           {"- name\n", "f.yaml:1: must be a map of keys, not a list"},
           {"name: a\nsizes: [\n", "f.yaml:3: is not YAML"},
           {sizes + "flag: yes\n", "f.yaml:3: sizes.flag must be true or false, not yes"},
           {sizes + "whole: ten\n", "sizes.whole must be a whole number from 1 to 1000, not ten"},
           {sizes + "whole: \"10\"\n", "a whole number from 1 to 1000, not \"10\""},
           {sizes + "whole: 10.5\n", "from 1 to 1000, not 10.5\n  hint: nearest: 11"},
           {sizes + "whole: 1e30\n", "from 1 to 1000, not 1e30\n  hint: nearest: 1000"},
           {sizes + "whole: 0\n", "from 1 to 1000, not 0\n  hint: nearest: 1"},
           {sizes + "seed: -1\n", "a whole number of 0 or more, not -1\n  hint: nearest: 0"},
           {sizes + "number: 11\n", "a number from 0 to 10, not 11\n  hint: nearest: 10"},
           {sizes + "number: .nan\n", "sizes.number must be a number from 0 to 10, not .nan"},
           {sizes + "positive: 0\n", "sizes.positive must be a number above 0, not 0"},
           {sizes + "positive: .inf\n", "sizes.positive must be a number above 0, not .inf"},
           {sizes + "share: 2\n", "above 0 and at most 1, not 2\n  hint: nearest: 1"},
           {"lists: {texts: one}\n", "f.yaml:1: lists.texts must be a list of texts, not one"},
           {"lists: {integers: [1, 2.5]}\n", "must be a list of whole numbers, not [1, 2.5]"},
           {"lists: {choice: 1f1}\n",
            "lists.choice must be one of gpipe, 1f1b, not 1f1\n  hint: did you mean 1f1b?"},
           {"items: [{path: x},\n  null]\n",
            "f.yaml:2: items.1.path is missing: it must be a file"},
           {"items: x\n", "f.yaml:1: items must be a list of maps, not x"},
           {"items:\n  - {path: x}\n  - {}\n",
            "f.yaml:3: items.1.path is missing: it must be a file"},
       }) {
    EXPECT_NE(refusal(text).find(expected), std::string::npos)
        << "expected " << expected << "\ngot      " << refusal(text);
  }
}

TEST(Yaml, OverridesAreNamedByTheOption) {
  const auto says = [](const std::string& override, const std::string& expected) {
    const std::string got = refusal("name: a\nsizes: {whole: 2}\n", {override});
    EXPECT_EQ(got.find("-s " + override + ": " + expected), 0u) << got;
  };
  says("sizes", "an override is KEY=VALUE");
  says("sizes..whole=1", "key \"sizes..whole\" has an empty part");
  says("sizes.whole.x=1", "sizes.whole is a single value, it has no key x");
  says("sizes.whole=0", "sizes.whole must be");
  says("sizes={whole: 0}", "sizes.whole must be");
  EXPECT_EQ(refusal("", {"name=["}).find("-s name=[:1: is not YAML"), 0u);
  says("lists.choise=gpipe", "unknown key lists.choise\n  hint: did you mean lists.choice?");
}

TEST(Yaml, AnErrorOfAnotherIsPlacedAtTheKeyThatItNames) {
  const YamlFile file = YamlFile::parse("top:\n  heads: 4\n  kv_heads: 3\n", "f.yaml");
  const YamlMap top = YamlMap(file, file.root(), "", {}).child("top", {});
  const auto placed = [&](const Error& error) {
    try {
      top.refuse(error);
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(placed(Error("kv_heads 3 must divide heads", "model", "1, 2")),
            "f.yaml:3 (model): kv_heads 3 must divide heads\n  hint: 1, 2");
  EXPECT_EQ(placed(Error("of 4 heads")), "f.yaml:2: of 4 heads");
  EXPECT_EQ(placed(Error("behead")), "f.yaml:2: behead");
}

TEST(Yaml, WhatCannotBeOpened) {
  EXPECT_THROW(YamlFile::open("no-such.yaml"), Error);
  EXPECT_THROW(YamlFile::open(std::string(300, 'x')), Error);
  EXPECT_THROW(YamlFile::open("/"), Error);
}

}  // namespace
}  // namespace myriad
