#include "train/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "data/bpe.h"
#include "data/files.h"
#include "data/testing.h"
#include "train/model_folder.h"
#include "train/open_model.h"

namespace myriad {
namespace {

class Trainer : public testing::Test {
 protected:
  RunConfig config(std::vector<std::string> overrides = {}) {
    const std::string source = MYRIAD_SOURCE;
    for (const std::string& o :
         {"data.corpus=" + source + "/data/sample/documents.jsonl",
          "data.cache=" + (folder_ / "cache").string(), std::string("train.steps=4"),
          std::string("train.evaluate_every=2")}) {
      overrides.insert(overrides.begin(), o);
    }
    return read_run(source + "/examples/tiny.yaml", overrides);
  }
  RunSummary run(const RunConfig& c, const char* name = "out", Rewrite rewrite = nullptr) {
    return train(c, folder_ / name,
                 {.console = {.out = stderr, .quiet = true},
                  .peak_seconds = 0,
                  .rewrite = std::move(rewrite)});
  }
  TemporaryFolder folder_;
};

TEST_F(Trainer, LeavesAFolderThatGenerates) {
  const RunConfig c = config();
  const RunSummary s = run(c);
  EXPECT_TRUE(s.ok());
  EXPECT_EQ(s.steps_compared, 4);
  EXPECT_EQ(s.passages.size(), 2u);
  EXPECT_GT(s.heldout_bits_per_byte, 1);
  EXPECT_GT(s.gzip_bits_per_byte, s.zstd_bits_per_byte);
  const std::filesystem::path out = folder_ / "out";
  const auto summary = nlohmann::json::parse(read_file(out / "summary.json"));
  for (const char* figure : {"flops", "collectives", "peak_bytes"}) {
    EXPECT_EQ(summary.at("predicted").at(figure), summary.at("measured").at(figure)) << figure;
  }
  EXPECT_EQ(summary.at("predicted").at("peak_bytes").size(), 8u);
  EXPECT_EQ(read_run(out / "config.yaml", {}).train, c.train);
  EXPECT_EQ(read_model_config(out / "config.json"), c.model);
  const OpenModel m = open_model(out);
  EXPECT_EQ(m.usual_context, c.train.sequence_length);
  EXPECT_EQ(m.first_token, Bpe::kEndOfText);
  EXPECT_EQ(m.end_tokens, std::vector<int32_t>{Bpe::kEndOfText});
}

TEST_F(Trainer, PricesTheStepOnTheMachineItIsGiven) {
  const RunConfig c = config();
  const auto summary = [&](double slower) {
    Cluster machine = parse_cluster(R"(
device: {memory_bytes: 1e9, memory_bandwidth: 1e10, peak_flops: {fp32: 1e11}, launch_seconds: 1e-6}
host: {workers: 2}
levels: [{name: memory, bandwidth: 1e10, latency: 1e-6}]
)",
                                    "machine");
    machine.device.launch_seconds *= slower;
    machine.levels[0].latency.points[1] *= slower;
    train(c, folder_ / "out",
          {.console = {.out = stderr, .quiet = true}, .peak_seconds = 0, .machine = [&] {
             return machine;
           }});
    EXPECT_TRUE(std::filesystem::exists(folder_ / "out/timeline_predicted.json"));
    return nlohmann::json::parse(read_file(folder_ / "out/summary.json"));
  };
  const nlohmann::json fast = summary(1), slow = summary(1000);
  EXPECT_GT(slow.at("predicted").at("step_seconds"),
            100 * fast.at("predicted").at("step_seconds").get<double>());
  for (const char* side : {"predicted", "measured"}) {
    EXPECT_GT(fast.at(side).at("step_seconds"), 0) << side;
    EXPECT_GT(fast.at(side).at("bubble"), 0) << side;
  }
}

// Evaluation shares its arena with the optimizer's moments, and must not touch them.
TEST_F(Trainer, EvaluationChangesNothing) {
  run(config({"train.evaluate_every=1"}), "often");
  run(config({"train.evaluate_every=0"}), "once");
  EXPECT_EQ(read_file(folder_ / "often/model.safetensors"),
            read_file(folder_ / "once/model.safetensors"));
}

TEST_F(Trainer, SamplesOnTheWayChangeNothingElse) {
  const RunSummary s = run(config({"generate.every=2", "train.steps=5"}), "often");
  run(config({"generate.prompts=[]", "train.steps=5"}), "never");
  EXPECT_EQ(read_file(folder_ / "often/model.safetensors"),
            read_file(folder_ / "never/model.safetensors"));
  EXPECT_EQ(read_file(folder_ / "never/samples.jsonl"), "");
  std::istringstream lines(read_file(folder_ / "often/samples.jsonl"));
  std::vector<int> steps;
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    const auto j = nlohmann::json::parse(line);
    steps.push_back(j.at("step"));
    last = j.at("text");
  }
  EXPECT_EQ(steps, (std::vector<int>{2, 2, 4, 4, 5, 5})) << "two prompts";
  EXPECT_EQ(last, s.passages[1].text);
}

TEST_F(Trainer, OneRankStartsAndLearnsTheSame) {
  const RunSummary many = run(config(), "many");
  const RunSummary one = run(config({"layout={}"}), "one");
  EXPECT_NEAR(many.loss, one.loss, 1e-4 * one.loss);
  EXPECT_NEAR(many.heldout_bits_per_byte, one.heldout_bits_per_byte,
              1e-4 * one.heldout_bits_per_byte);
}

TEST_F(Trainer, StartsFromAFolder) {
  run(config());
  const RunSummary s =
      run(config({"model=" + (folder_ / "out").string(), "train.learning_rate=1e-12"}), "further");
  EXPECT_TRUE(s.ok());
  EXPECT_NEAR(
      s.heldout_bits_per_byte,
      nlohmann::json::parse(read_file(folder_ / "out/summary.json")).at("heldout_bits_per_byte"),
      1e-4);
}

// The executor's copy of the program gathers what it has already; the prediction does not know.
// The second transfer stands where a parameter was shown to the body, which is nothing to run: the
// memory plan knows as many steps as before.
TEST_F(Trainer, ATransferMoreIsFound) {
  const RunSummary s = run(config(), "out", [](Program& p) {
    for (LoweredBody& body : p.bodies) {
      for (size_t i = 1; i < body.steps.size(); ++i) {
        const Step& step = body.steps[i];
        if (step.kind != StepKind::start || step.what != MoveKind::all_reduce ||
            body.steps[i - 1].kind != StepKind::read)
          continue;
        body.steps[i - 1] = step;
        body.steps[i - 1].kind = StepKind::move;
        body.steps[i - 1].outs = body.steps[i + 1].outs;
        return;
      }
    }
    FAIL() << "no transfer to repeat";
  });
  EXPECT_FALSE(s.ok());
  EXPECT_EQ(s.steps_different, s.steps_compared);
  EXPECT_NE(s.first_difference.find("all_reduce bytes: predicted"), std::string::npos)
      << s.first_difference;
}

TEST_F(Trainer, ALossThatIsNotFiniteStopsTheRun) {
  const RunSummary s =
      run(config({"train.learning_rate=1e30", "train.steps=20", "train.warmup_steps=0"}));
  EXPECT_FALSE(s.ok());
  EXPECT_LT(s.steps, 20);
  EXPECT_NE(s.stopped.find("the first tensor that is not finite: "), std::string::npos)
      << s.stopped;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/summary.json"));
}

}  // namespace
}  // namespace myriad
