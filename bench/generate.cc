// Speed of generation, each figure measured in one run beside what it is compared with: one JSON
// line a figure.
//   generate [ROUNDS]
// 50 M parameters (bench.h), a prompt of 192 tokens, fp32.
//   cache_ratio: tokens/s with the key/value cache over tokens/s of full passes over 256 tokens, in
//   turn.
//   batch_ratio: tokens/s of 8 prompts at a time over those of one.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bench.h"
#include "train/decoder.h"

namespace {

using namespace myriad;

constexpr int64_t kContext = 256, kPrompt = 192, kSteps = 32;

std::unique_ptr<Job> make_job(int64_t rows, Pool& pool) {
  const ModelConfig m = model_50m();
  auto job = std::make_unique<Job>(
      JobConfig{.model = m,
                .plan = resolve({}, static_cast<int>(m.layers), rows),
                .rows = rows,
                .sequence = kContext},
      pool,
      Job::Options{.train = false,
                   .logits_rows = rows == 1 ? 1 : 0,
                   .generation = {.rows = rows, .tokens = cache_places(kContext)}});
  job->initialise(1);
  return job;
}

template <class F>
double seconds_of(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A token after the prompt, all rows together.
double seconds_a_token(Decoder& decoder, const Batch& batch) {
  const double all = seconds_of([&] {
    for (int64_t i = 0; i < kSteps; ++i) {
      const std::vector<Decoder::Token> tokens(
          static_cast<size_t>(decoder.rows()),
          {batch.ids[static_cast<size_t>(kPrompt + i)], kPrompt + i});
      decoder.step(tokens);
    }
  });
  return all / static_cast<double>(kSteps * decoder.rows());
}

void print(const char* figure, double value) {
  std::printf("{\"bench\": \"generate\", \"figure\": \"%s\", \"value\": %.4g}\n", figure, value);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  Pool pool(0);
  const Batch batch = random_batch(1, kContext, model_50m().vocabulary);
  const auto one = make_job(1, pool), eight = make_job(8, pool);
  Decoder single(*one), many(*eight);
  const std::span<const int32_t> prompt = std::span(batch.ids).first(kPrompt);
  std::vector<double> cached, full, batched, read, cache_ratio, batch_ratio;
  for (int i = 0; i <= rounds; ++i) {  // the first is a warm-up
    const double r = seconds_of([&] { single.read(0, prompt); }) / kPrompt;
    for (int64_t row = 0; i == 0 && row < 8; ++row) many.read(row, prompt);
    const double c = seconds_a_token(single, batch), b = seconds_a_token(many, batch);
    const double f = seconds_of([&] { one->logits(batch); });
    if (i == 0) continue;
    read.push_back(1 / r);
    cached.push_back(1 / c);
    full.push_back(1 / f);
    batched.push_back(1 / b);
    cache_ratio.push_back(f / c);
    batch_ratio.push_back(c / b);
  }
  print("prompt_tokens_per_second", median(read));
  print("tokens_per_second", median(cached));
  print("full_pass_tokens_per_second", median(full));
  print("cache_ratio", median(cache_ratio));
  print("batch_tokens_per_second", median(batched));
  print("batch_ratio", median(batch_ratio));
  return 0;
}
