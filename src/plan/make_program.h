// The one way from a model and a plan to the program that runs: training, generation, printing and
// prediction all call it, so what is shown and priced is what runs.
#pragma once

#include <functional>
#include <vector>

#include "model/emit.h"
#include "passes/lower.h"
#include "passes/memory.h"

namespace myriad {

// The sizes of a training step and the types that the model computes in.
struct StepShape {
  int64_t rows = 1, sequence = 1;
  DType dtype = DType::f32;  // of activations; states are of state_type(dtype)
  OptimizerConfig optimizer;
};

struct ProgramOptions {
  // What else to lower for. `lower.rows` of 0 means the rows of the training step; programs that
  // evaluate or generate have other rows, but the model they belong to is still trained with
  // `StepShape::rows`.
  LowerOptions lower{.rows = 0};
  CacheShape cache;                             // of generation
  std::function<void(Pieces&)> rewrite_pieces;  // tests: applied to what the model emits
};

// The model's pieces for a number of rows, as every program of it is made from.
Emit emit_of(const ModelConfig& model, const StepShape& step, const ProgramOptions& options = {});

// `plan` is resolved (ir/plan.h). Throws Error where layout and model do not fit.
Program make_program(const ModelConfig& model, const Plan& plan, const StepShape& step,
                     const ProgramOptions& options = {});

// The model's pieces for micro-batches of one row: names, parameters and units, whatever the rows.
Pieces make_pieces(const ModelConfig& model, const StepShape& step);

// The memory plan of every rank of a program.
std::vector<MemoryPlan> plan_memory_of_ranks(const Program& program, const ScratchBytes& scratch);

}  // namespace myriad
