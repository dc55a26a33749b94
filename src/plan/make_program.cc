#include "plan/make_program.h"

namespace myriad {

Emit emit_of(const ModelConfig& model, const StepShape& step, const ProgramOptions& options) {
  return [model, step, cache = options.cache, rewrite = options.rewrite_pieces](int64_t rows) {
    Pieces p = emit_model(model, rows, step.sequence, step.dtype, step.optimizer, step.rows, cache);
    if (rewrite) rewrite(p);
    return p;
  };
}

Program make_program(const ModelConfig& model, const Plan& plan, const StepShape& step,
                     const ProgramOptions& options) {
  LowerOptions lowering = options.lower;
  if (lowering.rows == 0) lowering.rows = step.rows;
  return lower(emit_of(model, step, options), plan, lowering);
}

Pieces make_pieces(const ModelConfig& model, const StepShape& step) {
  return emit_model(model, 1, step.sequence, step.dtype, step.optimizer, step.rows);
}

std::vector<MemoryPlan> plan_memory_of_ranks(const Program& program, const ScratchBytes& scratch) {
  std::vector<MemoryPlan> plans;
  for (int rank = 0; rank < program.mesh.ranks(); ++rank)
    plans.push_back(plan_memory(program, rank, scratch));
  return plans;
}

}  // namespace myriad
