// From model, plan and cluster to a prediction: lowers the program that would be run and simulates
// it.
#pragma once

#include <string>
#include <vector>

#include "ir/plan.h"
#include "machine/simulate.h"
#include "model/emit.h"
#include "passes/memory.h"
#include "plan/make_program.h"
#include "plan/system.h"

namespace myriad {

// What is to be run. `plan` is resolved.
struct PlannedRun {
  ModelConfig model;
  Plan plan;
  int64_t rows = 1, sequence = 1;  // of a step
  OptimizerConfig optimizer;
  ExpertLoad load;    // of experts; none: even
  std::string dtype;  // "": the first the device has of bf16, fp16, fp32
  // The program as Myriad runs it in bf16 (train.dtype), every value of its own type, rather than
  // fp32's with the usual bytes of mixed precision (ByteMap). dtype is then that of the device's
  // products.
  bool as_computed_in_bf16 = false;
};

struct PredictOptions {
  bool memory = true;
  bool check = true;  // of the program
  bool fused = true;
  const System* system = nullptr;  // that will run it; none: Myriad as priced by default
  ScratchBytes scratch;  // of the kernels of the machine that will run it, if they are known
};

struct Prediction {
  Program program;
  Simulation simulation;  // with warnings of plan and placement
};

// Throws Error where model, plan and cluster do not fit together.
Prediction predict(const PlannedRun& run, const Cluster& cluster,
                   const PredictOptions& options = {});

// What `predict` simulates with.
SimulateOptions simulate_options(const PlannedRun& run, const Cluster& cluster,
                                 const PredictOptions& options);

Workload workload_of(const PlannedRun& run);

// The step of a planned run, computed in `dtype`.
StepShape step_shape(const PlannedRun& run, DType dtype);

}  // namespace myriad
