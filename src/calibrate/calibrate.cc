// Fits the constants of a cluster to this machine, so that prices match measured times.
//
// The constants are found in an order that leaves little to guess: first the peak, from one large
// product; then the rates, efficiencies and network figures, by coordinate descent on the
// difference between the price of each step and its measured time; then what fp64 changes, with all
// else fixed. Figures that no step shows by itself come last and directly from medians: the cost of
// an action, the rate of a receive, and the time ranks wait for each other, which is added to the
// latencies; then the share of a rank's work that idle workers can take over. Read
// docs/calibrate.md for what the constants mean, then calibrate() at the end.
#include "calibrate/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "calibrate/timed.h"
#include "cluster/price.h"
#include "plan/fit.h"

namespace myriad {

namespace {

Cluster start(int workers) {
  Cluster c{.name = "laptop", .file = ""};
  c.device = {.name = "core",
              .memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                              static_cast<double>(sysconf(_SC_PAGESIZE)),
              .memory_bandwidth = 20e9,
              .peak_flops = {},
              .vector_flops = {{"fp32", 10e9}},
              .tiles = {{256, 256, 0.9}, {32, 32, 0.7}, {8, 8, 0.3}},
              .depth = 16,
              .attention_forward = 0.4,
              .attention_backward = 0.4,
              .launch_seconds = 5e-7,
              .exact_rate = 1e9};
  c.host.workers = workers;
  Level memory{.name = "memory"};
  memory.bandwidth.points[1] = 10e9;
  memory.latency.points[1] = 2e-6;
  memory.send_bandwidth = 10e9;
  c.levels = {memory};
  return c;
}

Pricing pricing_of(const char* dtype) {
  return {.dtype = dtype,
          .bytes = std::string(dtype) == "fp64" ? ByteMap::fp64() : ByteMap::fp32(),
          .fused = false,
          .scores = {}};
}

// For each program the sum of the errors of all steps over the sum of their times; the mean of that
// over the programs.
double loss(const std::vector<TimedProgram>& programs, const char* dtype, const Cluster& c) {
  double sum = 0;
  for (const TimedProgram& t : programs) {
    const Program& p = t.job->train().program;
    double error = 0, all = 0;
    for (const TimedBody& b : t.bodies) {
      const auto collective = [&](MoveKind what, AtomList atoms, double bytes, int rank) {
        return collective_seconds(c, what, bytes, shape_of(c, p.mesh.group(atoms, rank)),
                                  p.mesh.ranks())
            .seconds;
      };
      const BodyPrice price = price_body(c.device, pricing_of(dtype), p.mesh, p.bodies[b.body],
                                         b.rank, b.first, collective);
      for (size_t s = 0; s < b.seconds.size(); ++s) {
        error += b.runs * std::abs(price.steps[s].seconds - b.seconds[s]);
        all += b.runs * b.seconds[s];
      }
    }
    sum += error / all;
  }
  return sum / static_cast<double>(programs.size());
}

std::vector<Knob> knobs(const std::string& dtype) {
  const auto within_one = [](double& share, double f) { share = std::min(1.0, share * f); };
  std::vector<Knob> all = {{"device.vector_flops." + dtype, 0.01, 100,
                            [=](Cluster& c, double f) { c.device.vector_flops.at(dtype) *= f; }}};
  if (dtype == "fp64") {
    all.push_back({"device.peak_flops.fp64", 0.01, 100,
                   [](Cluster& c, double f) { c.device.peak_flops.at("fp64") *= f; }});
    return all;
  }
  const auto add = [&](const char* key, auto change) { all.push_back({key, 0.01, 100, change}); };
  add("device.memory_bandwidth", [](Cluster& c, double f) { c.device.memory_bandwidth *= f; });
  add("device.exact_rate", [](Cluster& c, double f) { c.device.exact_rate *= f; });
  add("device.launch_seconds", [](Cluster& c, double f) { c.device.launch_seconds *= f; });
  for (size_t i = 0; i < 3; ++i) {
    add("device.tiles", [=](Cluster& c, double f) { within_one(c.device.tiles[i].share, f); });
  }
  add("device.depth", [](Cluster& c, double f) { c.device.depth *= f; });
  add("device.attention_forward",
      [=](Cluster& c, double f) { within_one(c.device.attention_forward, f); });
  add("device.attention_backward",
      [=](Cluster& c, double f) { within_one(c.device.attention_backward, f); });
  add("levels.memory.bandwidth",
      [](Cluster& c, double f) { c.levels[0].bandwidth.points.at(1) *= f; });
  add("levels.memory.latency", [](Cluster& c, double f) { c.levels[0].latency.points.at(1) *= f; });
  return all;
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : x[x.size() / 2];
}

void set_messages(const std::vector<TimedProgram>& programs, Cluster& c) {
  std::vector<double> actions, rates;
  for (const TimedProgram& t : programs) actions.push_back(t.action_seconds);
  c.host.action_seconds = c.levels[0].send_latency = median(actions);
  for (const TimedProgram& t : programs) {
    for (const TimedMessage& m : t.messages)
      rates.push_back(m.bytes / std::max(1e-9, m.seconds - c.levels[0].send_latency));
  }
  if (!rates.empty()) c.levels[0].send_bandwidth = median(rates);
  std::vector<double> waits;
  for (const TimedProgram& t : programs) {
    if (t.wait_seconds > 0) waits.push_back(t.wait_seconds);
  }
  c.levels[0].latency.points.at(1) += median(waits);
  c.levels[0].send_latency += median(waits);
}

void tell(Cluster& c, const std::vector<Knob>& fitted) {
  const char* how = "myriad calibrate: times of the steps of small programs";
  for (const Knob& k : fitted) c.fitted[k.key] = how;
  for (const char* key :
       {"host.action_seconds", "levels.memory.send_latency", "levels.memory.send_bandwidth"})
    c.fitted[key] = "myriad calibrate: medians of actions and of received messages";
  c.fitted["host.parallel"] = "myriad calibrate: one rank on all workers against one";
  c.sources["device.peak_flops.fp32"] =
      "myriad calibrate: the best product of 1024 cubed on one core";
  c.sources["device.memory_bytes"] = "the system";
  c.sources["host.workers"] = "the system";
}

}  // namespace

Calibration calibrate(const CalibrateOptions& options) {
  Pool pool(1);
  const int workers = options.workers > 0
                          ? options.workers
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Cluster c = start(workers);
  c.device.peak_flops["fp32"] = matrix_rate(options.seconds / 10);
  const auto single = time_programs(pool, DType::f32, options.seconds * 0.6);
  const std::vector<Knob> of_single = knobs("fp32");
  descend(of_single, c, [&](const Cluster& x) { return loss(single, "fp32", x); });
  if (options.fp64) {
    c.device.peak_flops["fp64"] = c.device.peak_flops["fp32"] / 2;
    c.device.vector_flops["fp64"] = c.device.vector_flops["fp32"] / 2;
    const auto twice = time_programs(pool, DType::f64, options.seconds * 0.2);
    const std::vector<Knob> of_double = knobs("fp64");
    descend(of_double, c, [&](const Cluster& x) { return loss(twice, "fp64", x); });
    tell(c, of_double);
  }
  set_messages(single, c);
  c.host.parallel = parallel_share(workers, options.seconds * 0.1);
  tell(c, of_single);
  Calibration out{.cluster = c, .error = loss(single, "fp32", c)};
  for (const TimedProgram& t : single) {
    for (const TimedBody& b : t.bodies) out.steps += static_cast<int>(b.seconds.size());
  }
  return out;
}

Cluster this_machine(bool fp64) {
  const std::filesystem::path file = std::filesystem::path(user_clusters()) / "laptop.yaml";
  if (std::filesystem::is_regular_file(file)) return read_cluster(file);
  return calibrate({.seconds = 1, .fp64 = fp64}).cluster;
}

}  // namespace myriad
