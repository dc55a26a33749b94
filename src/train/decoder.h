// A model that remembers: keys and values of what it has read lie in a cache, a state of the
// program (model/emit.h, CacheShape), so a further token costs one token's work. Two programs share
// the parameters: one reads a prompt, 64 tokens of one row at a time; the other takes one token of
// every row. The place of a key in the cache is its position, so what is left of an earlier
// sequence lies where causality lets nobody look.
//
// Rows do not know of each other, to the bit: a prompt is read alone, and the products of few rows
// (kernels/fast/fast.h) give a row the same bits in any company.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/job.h"

namespace myriad {

// More would be products of many rows, whose bits depend on how many they are.
inline constexpr int64_t kMostRows = 16;

// Places for a context of so many tokens. Whole tiles of keys: attention then sums in the same
// order however long the cache is.
inline int64_t cache_places(int64_t tokens) { return (tokens + 255) / 256 * 256; }

class Decoder {
 public:
  // `job` has programs for generation and outlives it; its other programs may run between steps,
  // but what the cache holds is then lost.
  explicit Decoder(Job& job);

  int64_t rows() const { return job_.options().generation.rows; }
  int64_t tokens() const { return job_.options().generation.tokens; }
  int64_t vocabulary() const { return job_.config().model.vocabulary; }

  // The row begins anew with these tokens, at positions 0, 1, ...
  void read(int64_t row, std::span<const int32_t> ids);

  struct Token {
    int32_t id = 0;
    int64_t position = -1;  // of the row's next token; -1: the row is idle
  };
  // One token for each row; logits [rows, vocabulary] for what follows it.
  std::vector<double> step(std::span<const Token> tokens);

 private:
  void copy_row(int64_t row);

  Job& job_;
};

}  // namespace myriad
