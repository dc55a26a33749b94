#include "plan/make_program.h"

namespace myriad {

Program make_program(const ModelConfig& model, const Plan& plan, const StepShape& step,
                     const ProgramOptions& options) {
  const Emit emit = [&](int64_t rows) {
    Pieces p = emit_model(model, rows, step.sequence, step.dtype, step.optimizer, step.rows,
                          options.cache);
    if (options.rewrite_pieces) options.rewrite_pieces(p);
    return p;
  };
  LowerOptions lowering = options.lower;
  if (lowering.rows == 0) lowering.rows = step.rows;
  return lower(emit, plan, lowering);
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
