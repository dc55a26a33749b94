// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>

namespace myriad {

struct Sampling {
  double temperature = 0.8;  // 0: always the likeliest token, the lowest of equals
  int64_t top_k = 0;         // only the k likeliest tokens; 0: all
  double top_p =
      1;  // only the likeliest tokens that together reach so much; after temperature and top_k
  uint64_t seed = 1;
};

// The token after `position` tokens of prompt number `prompt`: a function of the arguments alone
// (counter-based random numbers). Logits of -infinity are never chosen.
int32_t sample(std::span<const double> logits, const Sampling& sampling, uint64_t prompt,
               uint64_t position);

}  // namespace myriad
