#include "train/forecast.h"

#include "machine/simulate_report.h"

namespace myriad {

Program program_of(const RunConfig& c) { return make_program(c.model, c.plan, step_shape(c)); }

StepShape step_shape(const RunConfig& c) {
  return {.rows = c.rows(),
          .sequence = c.train.sequence_length,
          .dtype = c.train.dtype,
          .optimizer = c.train.optimizer};
}

PlannedRun planned_run(const RunConfig& c, const Cluster& cluster, std::string dtype) {
  const auto has = [&](const char* name) { return cluster.device.peak_flops.count(name) > 0; };
  const bool bf16 = c.train.dtype == DType::bf16 && (dtype.empty() || dtype == "bf16");
  if (bf16) dtype = has("bf16") ? "bf16" : "fp32";  // fp32: widened, then multiplied
  // Described clusters are priced in their first dtype: a run file for this machine says fp32, for
  // want of anything narrower that is as quick.
  const char* own = c.train.dtype == DType::f64 ? "fp64" : "fp32";
  if (dtype.empty() && has(own) && (cluster.shared() || c.train.dtype == DType::f64)) dtype = own;
  return {.model = c.model,
          .plan = c.plan,
          .rows = c.rows(),
          .sequence = c.train.sequence_length,
          .optimizer = c.train.optimizer,
          .dtype = dtype,
          .as_computed_in_bf16 = bf16};
}

Forecast forecast(const RunConfig& config, const Program& program, Cluster machine, int workers) {
  machine.host.workers = workers;
  const SimulateOptions options =
      simulate_options(planned_run(config, machine), machine, {.memory = false});
  const Simulation s = simulate(program, machine, options);
  return {s.step_seconds, s.bubble, chrome_trace(s, program)};
}

}  // namespace myriad
