// The keys of the section `layout` of a run file: the plan (ir/plan.h).
#include "ir/schedules.h"
#include "train/run_fields.h"

namespace myriad {

namespace {

using namespace run_fields;

constexpr int64_t kRanks = 1 << 20;
const Names kDispatch = {"flat", "node_gather", "node_relay"};
const Names kPipelines = plan_schedule_names();
const std::string kPipelineRule = schedule_rule();
const Names kRecompute = {"none", "selective", "full"};
const Names kGradReduce = {"step", "micro_batch"};
const Names kAxes = {"pp", "dp", "cp", "tp", "tg", "tr"};

template <auto Degree>
void ranks(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.integer(key, 1, kRanks, c.plan.*Degree);
}

void read_rows_bound(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.number(key, 0.001, 1e6, c.plan.expert_rows_bound);
}
std::string write_ranks_per_node(const RunConfig& c) {
  const int n = c.plan.ranks_per_node;
  return n > 0 && n < c.plan.ranks() ? fmt::format("{}", n) : "";
}

void read_pipeline(const YamlMap& s, const std::string& key, RunConfig& c) {
  if (s.choice(key, kPipelines) >= 0) s.text(key, c.plan.schedule);
}
std::string write_pipeline(const RunConfig& c) { return c.plan.schedule; }

void read_grad_reduce(const YamlMap& s, const std::string& key, RunConfig& c) {
  if (const int i = s.choice(key, kGradReduce); i >= 0)
    c.plan.grad_reduce = i == 0 ? GradReduce::step : GradReduce::micro_batch;
}
std::string write_grad_reduce(const RunConfig& c) {
  if (c.plan.grad_reduce == GradReduce::automatic) return "";
  return kGradReduce[c.plan.grad_reduce == GradReduce::micro_batch];
}

void read_stages(const YamlMap& s, const std::string& key, RunConfig& c) {
  c.plan.stages = s.integers(key);
}
std::string write_stages(const RunConfig& c) {
  return c.plan.stages.empty() ? "" : fmt::format("[{}]", fmt::join(c.plan.stages, ", "));
}

void read_prices(const YamlMap& s, const std::string& key, RunConfig& c) {
  const YamlMap prices = s.child(key, kAxes);
  for (const std::string& axis : kAxes) {
    double price = 0;
    prices.positive(axis, price);
    if (price > 0) c.plan.prices[axis] = price;
  }
}
std::string write_prices(const RunConfig& c) {
  std::string out;
  for (const auto& [axis, price] : c.plan.prices) out += fmt::format("\n    {}: {}", axis, price);
  return out;
}

constexpr auto kOfPlan = &RunConfig::plan;

const RunKey kLayout[] = {
    {"dp", "integer", "", "1 or more: data parallel", ranks<&Plan::dp>, plain<kOfPlan, &Plan::dp>},
    {"cp", "integer", "",
     "1 or more: context parallel, ranks that share each row (docs/layouts.md); a row of fewer "
     "tokens leaves some without",
     ranks<&Plan::cp>, plain<kOfPlan, &Plan::cp>},
    {"tp", "integer", "", "1 or more: tensor parallel (columns, rows, vocabulary)",
     ranks<&Plan::tp>, plain<kOfPlan, &Plan::tp>},
    {"pp", "integer", "", "1 or more: pipeline stages", ranks<&Plan::pp>,
     plain<kOfPlan, &Plan::pp>},
    {"vpp", "integer", "", "1 or more: chunks a stage; pp x vpp at most the number of layers",
     ranks<&Plan::vpp>, plain<kOfPlan, &Plan::vpp>},
    {"micro_batches", "integer", "",
     "1 to B; at least pp with `interleaved`. Micro-batch j of m is rows [j B / m, (j + 1) B / m)",
     integer<1, 1 << 30, kOfPlan, &Plan::micro_batches>, plain<kOfPlan, &Plan::micro_batches>},
    {"zero", "integer", "",
     "0; 1: moments sharded over dp x cp; 2: gradient sums too; 3: parameters too. Without effect "
     "at dp 1, cp 1",
     integer<0, 3, kOfPlan, &Plan::zero>, plain<kOfPlan, &Plan::zero>},
    {"ep", "integer", "",
     "ranks that share the experts; etp x ep is a product of atoms of dp x cp x tp "
     "(docs/experts.md)",
     ranks<&Plan::ep>, plain<kOfPlan, &Plan::ep>},
    {"etp", "integer", "", "ranks that share an expert's ffn", ranks<&Plan::etp>,
     plain<kOfPlan, &Plan::etp>},
    {"expert_rows_bound", "number", "",
     "routed rows that a rank takes in a round, over an even share; further rows go in further "
     "rounds",
     read_rows_bound, plain<kOfPlan, &Plan::expert_rows_bound>},
    {"dispatch", "name", "",
     "how rows reach experts on other nodes: `flat`, `node_gather`, `node_relay` "
     "(docs/experts.md). `node_gather` needs as many ranks of an ep group on each of its nodes",
     choice<kDispatch, kOfPlan, &Plan::dispatch>, named<kDispatch, kOfPlan, &Plan::dispatch>},
    {"sp", "true or false", "",
     "sequence parallel: what lies between the tensor-parallel parts is sharded along the "
     "sequence. Without effect at tp 1",
     flag<kOfPlan, &Plan::sp>, plain<kOfPlan, &Plan::sp>},
    {"ranks_per_node", "integer", "all ranks", "node of rank r = r / `ranks_per_node`",
     ranks<&Plan::ranks_per_node>, write_ranks_per_node},
    {"schedule", "name", "`interleaved` if vpp > 1, else `1f1b`", kPipelineRule, read_pipeline,
     write_pipeline},
    {"recompute", "name", "",
     "`none`; `selective`: the backward pass of a layer recomputes all but matrix products and "
     "attention, whose outputs are kept; `full`: it computes the forward pass again",
     choice<kRecompute, kOfPlan, &Plan::recompute>, named<kRecompute, kOfPlan, &Plan::recompute>},
    {"grad_reduce", "name", "`step` for zero 0 and 1, else `micro_batch`",
     "when gradients are reduced. zero 2 and 3 at `step` save gradient memory only after the last "
     "micro-batch",
     read_grad_reduce, write_grad_reduce},
    {"stages", "list of integers", "layer k of L to virtual stage by the sharding rule",
     "pp x vpp counts of 1 or more that sum to the layers, in model order; virtual stage k belongs "
     "to "
     "stage k mod pp",
     read_stages, write_stages},
    {"rules", "text", "empty",
     "further lines of sharding constraints, after the plan's own (`myriad show layout` prints "
     "those)",
     text<kOfPlan, &Plan::rules>, quoted_if_any<kOfPlan, &Plan::rules>},
    {"prices", "map", "empty",
     "`pp`, `dp`, `cp`, `tp`, `tg`, `tr`: factor above 0 on bytes sent over an axis, where "
     "resharding has a choice",
     read_prices, write_prices},
};

}  // namespace

std::span<const RunKey> layout_keys() { return kLayout; }

}  // namespace myriad
