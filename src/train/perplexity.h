// How well a model predicts a text, by full passes over windows that slide.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "train/job.h"

namespace myriad {

// ids[i + 1] is predicted from the ids up to i that the window holds. Window k takes the pairs (i,
// i + 1) from k stride on, `length` of them. The first counts all its pairs, a later one those that
// no window before it had: every pair counts once, with at least length - stride tokens before it
// (or all there are). stride = length: windows side by side.
struct Window {
  int64_t begin, counted, end;  // pairs [begin, end) are read, [counted, end) count
  bool operator==(const Window&) const = default;
};
std::vector<Window> windows_of(int64_t pairs, int64_t length, int64_t stride);

struct TextLoss {
  double nats = 0;     // sum of -ln p
  int64_t tokens = 0;  // predicted
  int64_t windows = 0;
  double perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }
  double bits_per_byte(int64_t bytes) const {
    return nats / std::log(2.0) / static_cast<double>(bytes);
  }
};

// `job` evaluates rows of `length` tokens (JobConfig::sequence). At least two ids.
TextLoss text_loss(Job& job, std::span<const int32_t> ids, int64_t stride);

// A row of a batch: ids with their targets (kNoTarget: none), one document from position 0; what is
// left of the row is a document of its own.
void add_row(Batch& batch, std::span<const int32_t> ids, std::span<const int32_t> targets);

}  // namespace myriad
