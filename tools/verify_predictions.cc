// myriad verify predictions: predicts the runs of measurement files and prints how far the
// predictions are off. Every chosen row is either priced or listed with the reason why not, so that
// no row is left out silently. With --fit the rows are instead used to fit constants of one
// cluster. Memory is not predicted then, because only times are fitted. Read `run_predictions`
// first, then plan/accuracy.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <regex>

#include "base/error.h"
#include "plan/accuracy.h"
#include "tools/commands.h"

namespace myriad {

namespace {

struct Options {
  std::string cluster;
  std::vector<std::string> files, rows, fit;
  int ranks = 0;
  bool json = false, quiet = false;
};

// Which rows of a file: "all", "K/N" (K, K + N, ... counted from 0) or a word that the row's id
// holds; a leading '-' takes all others.
bool chosen(std::string text, size_t i, const std::string& id) {
  if (text == "all") return true;
  const bool others = text[0] == '-';
  if (others) text.erase(0, 1);
  std::smatch m;
  const bool counted = std::regex_match(text, m, std::regex("(\\d{1,6})/([1-9]\\d{0,5})"));
  const bool in =
      counted ? i % std::stoul(m[2]) == std::stoul(m[1]) : id.find(text) != std::string::npos;
  return in != others;
}

int ranks_of(const Options& o) {
  if (o.ranks > 0) return o.ranks;
  std::smatch m;
  const std::string name = std::filesystem::path(o.files[0]).filename();
  return std::regex_search(name, m, std::regex("_(\\d+)gpu")) ? std::stoi(m[1]) : 2;
}

class Clusters {
 public:
  explicit Clusters(const std::string& given) : given_(given) {}
  const Cluster& operator()(const Measured& m) {
    const std::string& name = given_.empty() ? m.cluster : given_;
    auto at = read_.find(name);
    if (at == read_.end()) at = read_.emplace(name, read_cluster(cluster_file(name))).first;
    return at->second;
  }

 private:
  std::string given_;
  std::map<std::string, Cluster> read_;
};

nlohmann::json to_json(const Accuracy& a, const nlohmann::json& skipped) {
  return {{"rows", a.rows},
          {"modelled", a.modelled},
          {"skipped", skipped},
          {"mean_error", a.mean},
          {"median_error", a.median},
          {"p90_error", a.p90},
          {"bias", a.bias},
          {"memory_mean_error", a.memory_mean},
          {"memory_max_error", a.memory_max},
          {"kendall_tau", a.kendall_tau}};
}

std::string line_of(const Measured& m, const Priced& p) {
  if (!p.skipped.empty()) return fmt::format("  {:<44} skipped: {}\n", m.id, p.skipped);
  std::string line = fmt::format("  {:<44} {:>10.4g} s, predicted {:>10.4g} s, {:+6.1f} %", m.id,
                                 m.step_seconds, p.seconds, 100 * p.error);
  if (m.peak_bytes > 0) {
    line += fmt::format("; {:6.2f} GiB, predicted {:6.2f}, {:+5.1f} %",
                        static_cast<double>(m.peak_bytes) / 1073741824.0,
                        static_cast<double>(p.peak_bytes) / 1073741824.0, 100 * p.memory_error);
  }
  return line + "\n";
}

void print_fit(const Options& o, Bench& bench, std::span<const size_t> rows) {
  Cluster c = read_cluster(cluster_file(o.cluster));
  for (const auto& [key, factor] : fit(bench, rows, o.fit, c)) {
    fmt::print("{:<28} x {:.4g}\n", key, factor);
  }
  const Device& d = c.device;
  fmt::print("memory_share {:.4g}, depth {:.4g}, attention {:.4g} / {:.4g}, launch {:.4g}\ntiles",
             d.memory_share, d.depth, d.attention_forward, d.attention_backward, d.launch_seconds);
  for (const Tile& t : d.tiles) fmt::print(" [{}, {}, {:.4g}]", t.m, t.n, t.share);
  fmt::print("\nissue {:.4g}, action {:.4g}\n", c.host.issue_seconds, c.host.action_seconds);
  for (const Level& l : c.levels) {
    fmt::print("{}:", l.name);
    for (const auto& [n, b] : l.bandwidth.points) fmt::print(" {}: {:.4g}", n, b);
    fmt::print("; latency");
    for (const auto& [n, t] : l.latency.points) fmt::print(" {}: {:.4g}", n, t);
    fmt::print("; send {:.4g}, {:.4g}\n", l.send_bandwidth, l.send_latency);
  }
  const Accuracy a = accuracy(bench.rows(), rows, bench.price(rows, c));
  fmt::print("fitted rows: {}, mean error {:.2f} %\n", a.modelled, 100 * a.mean);
}

int run_predictions(const Options& o) {
  std::vector<Measured> all;
  std::vector<size_t> rows;
  for (size_t f = 0; f < o.files.size(); ++f) {
    const std::string which = f < o.rows.size() ? o.rows[f] : "all";
    const std::vector<Measured> some = read_measured(o.files[f]);
    for (size_t i = 0; i < some.size(); ++i) {
      if (chosen(which, i, some[i].id)) rows.push_back(all.size() + i);
    }
    all.insert(all.end(), some.begin(), some.end());
  }
  Bench bench(std::move(all), shipped_systems(), {.ranks = ranks_of(o), .memory = o.fit.empty()});
  if (!o.fit.empty()) {
    if (o.cluster.empty()) throw Error("--fit needs --cluster", "verify predictions");
    print_fit(o, bench, rows);
    return 0;
  }
  Clusters clusters(o.cluster);
  std::vector<Priced> priced;
  nlohmann::json skipped = nlohmann::json::array();
  for (size_t i : rows) {
    const Measured& m = bench.rows()[i];
    priced.push_back(m.skipped.empty() ? bench.price(i, clusters(m))
                                       : Priced{.skipped = m.skipped});
    bench.forget(i);
    const Priced& p = priced.back();
    if (!p.skipped.empty()) skipped.push_back({{"row", m.id}, {"reason", p.skipped}});
    if (!o.json && !o.quiet) fmt::print("{}", line_of(m, p));
  }
  const Accuracy a = accuracy(bench.rows(), rows, priced);
  if (o.json) {
    print_json(to_json(a, skipped));
    return 0;
  }
  fmt::print(
      "{} rows, {} modelled, {} skipped\ntime: mean error {:.2f} %, median {:.2f} %, 90th "
      "percentile "
      "{:.2f} %, bias {:+.2f} %; Kendall tau {:.3f}\n",
      a.rows, a.modelled, a.rows - a.modelled, 100 * a.mean, 100 * a.median, 100 * a.p90,
      100 * a.bias, a.kendall_tau);
  if (a.memory_max > 0) {
    fmt::print("memory: mean error {:.2f} %, largest {:.2f} %\n", 100 * a.memory_mean,
               100 * a.memory_max);
  }
  return 0;
}

}  // namespace

void add_verify_predictions(CLI::App& verify, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* c = verify.add_subcommand(
      "predictions",
      "Prices published runs and compares with what was measured (docs/prediction.md)");
  c->add_option("FILE", o->files,
                "Measurements: columns of runs.csv, vtrain_*.csv, b200_8gpu.csv or nccl_*.csv")
      ->required()
      ->type_name("FILE.csv");
  c->add_option(
       "--cluster", o->cluster,
       "A cluster file or the name of a shipped one; default: what each row's hardware names")
      ->type_name("FILE");
  c->add_option("--ranks", o->ranks, "Ranks of an all-reduce table; default: _Ngpu in its name")
      ->type_name("N");
  c->add_option(
       "--rows", o->rows,
       "Of each file: all, K/N (every Nth row from K) or a part of the row's name; -ROWS: all "
       "others")
      ->delimiter(',')
      ->type_name("ROWS");
  c->add_option("--fit", o->fit,
                "Fits these constants of --cluster to the rows instead and prints them")
      ->delimiter(',')
      ->type_name("KEYS");
  c->add_flag("--quiet", o->quiet, "Prints no line a row");
  add_json(*c, o->json);
  add_examples(*c, {"myriad verify predictions tests/predictions/runs.csv",
                    "myriad verify predictions tests/predictions/vtrain_multi.csv --rows=-0/2",
                    "myriad verify predictions tests/predictions/vtrain_multi.csv --rows 0/2 "
                    "--cluster a100-80-vtrain --fit device.tiles,host.issue_seconds"});
  c->callback([o, &status] { status = run_predictions(*o); });
}

}  // namespace myriad
