#include "train/generate.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "data/samples.h"

namespace myriad {

namespace {

// One row that ends with the last of `ids`; padding behind it is a document of its own.
Batch row_of(const std::vector<int32_t>& ids, int64_t sequence, int32_t padding) {
  const int64_t n = std::min<int64_t>(std::ssize(ids), sequence);
  Batch b{.rows = 1, .sequence = sequence, .ids = {ids.end() - n, ids.end()}};
  b.ids.resize(sequence, padding);
  b.targets.assign(sequence, kNoTarget);
  for (int64_t i = 0; i < sequence; ++i) {
    b.positions.push_back(static_cast<int32_t>(i < n ? i : i - n));
    b.documents.push_back(i < n ? 0 : 1);
  }
  return b;
}

int32_t sample(const double* logits, int vocabulary, const SamplingConfig& config,
               uint64_t position) {
  const auto best = static_cast<int32_t>(std::max_element(logits, logits + vocabulary) - logits);
  if (config.temperature == 0) return best;
  std::vector<double> up_to(vocabulary);
  double sum = 0;
  for (int i = 0; i < vocabulary; ++i)
    up_to[i] = sum += std::exp((logits[i] - logits[best]) / config.temperature);
  const double at = uniform(config.seed, stream_of("generate"), position) * sum;
  const auto found = std::upper_bound(up_to.begin(), up_to.end(), at) - up_to.begin();
  return static_cast<int32_t>(std::min<int64_t>(found, vocabulary - 1));
}

// Length of the well-formed character at the start of s, 0 if there is none (Unicode 15, table
// 3-7).
size_t character(std::string_view s) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto in = [](unsigned x, unsigned lo, unsigned hi) { return x >= lo && x <= hi; };
  const unsigned a = byte(0), b = byte(1);
  if (a < 0x80) return 1;
  if (in(a, 0xC2, 0xDF)) return in(b, 0x80, 0xBF) ? 2 : 0;
  const bool third = in(byte(2), 0x80, 0xBF);
  if (in(a, 0xE0, 0xEF))
    return third && in(b, a == 0xE0 ? 0xA0 : 0x80, a == 0xED ? 0x9F : 0xBF) ? 3 : 0;
  if (in(a, 0xF0, 0xF4))
    return third && in(byte(3), 0x80, 0xBF) &&
                   in(b, a == 0xF0 ? 0x90 : 0x80, a == 0xF4 ? 0x8F : 0xBF)
               ? 4
               : 0;
  return 0;
}

}  // namespace

std::string generate(Job& job, const Tokenizer& tokenizer, std::string_view prompt,
                     const SamplingConfig& config) {
  const int64_t sequence = job.config().sequence, width = job.config().model.vocabulary;
  const int vocabulary = static_cast<int>(std::min<int64_t>(tokenizer.vocabulary(), width));
  std::vector<int32_t> ids = {tokenizer.end_of_text()};
  tokenizer.encode_onto(prompt, ids);
  const size_t begin = ids.size();
  for (int64_t k = 0; k < config.max_tokens; ++k) {
    const std::vector<double> logits = job.logits(row_of(ids, sequence, tokenizer.end_of_text()));
    const int64_t last = std::min<int64_t>(std::ssize(ids), sequence) - 1;
    const int32_t next = sample(logits.data() + last * width, vocabulary, config, ids.size());
    if (next == tokenizer.end_of_text()) break;
    ids.push_back(next);
  }
  return tokenizer.decode({ids.begin() + static_cast<int64_t>(begin), ids.end()});
}

std::string whole_utf8(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    const size_t n = character(bytes.substr(i));
    out += bytes.substr(i, n);
    i += std::max<size_t>(n, 1);
  }
  return out;
}

}  // namespace myriad
