// Passages sampled from a model, a full pass for each token.
#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer.h"
#include "train/job.h"

namespace myriad {

struct SamplingConfig {
  int64_t max_tokens = 60;
  double temperature = 0.8;  // 0: always the likeliest token
  uint64_t seed = 1;  // the token at a position is a function of (seed, position) and the logits
};

// What follows `prompt` in a document that begins with it, up to the end mark. `job` was made with
// generation_rows 1. Beyond the sequence length the oldest tokens fall out of sight. The bytes may
// end amid a character.
std::string generate(Job& job, const Tokenizer& tokenizer, std::string_view prompt,
                     const SamplingConfig& config);

// Without the bytes that belong to no whole UTF-8 character.
std::string whole_utf8(std::string_view bytes);

}  // namespace myriad
