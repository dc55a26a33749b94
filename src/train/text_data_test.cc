// Several sources, given tokenizers and packings, through whole runs.
#include "train/text_data.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/env.h"
#include "base/error.h"
#include "data/bpe.h"
#include "data/files.h"
#include "data/testing.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = MYRIAD_SOURCE;
const fs::path kTokenizers = kSource / "tests/golden/tokenizers";

class Text : public testing::Test {
 protected:
  // The sample in two halves.
  Text() {
    const std::string sample = read_file(kSource / "data/sample/documents.jsonl");
    const size_t middle = sample.find('\n', sample.size() / 2) + 1;
    put_bytes(folder_ / "a.jsonl", std::string_view(sample).substr(0, middle));
    put_bytes(folder_ / "b.jsonl", std::string_view(sample).substr(middle));
  }
  RunConfig config(std::vector<std::string> overrides = {}, const std::string& weights = "3, 1") {
    const size_t comma = weights.find(',');
    for (const std::string& o :
         {fmt::format("data.sources=[{{path: {}, weight: {}}}, {{path: {}, weight: {}}}]",
                      (folder_ / "a.jsonl").string(), weights.substr(0, comma),
                      (folder_ / "b.jsonl").string(), weights.substr(comma + 1)),
          std::string("data.corpus=null"), "data.cache=" + (folder_ / "cache").string(),
          std::string("train.steps=4"), std::string("train.decay_steps=0"),
          std::string("train.evaluate_every=0"), std::string("train.save_every=2"),
          std::string("data.held_out_tokens=600"), std::string("layout={dp: 2, zero: 1}")})
      overrides.insert(overrides.begin(), o);
    return read_run(kSource / "examples/tiny.yaml", overrides);
  }
  RunSummary run(const RunConfig& c, const char* name, TrainOptions options = {}) {
    options.console = {.out = stderr, .quiet = true};
    options.peak_seconds = 0;
    return train(c, folder_ / name, options);
  }
  TextData text(const RunConfig& c) {
    return prepare_text(c, [](const std::string&) {});
  }
  std::string refusal(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "not refused";
  }
  TemporaryFolder folder_;
};

TEST_F(Text, SourcesAreMixedByWeight) {
  const RunConfig c = config();
  const TextData t = text(c);
  ASSERT_EQ(t.training.size(), 2u);
  const MixedSamples rows = training_rows(c, t);
  std::vector<int> taken(2);
  for (int64_t i = 0; i < 400; ++i) ++taken[rows.place(i).source];
  EXPECT_EQ(taken, (std::vector<int>{300, 100}));
  EXPECT_EQ(t.provenance[1].size(), static_cast<size_t>(t.training[1].documents()));
  EXPECT_EQ(t.totals().documents, t.training[0].documents() + t.training[1].documents());
}

// The held-out side of a document is its own, whatever stands beside it.
TEST_F(Text, HeldOutDocumentsOfAllSourcesAreThoseOfOne) {
  const RunConfig one = config({"data.sources=null",
                                "data.corpus=" + (kSource / "data/sample/documents.jsonl").string(),
                                "data.tokenizer=" + (kTokenizers / "small_bpe.json").string(),
                                "data.vocabulary=900", "model.vocab_size=900"});
  const RunConfig two = config({"data.tokenizer=" + (kTokenizers / "small_bpe.json").string(),
                                "data.vocabulary=900", "model.vocab_size=900"});
  EXPECT_EQ(text(one).held_out_texts, text(two).held_out_texts);
}

TEST_F(Text, ChangedWeightsPackingAndOrderAreRefusedOnResume) {
  EXPECT_TRUE(run(config({"train.steps=2"}), "out").ok());
  const auto resume = [&](const RunConfig& c) {
    run(c, "out", {.resume = find_checkpoint(folder_ / "out"), .allow = {"train.steps"}});
  };
  const std::string weights = refusal([&] { resume(config({}, "1, 1")); });
  EXPECT_NE(weights.find("data.sources: was [{path: "), std::string::npos) << weights;
  EXPECT_NE(weights.find("weight: 3}"), std::string::npos) << weights;
  EXPECT_NE(refusal([&] {
              resume(config({"data.packing=whole"}));
            }).find("data.packing: was cut, is whole"),
            std::string::npos);
  Manifest old = read_manifest(find_checkpoint(folder_ / "out")), now = old;
  old.configuration.erase("data.order_version");
  EXPECT_NE(refusal([&] {
              check_same_run(old, now, {});
            }).find("data.order_version: was not there, is 2"),
            std::string::npos);
  resume(config());
}

TEST_F(Text, WholeDocumentsTrainWithPadding) {
  const RunSummary s =
      run(config({"data.packing=whole", "layout={dp: 2, tp: 2, pp: 2, micro_batches: 2, zero: 1}"}),
          "out");
  EXPECT_TRUE(s.ok()) << s.first_difference;
  const RunSummary one = run(config({"data.packing=whole", "layout={}"}), "one");
  EXPECT_NEAR(s.loss, one.loss, 1e-4 * one.loss);
}

// The model takes the tokenizer's size; the run keeps it as it was, and so does what is exported.
TEST_F(Text, AGivenTokenizerStaysWithTheRun) {
  for (const auto& [given, kept, vocabulary] : {std::tuple("small_spm.model", "tokenizer.model", 0),
                                                {"small_bpe.json", "tokenizer.json", 900}}) {
    const RunConfig c =
        config({"data.tokenizer=" + (kTokenizers / given).string(), "data.vocabulary=null",
                "model.vocab_size=null", "data.held_out_tokens=4000", "generate.max_tokens=3"});
    if (vocabulary > 0) {
      EXPECT_EQ(c.model.vocabulary, vocabulary);
    }
    const fs::path out = folder_ / given, exported = out / "exported";
    const RunSummary s = run(c, given);
    EXPECT_TRUE(s.ok());
    EXPECT_EQ(s.passages.size(), 2u);
    Env env;
    export_model(env, find_checkpoint(out), exported, 1 << 30);
    for (const fs::path& folder : {out, find_checkpoint(out), exported}) {
      EXPECT_EQ(read_file(folder / kept), read_file(kTokenizers / given)) << folder;
      EXPECT_EQ(load_tokenizer(folder)->hash(), load_tokenizer(kTokenizers / given)->hash());
    }
    EXPECT_EQ(read_run(out / "config.yaml", {}).data, c.data);
  }
}

TEST_F(Text, WhatATokenizerFolderTellsOfItsEndStays) {
  fs::create_directories(folder_ / "tokenizer");
  fs::copy(kTokenizers / "small_bpe.json", folder_ / "tokenizer/tokenizer.json");
  put_bytes(folder_ / "tokenizer/tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
  const RunConfig c =
      config({"data.tokenizer=" + (folder_ / "tokenizer").string(), "data.vocabulary=null",
              "model.vocab_size=null", "generate.prompts=[]"});
  RunConfig by_file = c;  // another end, though the same cache
  by_file.data.tokenizer = (folder_ / "tokenizer/tokenizer.json").string();
  EXPECT_EQ(text(by_file).held_out.tokenizer().end_of_text, 0);
  EXPECT_EQ(text(c).tokenizer->end_of_text(), 2);
  EXPECT_EQ(text(c).held_out.tokenizer().end_of_text, 2);
  run(c, "out");
  EXPECT_EQ(load_tokenizer(folder_ / "out")->end_of_text(), 2);
  EXPECT_EQ(load_tokenizer(find_checkpoint(folder_ / "out"))->end_of_text(), 2);
}

TEST_F(Text, RefusesATokenizerThatDoesNotFit) {
  const std::string bpe = (kTokenizers / "small_bpe.json").string();
  EXPECT_NE(refusal([&] {
              text(config({"data.tokenizer=" + bpe}));
            }).find("small_bpe.json: the tokenizer has 900 tokens, the model's embedding only 600"),
            std::string::npos);
  std::string silent = read_file(bpe);
  for (size_t at; (at = silent.find("<|endoftext|>")) != std::string::npos;)
    silent.replace(at, 13, "<|nothing|>");
  put_bytes(folder_ / "silent.json", silent);
  EXPECT_NE(refusal([&] {
              text(config({"data.tokenizer=" + (folder_ / "silent.json").string(),
                           "data.vocabulary=null", "model.vocab_size=null"}));
            }).find("does not tell which token ends a text"),
            std::string::npos);
}

}  // namespace
}  // namespace myriad
