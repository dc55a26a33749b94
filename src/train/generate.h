// Texts continued by a model, many prompts through a few rows at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "train/decoder.h"
#include "train/sampling.h"

namespace myriad {

struct GenerateConfig {
  int64_t max_tokens = 60;
  Sampling sampling;
  std::vector<std::string> stops;   // texts that end a continuation and are not part of it
  std::vector<int32_t> end_tokens;  // tokens that do
  int64_t context = 0;              // most tokens of prompt and continuation; at most the decoder's
};

enum class Ended : uint8_t { end_token, stop, max_tokens, context };
const char* name_of(Ended why);  // "end", "stop", "max_tokens", "context"

struct Continuation {
  std::string text;          // whole UTF-8 characters
  std::vector<int32_t> ids;  // all tokens made, an end token left out
  Ended ended = Ended::max_tokens;
};

// What is certain of a text, as soon as it is; once more, with `ended`, when the text is complete.
using OnText = std::function<void(size_t prompt, std::string_view text, bool ended)>;

// prompts: at least one token each and fewer than `context`. A continuation depends on the model,
// its own prompt with its number, and the configuration: not on the other prompts or the number of
// rows.
std::vector<Continuation> generate(Decoder& decoder, const Tokenizer& tokenizer,
                                   const std::vector<std::vector<int32_t>>& prompts,
                                   const GenerateConfig& config, const OnText& on_text = nullptr);

}  // namespace myriad
