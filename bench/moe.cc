// Experts as ratios and balances: one JSON line a figure.
//   moe [STEPS] [CORPUS_STEPS]
//   one_rank_share: model FLOPs per second of one rank over the local matrix-product peak measured
//   beside it. 8 experts top-2, hidden 512,
//     8 layers, expert ffn 704, vocabulary 16384, steps of 8 x 256 tokens, fp32.
//   load_*: after CORPUS_STEPS steps (300; 0: none) of examples/moe.yaml on one rank with sigmoid
//   scores and bias update, tokens of the last 20 steps: the
//     layer of the largest max/mean, experts without a token, and the loss beside that of the dense
//     examples/bilingual.yaml.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bench.h"
#include "data/samples.h"
#include "train/report.h"
#include "train/run_config.h"
#include "train/text_data.h"

namespace {

using namespace myriad;

ModelConfig model_of_eight() {
  ModelConfig m;
  m.family = Family::mixtral;
  m.hidden = 512;
  m.layers = 8;
  m.heads = 8;
  m.kv_heads = 4;
  m.head_dim = 64;
  m.vocabulary = 16384;
  m.norm_eps = 1e-5;
  m.moe = {.experts = 8, .top_k = 2, .expert_ffn = 704, .routing = {.load_balance = 0.01}};
  return m;
}

void print(const char* figure, double value, const char* more = "") {
  std::printf("{\"bench\": \"moe\", \"figure\": \"%s\", \"value\": %.4g%s}\n", figure, value, more);
  std::fflush(stdout);
}

void speed(Pool& pool, int steps) {
  const ModelConfig m = model_of_eight();
  const Batch batch = random_batch(8, 256, m.vocabulary);
  Job job(
      {.model = m, .plan = resolve({}, static_cast<int>(m.layers), 8), .rows = 8, .sequence = 256},
      pool);
  job.initialise(1);
  std::vector<double> seconds, peaks;
  for (int i = 0; i <= steps; ++i) {  // the first is a warm-up
    const double peak = measure_matrix_peak(pool, 0.6).flops_per_s;
    const auto start = std::chrono::steady_clock::now();
    job.step(batch, {.lr = 1e-4, .step = i + 1});
    if (i == 0) continue;
    peaks.push_back(peak);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  print("matrix_peak_flops_per_second", median(peaks));
  print("one_rank_seconds", median(seconds));
  print("one_rank_share", model_flops_per_token(m, 256) * 2048 / median(seconds) / median(peaks),
        ", \"floor\": 0.45");
}

struct Trained {
  double loss = 0, auxiliary = 0;
  std::vector<LayerLoad> loads;
};

// Means of the last 20 steps; loads are sums.
Trained train_on_corpus(const RunConfig& c, const TextData& text, int64_t steps, Pool& pool) {
  constexpr int64_t kLast = 20;
  const MixedSamples samples = training_rows(c, text);
  Job job({.model = c.model,
           .plan = resolve({}, static_cast<int>(c.model.layers), c.rows()),
           .rows = c.rows(),
           .sequence = c.train.sequence_length,
           .optimizer = c.train.optimizer},
          pool);
  job.initialise(1);
  Trained out;
  for (int64_t i = 1; i <= steps; ++i) {
    Batch b{.rows = c.rows(), .sequence = c.train.sequence_length};
    for (int64_t r = 0; r < b.rows; ++r) {
      const SampleRow row = samples.row((i - 1) * b.rows + r);
      b.ids.insert(b.ids.end(), row.ids.begin(), row.ids.end());
      b.targets.insert(b.targets.end(), row.targets.begin(), row.targets.end());
      b.positions.insert(b.positions.end(), row.positions.begin(), row.positions.end());
      b.documents.insert(b.documents.end(), row.documents.begin(), row.documents.end());
    }
    const StepResult s = job.step(b, {.lr = learning_rate(c.train, i), .step = i});
    if (i <= steps - kLast) continue;
    out.loss += s.loss() / kLast;
    out.auxiliary += s.auxiliary / kLast;
    const std::vector<LayerLoad> loads = expert_loads(s, {});
    if (out.loads.empty())
      out.loads = loads;
    else
      for (size_t l = 0; l < loads.size(); ++l) {
        for (size_t e = 0; e < loads[l].tokens.size(); ++e)
          out.loads[l].tokens[e] += loads[l].tokens[e];
      }
  }
  return out;
}

void print_balance(const std::string& name, const Trained& run) {
  double most = 0;
  int64_t dead = 0;
  for (const LayerLoad& l : run.loads) {
    most = std::max(most, l.max_over_mean());
    dead += l.dead();
  }
  print((name + "_max_over_mean").c_str(), most, ", \"limit\": 1.5");
  print((name + "_dead_experts").c_str(), static_cast<double>(dead), ", \"limit\": 0");
  print((name + "_loss").c_str(), run.loss);
  print((name + "_router_losses").c_str(), run.auxiliary);
}

void balance(Pool& pool, int64_t steps) {
  RunConfig c = read_run("examples/moe.yaml", {});
  c.train.steps = steps;
  const TextData text = prepare_text(c, [](const std::string&) {});
  RunConfig by_bias = c;
  MoeConfig& m = by_bias.model.moe;
  m.scores = Scores::sigmoid;
  m.correction_bias = true;
  m.routing = {.bias_update_rate = 0.01};
  print_balance("bias_update", train_on_corpus(by_bias, text, steps, pool));
  print_balance("load_balancing_loss", train_on_corpus(c, text, steps, pool));
  RunConfig dense = read_run("examples/bilingual.yaml", {});
  dense.train.steps = steps;
  print("dense_loss", train_on_corpus(dense, text, steps, pool).loss);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 5;
  const int64_t corpus_steps = argc > 2 ? std::atoi(argv[2]) : 300;
  Pool pool(0);
  if (steps > 0) speed(pool, steps);
  if (corpus_steps > 0) balance(pool, corpus_steps);
  return 0;
}
