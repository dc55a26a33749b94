// Measures a model in training and lets it write. Both use forward-only programs of the job that is
// being trained, and neither changes its parameters or moments, so a run that evaluates often ends
// with the same weights as one that evaluates once. Read train/job.h first for the programs of a
// job, then train/generate.h for how prompts are continued.
#include "train/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "train/batches.h"
#include "train/decoder.h"
#include "train/generate.h"

namespace myriad {

int64_t evaluation_rows(const RunConfig& config) {
  const int64_t m = config.plan.micro_batches, rows = config.rows();
  return std::min(rows, (rows + m - 1) / m * config.plan.pp);
}

Generation generation_of(const RunConfig& config) {
  const int64_t context = config.train.sequence_length;
  if (config.prompts.empty() || context < 2) return {};
  return {.rows = std::min<int64_t>(std::ssize(config.prompts), 8),
          .tokens = cache_places(context)};
}

HeldOutLoss measure_held_out(Job& job, const HeldOutRows& held_out, const RunConfig& config) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point from = Clock::now();
  const int64_t per_call = evaluation_rows(config);
  HeldOutLoss out;
  for (int64_t first = 0; first < held_out.rows(); first += per_call) {
    const Batch batch = held_out_batch(held_out, first, per_call, config.train.sequence_length);
    out.nats += job.evaluate(batch).loss_sum;
  }
  out.loss = out.nats / static_cast<double>(held_out.predicted_tokens());
  out.bits_per_byte = out.nats / std::log(2.0) / static_cast<double>(held_out.text_bytes());
  out.seconds = std::chrono::duration<double>(Clock::now() - from).count();
  return out;
}

std::vector<Passage> continue_prompts(Job& job, const Tokenizer& tokenizer,
                                      const RunConfig& config) {
  if (job.options().generation.rows == 0) return {};
  const int32_t end = tokenizer.end_of_text();
  const GenerateConfig generation{
      .max_tokens = config.generate_tokens,
      .sampling = {.temperature = config.temperature, .seed = config.train.seed},
      .stops = {},
      .end_tokens = {end},
      .context = config.train.sequence_length};
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& prompt : config.prompts) {
    std::vector<int32_t> ids = {end};
    tokenizer.encode_onto(prompt, ids);
    const int64_t over = std::ssize(ids) - (generation.context - 1);
    ids.erase(ids.begin(), ids.begin() + std::max<int64_t>(0, over));
    prompts.push_back(std::move(ids));
  }
  Decoder decoder(job);
  std::vector<Passage> out;
  for (Continuation& c : generate(decoder, tokenizer, prompts, generation))
    out.push_back({config.prompts[out.size()], std::move(c.text)});
  return out;
}

}  // namespace myriad
