#include "plan/predict.h"

#include "base/error.h"
#include "plan/make_program.h"

namespace myriad {

Workload workload_of(const PlannedRun& run) {
  const double tokens = static_cast<double>(run.rows * run.sequence);
  const ModelConfig& m = run.model;
  const double causal = model_flops_per_token(m, run.sequence);
  const double half = 6 * static_cast<double>(m.layers * m.heads * m.head_dim *
                                              run.sequence);  // the half that is masked
  return {.tokens = tokens,
          .model_flops = tokens * causal,
          .model_flops_full_attention = tokens * (causal + half)};
}

StepShape step_shape(const PlannedRun& run, DType dtype) {
  return {.rows = run.rows, .sequence = run.sequence, .dtype = dtype, .optimizer = run.optimizer};
}

namespace {

void warn_of_placement(const Plan& plan, const Cluster& cluster, std::vector<std::string>& out) {
  if (cluster.shared()) return;
  const Level& node = cluster.levels[0];
  const int64_t n = node.devices;
  if (n <= 0 || cluster.levels.size() < 2) return;
  if (plan.tp > n) {
    out.push_back(
        fmt::format("tp {} spans nodes of {} devices: its collectives run over {}; tp of at most "
                    "{} stays inside one",
                    plan.tp, n, cluster.levels[1].name, n));
  } else if (n % plan.tp != 0) {
    int64_t below = plan.tp;
    while (n % below != 0) --below;
    out.push_back(
        fmt::format("tp {} does not divide the {} devices of a node: some tp groups span two "
                    "nodes; tp {} stays inside one",
                    plan.tp, n, below));
  }
}

}  // namespace

SimulateOptions simulate_options(const PlannedRun& run, const Cluster& cluster,
                                 const PredictOptions& options) {
  SimulateOptions o{
      .pricing = pricing_for(cluster, run.dtype), .work = workload_of(run), .memory = {}};
  o.pricing.fused =
      options.fused && !cluster.shared();  // the executor of this machine fuses nothing
  o.pricing.load = run.load;
  if (run.as_computed_in_bf16) o.pricing.bytes = ByteMap::fp32();
  if (options.system != nullptr) {
    o.pricing.bytes = options.system->bytes;
    o.pricing.scores = options.system->scores;
  }
  return o;
}

Prediction predict(const PlannedRun& run, const Cluster& cluster, const PredictOptions& options) {
  check_ranks(cluster, run.plan.ranks());
  SimulateOptions o = simulate_options(run, cluster, options);
  const DType real = run.as_computed_in_bf16     ? DType::bf16
                     : o.pricing.dtype == "fp64" ? DType::f64
                                                 : DType::f32;
  Prediction p{.program = make_program(run.model, run.plan, step_shape(run, real),
                                       {.lower = {.rows = run.rows, .check = options.check}}),
               .simulation = {}};
  if (options.memory) {
    o.memory = [&](int rank) {
      return plan_memory(p.program, rank, options.scratch,
                         [&](const Value& v, char state) { return o.pricing.bytes.of(v, state); });
    };
  }
  p.simulation = simulate(p.program, cluster, o);
  auto& out = p.simulation.warnings;
  warn_of_placement(run.plan, cluster, out);
  const auto uneven = warnings(run.plan, cut_sizes(run.model, run.rows, run.sequence));
  out.insert(out.end(), uneven.begin(), uneven.end());
  return p;
}

}  // namespace myriad
