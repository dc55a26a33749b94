#include "train/perplexity.h"

#include <algorithm>

#include "base/error.h"
#include "data/samples.h"

namespace myriad {

std::vector<Window> windows_of(int64_t pairs, int64_t length, int64_t stride) {
  CHECK(pairs >= 1 && length >= 1 && stride >= 1 && stride <= length, "{} pairs, {} by {}", pairs,
        length, stride);
  std::vector<Window> all = {{0, 0, std::min(pairs, length)}};
  while (all.back().end < pairs) {
    const Window& last = all.back();
    const int64_t begin = last.begin + stride;
    all.push_back({begin, last.end, std::min(pairs, begin + length)});
  }
  return all;
}

void add_row(Batch& batch, std::span<const int32_t> ids, std::span<const int32_t> targets) {
  const int64_t n = std::ssize(ids);
  CHECK(n <= batch.sequence && targets.size() == ids.size(), "{} tokens in a row of {}", n,
        batch.sequence);
  ++batch.rows;
  for (int64_t i = 0; i < batch.sequence; ++i) {
    const bool inside = i < n;
    batch.ids.push_back(inside ? ids[static_cast<size_t>(i)] : 0);
    batch.targets.push_back(inside ? targets[static_cast<size_t>(i)] : kNoTarget);
    batch.positions.push_back(static_cast<int32_t>(inside ? i : i - n));
    batch.documents.push_back(inside ? 0 : 1);
  }
}

TextLoss text_loss(Job& job, std::span<const int32_t> ids, int64_t stride) {
  const int64_t length = job.config().sequence, rows = job.options().evaluation_rows;
  const std::vector<Window> windows = windows_of(std::ssize(ids) - 1, length, stride);
  TextLoss loss{.windows = std::ssize(windows)};
  for (size_t first = 0; first < windows.size(); first += static_cast<size_t>(rows)) {
    Batch batch{.sequence = length};
    for (size_t i = first; i < first + static_cast<size_t>(rows); ++i) {
      if (i >= windows.size()) {
        add_row(batch, {}, {});
        continue;
      }
      const Window& w = windows[i];
      const auto at = [&](int64_t k) { return static_cast<size_t>(k); };
      std::vector<int32_t> targets(at(w.counted - w.begin), kNoTarget);
      targets.insert(targets.end(), ids.begin() + w.counted + 1, ids.begin() + w.end + 1);
      add_row(batch, ids.subspan(at(w.begin), at(w.end - w.begin)), targets);
    }
    const StepResult r = job.evaluate(batch);
    loss.nats += r.loss_sum;
    loss.tokens += r.tokens;
  }
  return loss;
}

}  // namespace myriad
