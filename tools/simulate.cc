// myriad simulate: predicts the step of a run file on a described cluster. It lowers the run and
// prices it through `predict` (plan/predict.h); here are only the options: which cluster, how
// unevenly experts are chosen, and what is printed or written.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "machine/exec.h"
#include "machine/simulate_report.h"
#include "plan/explain.h"
#include "tools/commands.h"
#include "train/forecast.h"

namespace myriad {

namespace {

struct Options {
  std::string run, cluster, trace, dtype, experts;
  std::vector<std::string> overrides;
  double tokens = 0;
  bool json = false, explain = false;
};

// The load of experts: a law by name, or the counts of the last step of a run that recorded any.
ExpertLoad load_of(const std::string& text, const ModelConfig& model) {
  const std::filesystem::path metrics = std::filesystem::path(text) / "metrics.jsonl";
  if (text.empty() || !std::filesystem::exists(metrics)) return parse_load(text, model.moe.experts);
  std::ifstream in(metrics);
  ExpertLoad load;
  for (std::string line; std::getline(in, line);) {
    const auto step = nlohmann::json::parse(line, nullptr, false);
    if (!step.is_object() || !step.contains("experts")) continue;
    load.layers.clear();
    for (const auto& layer : step.at("experts")) {
      auto share = layer.at("tokens").get<std::vector<double>>();
      const double sum = std::accumulate(share.begin(), share.end(), 0.0);
      if (static_cast<int64_t>(share.size()) != model.moe.experts || sum <= 0) {
        throw Error(
            fmt::format("counts {} experts, the model has {}", share.size(), model.moe.experts),
            metrics.string());
      }
      for (double& x : share) x /= sum;
      load.layers.push_back(std::move(share));
    }
  }
  if (load.even()) throw Error("no step of it counts experts", metrics.string());
  return load;
}

void write_trace(const std::string& path, const Prediction& p) {
  std::ofstream out(path);
  out << chrome_trace(p.simulation, p.program);
  out.close();
  if (!out) throw Error("cannot be written", path);
}

int run_simulate(const Options& o) {
  const RunConfig config = read_run(o.run, o.overrides);
  const Cluster cluster = read_cluster(cluster_file(!o.cluster.empty()        ? o.cluster
                                                    : !config.cluster.empty() ? config.cluster
                                                                              : "laptop"));
  PlannedRun run = planned_run(config, cluster, o.dtype);
  run.load = load_of(o.experts, config.model);
  PredictOptions options;
  if (cluster.shared()) {  // the cluster is this machine, so its kernels are known
    options.scratch = [&](const Op& op, const LabelSizes& local, DType real) {
      return kernel_scratch(config.train.kernels, op, local, real);
    };
  }
  const Prediction p = predict(run, cluster, options);
  if (!o.trace.empty()) write_trace(o.trace, p);
  nlohmann::json line = to_json(p.simulation, o.tokens);
  std::string text = fmt::format("{}: {}\n", config.name, show(config.plan)) +
                     to_text(p.simulation, p.program, cluster, o.tokens);
  if (o.explain) {
    const Explanation e = explain(run, cluster, options);
    line["explain"] = to_json(e);
    text += to_text(e);
  }
  if (o.json) {
    line["cluster"] = cluster.name;
    print_json(line);
  } else {
    fmt::print("{}", text);
  }
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand(
      "simulate", "Prices a run on a cluster that need not exist: step time, memory, MFU, and why");
  c->add_option("RUN", o->run, "The run file (docs/configuration.md)")
      ->required()
      ->type_name("RUN.yaml");
  c->add_option(
       "--cluster", o->cluster,
       "A cluster file (docs/cluster-files.md) or the name of one; default: `cluster` of the run "
       "file, or laptop: this machine")
      ->type_name("FILE");
  c->add_option(
       "--dtype", o->dtype,
       "Prices in bf16, fp16, fp32 or fp64; default: train.dtype if it is bf16, else the first of "
       "these that the device has")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32", "fp64"}));
  c->add_option(
       "--experts", o->experts,
       "How tokens choose experts: even, zipf:S, or the folder of a run whose last counts to "
       "take; default: even")
      ->type_name("LOAD");
  c->add_option("--trace", o->trace, "Writes the predicted timeline as Chrome-trace JSON")
      ->type_name("FILE");
  c->add_option("--tokens", o->tokens, "Token budget: adds days and device-hours")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  c->add_flag("--explain", o->explain,
              "Says what limits the step and what changes would bring, each simulated");
  add_overrides(*c, o->overrides, "layout.tp=4");
  add_json(*c, o->json);
  add_examples(*c,
               {"myriad simulate examples/telechat2-115b.yaml --cluster ascend-910b",
                "myriad simulate examples/telechat2-115b.yaml --cluster h100 --explain",
                "myriad simulate examples/dense-1.2t.yaml --cluster b200 --tokens 15e12 --json"});
  c->callback([o, &status] { status = run_simulate(*o); });
}

}  // namespace myriad
