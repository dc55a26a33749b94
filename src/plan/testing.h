// Small models and clusters for the tests of this folder.
#pragma once

#include <string>

#include "plan/predict.h"

namespace myriad {

inline ModelConfig small_model(int64_t layers = 4, int64_t hidden = 64, int64_t vocabulary = 96) {
  ModelConfig m;
  m.hidden = hidden;
  m.layers = layers;
  m.heads = 8;
  m.kv_heads = 4;
  m.head_dim = hidden / 8;
  m.ffn = 2 * hidden;
  m.vocabulary = vocabulary;
  m.norm_eps = 1e-5;
  return m;
}

inline PlannedRun small_run(Plan plan, int64_t rows, ModelConfig model = small_model(),
                            int64_t sequence = 32) {
  plan = resolve(plan, static_cast<int>(model.layers), rows);
  return {.model = model, .plan = plan, .rows = rows, .sequence = sequence};
}

// Nodes of `node` devices; everything costs something.
inline Cluster small_cluster(int node = 4) {
  return parse_cluster(fmt::format(R"(
device: {{memory_bytes: 1e9, memory_bandwidth: 1e11, peak_flops: {{bf16: 1e12}}, units: 4, tiles: [[32, 32, 0.8], [8, 8, 0.4]], depth: 16,
          attention_forward: 0.5, attention_backward: 0.4, launch_seconds: 1e-6}}
host: {{issue_seconds: 1e-6, action_seconds: 2e-6}}
levels:
  - {{name: inside, devices: {}, bandwidth: {{2: 5e9, 4: 8e9}}, latency: 3e-6, send_latency: 2e-6}}
  - {{name: between, bandwidth: 1e9, latency: {{2: 1e-5, 16: 3e-5}}, send_latency: 7e-6}}
)",
                                   node),
                       "small");
}

// Products cost time, all else nothing.
inline Cluster ideal_cluster() {
  return parse_cluster(R"(
device: {memory_bytes: 1e12, memory_bandwidth: 1e30, peak_flops: {bf16: 1e12}, vector_flops: {bf16: 1e30}}
levels: [{name: ideal, bandwidth: 1e30, latency: 0}]
)",
                       "ideal");
}

}  // namespace myriad
