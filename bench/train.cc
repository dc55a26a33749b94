// Speed of training as ratios, each measured in one run beside its limit: one JSON line a figure.
//   train [STEPS]
// 50 M parameters (hidden 512, 12 layers, 8 heads over 4 kv heads, ffn 1408, vocabulary 16384),
// steps of 8 x 256 tokens, fp32.
//   one_rank_share: model FLOPs per second of one rank over the local matrix-product peak.
//   bf16_seconds: of one rank in bf16; bf16_speedup: fp32's over those; bf16_share: its model FLOPs
//   per second over the rate of bf16 products measured beside it, where the processor has them.
//   layout_ratio: seconds a step of dp 2 x tp 2 x pp 2, zero 1, 4 micro-batches over those of one
//   rank, steps in turn.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bench.h"
#include "train/job.h"
#include "train/peak.h"

namespace {

using namespace myriad;

std::unique_ptr<Job> make_job(Plan plan, Pool& pool, DType real = DType::f32) {
  const ModelConfig m = model_50m();
  plan = resolve(plan, static_cast<int>(m.layers), 8);
  auto job = std::make_unique<Job>(
      JobConfig{.model = m, .plan = plan, .rows = 8, .sequence = 256, .real = real}, pool);
  job->initialise(1);
  return job;
}

double seconds_of_step(Job& job, const Batch& batch, int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  job.step(batch, {.lr = 1e-4, .step = step});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 5;
  Pool pool(0);
  const ModelConfig m = model_50m();
  const Batch batch = random_batch(8, 256, m.vocabulary);
  auto one = make_job({}, pool);
  auto many = make_job({.dp = 2, .tp = 2, .pp = 2, .micro_batches = 4, .zero = 1}, pool);
  auto narrow = make_job({}, pool, DType::bf16);
  std::vector<double> one_seconds, many_seconds, narrow_seconds, peaks, narrow_peaks;
  for (int i = 0; i <= steps; ++i) {  // the first is a warm-up
    const double peak = measure_matrix_peak(pool, 0.6).flops_per_s,
                 a = seconds_of_step(*one, batch, i + 1);
    const double b = seconds_of_step(*many, batch, i + 1);
    const double narrow_peak = measure_bf16_peak(pool, 0.3),
                 c = seconds_of_step(*narrow, batch, i + 1);
    if (i == 0) continue;
    peaks.push_back(peak);
    narrow_peaks.push_back(narrow_peak);
    narrow_seconds.push_back(c);
    one_seconds.push_back(a);
    many_seconds.push_back(b);
  }
  const double flops = model_flops_per_token(m, 256) * 2048, peak = median(peaks);
  std::vector<double> ratios;
  for (size_t i = 0; i < one_seconds.size(); ++i)
    ratios.push_back(many_seconds[i] / one_seconds[i]);
  std::printf(
      "{\"bench\": \"train\", \"figure\": \"matrix_peak_flops_per_second\", \"value\": %.4g}\n",
      peak);
  std::printf("{\"bench\": \"train\", \"figure\": \"one_rank_seconds\", \"value\": %.4g}\n",
              median(one_seconds));
  std::printf(
      "{\"bench\": \"train\", \"figure\": \"one_rank_share\", \"value\": %.4g, \"floor\": 0.45}\n",
      flops / median(one_seconds) / peak);
  const double of_bf16 = median(narrow_seconds), rate = median(narrow_peaks);
  std::printf("{\"bench\": \"train\", \"figure\": \"bf16_seconds\", \"value\": %.4g}\n", of_bf16);
  std::printf("{\"bench\": \"train\", \"figure\": \"bf16_speedup\", \"value\": %.4g}\n",
              median(one_seconds) / of_bf16);
  if (rate > 0) {
    std::printf(
        "{\"bench\": \"train\", \"figure\": \"bf16_peak_flops_per_second\", \"value\": %.4g}\n",
        rate);
    std::printf("{\"bench\": \"train\", \"figure\": \"bf16_share\", \"value\": %.4g}\n",
                flops / of_bf16 / rate);
  }
  std::printf(
      "{\"bench\": \"train\", \"figure\": \"layout_ratio\", \"value\": %.4g, \"limit\": 1.3}\n",
      median(ratios));
  return 0;
}
