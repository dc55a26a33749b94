// Seconds that a prediction takes, from model and plan to the answer: one JSON line a figure.
//   simulate
// telechat2-115b on 4,096 and 10,240 devices, a 1.2 T dense model on 65,536 (memory of every stage
// included). actions_per_second: actions of one rank of each stage over the time of walking them.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>

#include "plan/predict.h"

namespace {

using namespace myriad;

ModelConfig model(Family family, int64_t hidden, int64_t layers, int64_t heads, int64_t ffn) {
  ModelConfig m;
  m.family = family;
  m.hidden = hidden;
  m.layers = layers;
  m.heads = heads;
  m.kv_heads = 8;
  m.head_dim = hidden / heads;
  m.ffn = ffn;
  m.vocabulary = 131072;
  m.norm_eps = 1e-5;
  return m;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void measure(const char* name, const ModelConfig& m, Plan plan, int64_t rows,
             double limit_seconds) {
  plan = resolve(plan, static_cast<int>(m.layers), rows);
  const Cluster cluster = read_cluster(cluster_file("ascend-910b"));
  const double start = now();
  const Prediction p = predict({.model = m, .plan = plan, .rows = rows, .sequence = 8192}, cluster);
  const double seconds = now() - start, again = now();
  simulate(p.program, cluster, {.pricing = pricing_for(cluster, ""), .work = {}, .memory = {}});
  const double walk = now() - again;
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  std::printf(
      "{\"bench\": \"simulate\", \"figure\": \"%s\", \"ranks\": %ld, \"value\": %.4f, \"unit\": "
      "\"seconds\", \"limit\": %g, \"rank_classes\": %ld, "
      "\"actions\": %ld, \"actions_per_second\": %.3g, \"peak_memory_bytes\": %ld}\n",
      name, static_cast<long>(p.simulation.ranks), seconds, limit_seconds,
      static_cast<long>(p.simulation.classes), static_cast<long>(p.simulation.actions),
      static_cast<double>(p.simulation.actions) / walk, use.ru_maxrss * 1024L);
}

}  // namespace

int main() {
  const ModelConfig telechat = model(Family::telechat, 8192, 96, 64, 40960),
                    dense = model(Family::llama, 25600, 128, 160, 102400);
  measure("telechat2_115b_4096", telechat,
          {.dp = 64, .tp = 8, .pp = 8, .vpp = 3, .micro_batches = 8, .zero = 1, .sp = true}, 512,
          10);
  measure("telechat2_115b_10240", telechat,
          {.dp = 160, .tp = 8, .pp = 8, .vpp = 3, .micro_batches = 8, .zero = 1, .sp = true}, 512,
          15);
  measure("dense_1200b_65536", dense,
          {.dp = 512,
           .tp = 8,
           .pp = 16,
           .vpp = 2,
           .micro_batches = 32,
           .zero = 1,
           .sp = true,
           .recompute = Recompute::full},
          16384, 60);
  return 0;
}
