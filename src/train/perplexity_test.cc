#include "train/perplexity.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace myriad {
namespace {

TEST(Windows, EveryPairCountsOnceWithTheContextThatTheStrideLeaves) {
  for (int64_t pairs : {1, 2, 7, 8, 9, 30}) {
    for (int64_t length : {1, 3, 8}) {
      for (int64_t stride = 1; stride <= length; ++stride) {
        int64_t next = 0;
        for (const Window& w : windows_of(pairs, length, stride)) {
          EXPECT_EQ(w.counted, next);
          EXPECT_GT(w.end, w.counted);
          EXPECT_LE(w.end - w.begin, length);
          EXPECT_TRUE(w.begin == 0 || w.counted - w.begin == length - stride);
          next = w.end;
        }
        EXPECT_EQ(next, pairs);
      }
    }
  }
  EXPECT_EQ(windows_of(10, 4, 3), (std::vector<Window>{{0, 0, 4}, {3, 4, 7}, {6, 7, 10}}));
}

// By hand: for each token the logits of a pass over the window that counts it.
TEST(TextLoss, IsTheSumOfNegativeLogarithms) {
  constexpr int64_t kVocabulary = 23;
  const JobConfig c{.model = {.hidden = 12,
                              .layers = 2,
                              .heads = 2,
                              .kv_heads = 2,
                              .head_dim = 6,
                              .ffn = 20,
                              .vocabulary = kVocabulary,
                              .norm_eps = 1e-5,
                              .initializer_range = 0.5},
                    .plan = resolve(Plan{}, 2, 1),
                    .rows = 1,
                    .sequence = 8,
                    .real = DType::f64,
                    .optimizer = {},
                    .kernels = KernelSet::ref};
  Pool pool(2);
  Job job(c, pool, {.train = false, .evaluation_rows = 3, .logits_rows = 1});
  job.initialise(3);
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < 30; ++i)
    ids.push_back(static_cast<int32_t>(random_bits(4, 4, i) % kVocabulary));
  for (int64_t stride : {8, 3, 1}) {
    double nats = 0;
    int64_t windows = 0;
    for (int64_t begin = 0, counted = 0; counted < 29; begin += stride, ++windows) {
      const int64_t end = std::min<int64_t>(29, begin + 8);
      Batch batch{.sequence = 8};
      const std::vector<int32_t> seen(ids.begin() + begin, ids.begin() + end);
      add_row(batch, seen, std::vector<int32_t>(seen.size(), -1));
      const std::vector<double> logits = job.logits(batch);
      for (; counted < end; ++counted) {
        const double* z = logits.data() + (counted - begin) * kVocabulary;
        double sum = 0;
        for (int64_t v = 0; v < kVocabulary; ++v) sum += std::exp(z[v]);
        nats += std::log(sum) - z[ids[static_cast<size_t>(counted + 1)]];
      }
    }
    const TextLoss loss = text_loss(job, ids, stride);
    EXPECT_EQ(loss.tokens, 29);
    EXPECT_EQ(loss.windows, windows);
    EXPECT_NEAR(loss.nats, nats, 1e-10 * nats) << "stride " << stride;
    EXPECT_NEAR(loss.perplexity(), std::exp(nats / 29), 1e-9 * loss.perplexity());
    EXPECT_NEAR(loss.bits_per_byte(50), nats / 50 / std::log(2.0), 1e-9);
  }
}

}  // namespace
}  // namespace myriad
