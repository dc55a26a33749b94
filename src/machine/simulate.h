// The machine that prices: walks a program on a described cluster with the schedule's real order on
// every stage, ranks of one class once. It computes nothing; the program is the one that the
// executor runs.
//
// Time. A run of a body takes what its steps take one after another (cluster/price.h), or what the
// host needs to issue them if that is longer. A collective begins when the last of its group has
// come to its start, and is priced whole there; its finish is free. A send goes out when it is
// reached and its channel is free, and overlaps with what follows; `wait` and `recv` end when it
// has arrived.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cluster/price.h"
#include "ir/program.h"

namespace myriad {

// What a step trains on; the FLOPs are those of the model (nothing recomputed), with causal and
// with full attention.
struct Workload {
  double tokens = 0, model_flops = 0, model_flops_full_attention = 0;
};

struct SimulateOptions {
  Pricing pricing;
  Workload work;
  std::function<MemoryPlan(int rank)> memory;  // none: memory is not looked at
  int64_t most_actions =
      2'000'000;  // of all classes; beyond: the ranks of a stage are taken as one
};

struct Span {
  double start = 0, end = 0;
};

using Costs = std::array<double, kCosts>;

struct StageResult {
  int rank = 0;               // of its class that ends last
  double useful_seconds = 0;  // runs of micro-batches, their collectives included
  double update_seconds = 0;  // other runs: the optimizer
  double idle_seconds = 0;    // waiting for others; a message's own time counts as `send`
  Costs seconds{};            // all of the above by cost; adds up to the stage's end
  std::map<int, double>
      imbalance_seconds;      // by unit with experts: more than if all took even shares
  int64_t peak_bytes = 0;     // of its worst rank
  MemoryPlan::Kinds memory;   // that rank's
  std::vector<Span> actions;  // of that class, by action
};

// Time in collectives over some axes, or in messages between stages.
struct CommunicationUse {
  Cost cost;
  std::string axes;  // "tg,tr"; "pp" for messages
  int level = 0;     // the highest level of the network that it needs
  double seconds = 0;
};

struct Simulation {
  int64_t ranks = 0, classes = 0, actions = 0;  // actions: of one rank of each stage
  double step_seconds = 0, bubble = 0;          // bubble: mean over stages of idle over useful time
  double mfu = 0, mfu_full_attention = 0, hfu = 0, tokens_per_second = 0;
  std::vector<StageResult> stages;
  int slowest_stage = 0;  // with the most useful and update time
  std::map<std::string, double> exposed_communication_seconds;  // by kind, on the slowest stage
  Costs critical{};  // along the critical path; adds up to step_seconds
  std::vector<CommunicationUse> critical_communication;  // the dearest first
  int64_t memory_limit_bytes = 0,
          memory_needed_bytes =
              0;  // needed: of the worst rank; of all where they share one machine
  bool fits = true;
  std::vector<std::string> warnings;
};

// Throws Error if the program needs more devices than the cluster has.
Simulation simulate(const Program& program, const Cluster& cluster, const SimulateOptions& options);

}  // namespace myriad
