#include "train/run_config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "data/testing.h"

namespace myriad {
namespace {

constexpr const char* kModel =
    "model: {hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: "
    "2, intermediate_size: 64, vocab_size: 300}\n";

class RunFile : public testing::Test {
 protected:
  RunConfig read(const std::string& text, const std::vector<std::string>& overrides = {}) {
    put_bytes(folder_ / "run.yaml", text);
    return read_run(folder_ / "run.yaml", overrides);
  }
  std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
    try {
      read(text, overrides);
    } catch (const Error& e) {
      std::string what = e.what();
      const std::string place = (folder_ / "").string();
      for (size_t at; (at = what.find(place)) != std::string::npos;) what.erase(at, place.size());
      return what;
    }
    return "not refused";
  }
  TemporaryFolder folder_;
};

TEST_F(RunFile, DefaultsAndOverrides) {
  const RunConfig c = read(kModel, {"layout.tp=2", "layout.stages=[3, 1]", "layout.pp=2",
                                    "train.optimizer.clip_norm=0.5", "name=other"});
  EXPECT_EQ(c.name, "other");
  EXPECT_EQ(c.model.family, Family::llama);
  EXPECT_EQ(c.data.vocabulary, 300);
  EXPECT_EQ(c.plan.tp, 2);
  EXPECT_EQ(c.plan.stages, (std::vector<int>{3, 1}));
  EXPECT_EQ(c.plan.schedule, "1f1b");
  EXPECT_EQ(c.train.optimizer.clip_norm, 0.5);
  EXPECT_EQ(c.rows(), 4);
  EXPECT_EQ(read("", {"model.hidden_size=32", "model.num_hidden_layers=2",
                      "model.num_attention_heads=2", "model.intermediate_size=8"})
                .name,
            "run");
}

TEST_F(RunFile, WrittenAndReadAgain) {
  for (const char* name : {"tiny", "bilingual", "bilingual-long", "one"}) {
    const RunConfig a =
        read_run(fmt::format("{}/examples/{}.yaml", MYRIAD_SOURCE, name),
                 {"layout.rules=\"g:*: +zero=dp\\n\"", "layout.prices={dp: 2.5}", "train.seed=7",
                  "cluster=h100", "generate.prompts=[\"a \\\"b\\\"\", 中]"});
    const RunConfig b = read(write_run(a));
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(b.cluster, "h100");
    EXPECT_EQ(a.model, b.model);
    EXPECT_EQ(a.data, b.data);
    EXPECT_EQ(a.train, b.train);
    EXPECT_EQ(a.plan, b.plan);
    EXPECT_EQ(a.prompts, b.prompts);
    EXPECT_EQ(write_run(a), write_run(b));
  }
}

TEST_F(RunFile, APathThatNoFileCanHaveIsRefused) {
  EXPECT_NE(refusal("model: " + std::string(300, 'x') + "\n")
                .find("model must be a folder or file that exists"),
            std::string::npos);
}

TEST_F(RunFile, Sources) {
  const std::string model = kModel;
  const RunConfig c = read(model +
                           "data:\n  sources:\n    - {path: web/all.jsonl.gz, weight: 0.7}\n"
                           "    - {corpus: books/, weight: 0.3, name: shelf}\n  packing: whole\n");
  EXPECT_EQ(c.data.sources,
            (std::vector<DataSource>{{"web/all.jsonl.gz", "all", 0.7}, {"books/", "shelf", 0.3}}));
  EXPECT_EQ(c.data.packing, Packing::whole);
  EXPECT_EQ(read(write_run(c)).data, c.data);
  EXPECT_EQ(read(model + "data: {corpus: a/documents.jsonl}\n").data.sources,
            (std::vector<DataSource>{{"a/documents.jsonl", "documents", 1}}));
  const std::string two = "data:\n  sources:\n    - {path: a.txt}\n    - {path: b/a.jsonl";
  EXPECT_EQ(refusal(model + two + "}\n").substr(0, 71),
            "run.yaml:5: data.sources.1.name is missing: it must be another than tha");
  EXPECT_EQ(refusal(model + two + ", name: b, weight: 0}\n").substr(0, 62),
            "run.yaml:5: data.sources.1.weight must be a number above 0, no");
  EXPECT_NE(refusal(model + two + ", name: b, weight: 0.0000001}\n").find("at most six decimals"),
            std::string::npos);
  EXPECT_NE(refusal(model + two + ", nam: b}\n")
                .find("unknown key data.sources.1.nam\n  hint: did you mean data.sources.1.name?"),
            std::string::npos);
  EXPECT_NE(refusal(model + "data: {corpus: a.txt, sources: [{path: b.txt}]}\n")
                .find("data.corpus must be left out"),
            std::string::npos);
  EXPECT_NE(
      refusal(model + "data: {sources: []}\n").find("data.sources must be a list of at least one"),
      std::string::npos);
  EXPECT_NE(refusal(model + "data: {tokenizer: nowhere.json}\n")
                .find("data.tokenizer must be a file or folder that exists"),
            std::string::npos);
}

TEST_F(RunFile, RefusalsNameEverything) {
  struct Case {
    std::string text;
    std::vector<std::string> overrides;
    std::string expected;
  };
  const std::string model = kModel;
  const std::vector<Case> cases = {
      {model + "train:\n  token_per_step: 1\n",
       {},
       "run.yaml:3: unknown key train.token_per_step\n  hint: did you mean train.tokens_per_step?"},
      {model,
       {"layout.pt=2"},
       "-s layout.pt=2: unknown key layout.pt\n  hint: did you mean layout.tp?"},
      {model,
       {"layout.zero=4"},
       "-s layout.zero=4: layout.zero must be a whole number from 0 to 3, not 4\n  hint: nearest: "
       "3"},
      {model + "train:\n  sequence_length: 256\n  tokens_per_step: 1000\n",
       {},
       "run.yaml:4: train.tokens_per_step must be a multiple of train.sequence_length (256), not "
       "1000\n  hint: nearest: 768 and 1024"},
      {model,
       {"layout.schedule=1f1"},
       "-s layout.schedule=1f1: layout.schedule must be one of gpipe, 1f1b, interleaved, not 1f1\n "
       " hint: did you mean 1f1b?"},
      {model + "layout:\n  pp: 2\n  vpp: 4\n  micro_batches: 2\n",
       {},
       "run.yaml:3 (layout): pp 2 x vpp 4 = 8 virtual stages, but there are 4 layers: one would be "
       "empty"},
      {model,
       {"layout.micro_batches=5"},
       "-s layout.micro_batches=5 (layout): 5 micro-batches, but a step has 4 rows\n  hint: "
       "micro_batches from 1 to 4"},
      {model, {"layout.prices={ep: 1}"}, "-s layout.prices={ep: 1}: unknown key layout.prices.ep"},
      {model + "train: {dtype: fp16}\n",
       {},
       "run.yaml:2: train.dtype must be one of fp32, fp64, bf16, not fp16"},
      {model + "train: {min_learning_rate: 1}\n",
       {},
       "run.yaml:2: train.min_learning_rate must be at most train.learning_rate (0.003), not 1"},
      {model + "data: {corpus: x, vocabulary: 512}\n",
       {},
       "run.yaml:2: model.vocab_size is 300, but data.vocabulary is 512: they must be equal"},
      {model,
       {"model.hiden_size=3"},
       "-s model.hiden_size=3: unknown key model.hiden_size\n  hint: did you mean "
       "model.hidden_size?"},
      {model,
       {"model.num_key_value_heads=3"},
       "-s model.num_key_value_heads=3 (model): 4 attention heads are not a multiple of "
       "num_key_value_heads 3"},
      {"model: nowhere\n",
       {},
       "run.yaml:1: model must be a folder or file that exists, not nowhere"},
      {"data: {}\n", {}, "model is missing: it must be a Hugging Face folder"},
      {model + "name: a/b\n", {}, "run.yaml:2: name must be the name of a folder"},
      {model,
       {"layout.stages=[1, 2]", "layout.pp=2"},
       "-s layout.stages=[1, 2] (layout): layout.stages sums to 3, but the model has 4 layers"},
  };
  for (const Case& c : cases) {
    const std::string got = refusal(c.text, c.overrides);
    EXPECT_NE(got.find(c.expected), std::string::npos)
        << "expected " << c.expected << "\ngot      " << got;
  }
}

TEST_F(RunFile, LayoutFromOverridesAlone) {
  const Plan p = read_layout({"layout.tp=2", "layout.schedule=gpipe"});
  EXPECT_EQ(p.tp, 2);
  EXPECT_EQ(p.schedule, "gpipe");
  EXPECT_THROW(read_layout({"train.steps=2"}), Error);
}

TEST(LearningRate, WarmsUpAndDecays) {
  TrainConfig t{.steps = 100,
                .learning_rate = 1,
                .min_learning_rate = 0.1,
                .schedule = LrSchedule::cosine,
                .warmup_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(t, 5), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(t, 10), 1);
  EXPECT_NEAR(learning_rate(t, 55), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(t, 100), 0.1, 1e-12);
  t.schedule = LrSchedule::linear;
  EXPECT_NEAR(learning_rate(t, 55), 0.55, 1e-12);
  t.schedule = LrSchedule::wsd;
  t.decay_steps = 20;
  EXPECT_DOUBLE_EQ(learning_rate(t, 80), 1);
  EXPECT_NEAR(learning_rate(t, 90), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(t, 100), 0.1, 1e-12);
  t.schedule = LrSchedule::constant;
  EXPECT_DOUBLE_EQ(learning_rate(t, 100), 1);
  t.steps = 5;  // all warm-up
  EXPECT_DOUBLE_EQ(learning_rate(t, 5), 0.5);
}

}  // namespace
}  // namespace myriad
