// What the benches share: a model of 50 M parameters, made-up rows of the full size, and medians.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "train/job.h"

namespace myriad {

inline Batch random_batch(int64_t rows, int64_t sequence, int64_t vocabulary) {
  Batch b{.rows = rows, .sequence = sequence};
  uint64_t x = 1;
  for (int64_t i = 0; i < rows * sequence; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    b.ids.push_back(static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(vocabulary)));
    b.targets.push_back(static_cast<int32_t>((x >> 23) % static_cast<uint64_t>(vocabulary)));
    b.positions.push_back(static_cast<int32_t>(i % sequence));
    b.documents.push_back(0);
  }
  return b;
}

// hidden 512, 12 layers, 8 heads over 4 kv heads, ffn 1408, vocabulary 16384.
inline ModelConfig model_50m() {
  ModelConfig m;
  m.family = Family::llama;
  m.hidden = 512;
  m.layers = 12;
  m.heads = 8;
  m.kv_heads = 4;
  m.head_dim = 64;
  m.ffn = 1408;
  m.vocabulary = 16384;
  m.norm_eps = 1e-5;
  return m;
}

inline double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<long>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

}  // namespace myriad
