// Shows a finished simulation: as JSON with the keys of docs/simulator.md, as text for a terminal,
// and as a timeline in Chrome's trace format. Nothing is computed here except device-hours, the
// memory that is left and the average cost of uneven loads. In the timeline a stage is one thread,
// shown by one rank, and actions that take no time are left out. The categories of its bars are
// those of the timelines of real runs (train/timeline.cc), so that both can be compared.
#include "machine/simulate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/print.h"

namespace myriad {

namespace {

using nlohmann::json;

json kinds_json(const MemoryPlan::Kinds& k) {
  return {{"parameters", k.parameters},
          {"gradients", k.gradients},
          {"moments", k.moments},
          {"activations", k.activations},
          {"communication", k.communication},
          {"workspace", k.workspace}};
}

double device_hours(const Simulation& s, double tokens) {
  return s.tokens_per_second > 0
             ? tokens / s.tokens_per_second * static_cast<double>(s.ranks) / 3600
             : 0;
}

json costs_json(const Costs& costs) {
  json out = json::object();
  for (int c = 0; c < kCosts; ++c) {
    if (costs[c] > 0) out[name_of(static_cast<Cost>(c))] = costs[c];
  }
  return out;
}

// For each layer with experts its number, counted from 0, and the seconds that uneven loads cost it
// in a step.
json imbalance_json(const StageResult& stage) {
  json out = json::array();
  for (const auto& [unit, seconds] : stage.imbalance_seconds)
    out.push_back({{"layer", unit - 1}, {"seconds", seconds}});
  return out;
}

// What uneven loads cost the slowest stage: its average layer, and all its layers together.
std::string imbalance_line(const StageResult& stage) {
  double sum = 0;
  for (const auto& [unit, seconds] : stage.imbalance_seconds) sum += seconds;
  if (sum <= 0) return "";
  return fmt::format("uneven loads of experts on it: {} a layer and step, {} in all\n",
                     show_seconds(sum / static_cast<double>(stage.imbalance_seconds.size())),
                     show_seconds(sum));
}

}  // namespace

std::string show_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  return bytes >= 1e6 ? fmt::format("{:.2f} MB", bytes / 1e6)
                      : fmt::format("{:.1f} kB", bytes / 1e3);
}

std::string show_seconds(double s) {
  if (s >= 1) return fmt::format("{:.3f} s", s);
  return s >= 1e-3 ? fmt::format("{:.2f} ms", s * 1e3) : fmt::format("{:.1f} us", s * 1e6);
}

json to_json(const Simulation& s, double token_budget) {
  json peaks = json::object(), stages = json::array();
  for (size_t i = 0; i < s.stages.size(); ++i) {
    const StageResult& stage = s.stages[i];
    peaks[std::to_string(i)] = stage.peak_bytes;
    stages.push_back({{"stage", i},
                      {"useful_seconds", stage.useful_seconds},
                      {"update_seconds", stage.update_seconds},
                      {"idle_seconds", stage.idle_seconds},
                      {"seconds", costs_json(stage.seconds)},
                      {"expert_imbalance", imbalance_json(stage)},
                      {"peak_bytes", stage.peak_bytes},
                      {"memory", kinds_json(stage.memory)}});
  }
  json out = {{"ranks", s.ranks},
              {"step_seconds", s.step_seconds},
              {"bubble", s.bubble},
              {"mfu", s.mfu},
              {"mfu_full_attention", s.mfu_full_attention},
              {"hfu", s.hfu},
              {"tokens_per_second", s.tokens_per_second},
              {"exposed_communication_seconds", s.exposed_communication_seconds},
              {"peak_bytes", peaks},
              {"memory_limit_bytes", s.memory_limit_bytes},
              {"fits", s.fits},
              {"memory_left_bytes", s.memory_limit_bytes - s.memory_needed_bytes},
              {"slowest_stage", s.slowest_stage},
              {"stages", stages},
              {"critical_path_seconds", costs_json(s.critical)},
              {"rank_classes", s.classes},
              {"warnings", s.warnings}};
  if (token_budget > 0) {
    out["token_budget"] = token_budget;
    out["device_hours"] = device_hours(s, token_budget);
  }
  return out;
}

std::string to_text(const Simulation& s, const Program& program, const Cluster& cluster,
                    double token_budget) {
  std::string out = fmt::format(
      "{} ranks on {}: step {}, {:.0f} tokens/s, MFU {:.1f} % ({:.1f} % with full attention), HFU "
      "{:.1f} %\n",
      s.ranks, cluster.name, show_seconds(s.step_seconds), s.tokens_per_second, 100 * s.mfu,
      100 * s.mfu_full_attention, 100 * s.hfu);
  out += fmt::format("bubble {:.2f} % of useful time; slowest stage {}\n", 100 * s.bubble,
                     s.slowest_stage);
  if (!s.exposed_communication_seconds.empty()) out += "exposed communication on it:";
  for (const auto& [kind, seconds] : s.exposed_communication_seconds)
    out += fmt::format(" {} {}", kind, show_seconds(seconds));
  out += s.exposed_communication_seconds.empty() ? "" : "\n";
  out += imbalance_line(s.stages[s.slowest_stage]);
  out +=
      "stage    useful    update      idle | peak         parameters  gradients   moments     "
      "activations communic.   workspace\n";
  for (int i = 0; i < program.stages; ++i) {
    const StageResult& t = s.stages[i];
    const MemoryPlan::Kinds& k = t.memory;
    out += fmt::format("{:5} {:>9} {:>9} {:>9} | {:<12}", i, show_seconds(t.useful_seconds),
                       show_seconds(t.update_seconds), show_seconds(t.idle_seconds),
                       show_bytes(static_cast<double>(t.peak_bytes)));
    for (int64_t b :
         {k.parameters, k.gradients, k.moments, k.activations, k.communication, k.workspace}) {
      out += fmt::format(" {:<11}", show_bytes(static_cast<double>(b)));
    }
    out += "\n";
  }
  const double left = static_cast<double>(s.memory_limit_bytes - s.memory_needed_bytes);
  out += s.fits ? fmt::format("fits: {} left of {}\n", show_bytes(left),
                              show_bytes(static_cast<double>(s.memory_limit_bytes)))
                : fmt::format("does not fit: {} more than {}\n", show_bytes(-left),
                              show_bytes(static_cast<double>(s.memory_limit_bytes)));
  if (token_budget > 0) {
    out += fmt::format("{:.4g} tokens take {:.1f} days, {:.0f} device-hours\n", token_budget,
                       token_budget / s.tokens_per_second / 86400, device_hours(s, token_budget));
  }
  for (const std::string& w : s.warnings) out += "warning: " + w + "\n";
  return out;
}

namespace {

// What a bar shows, in the words of train/timeline.cc.
const char* category_of(const Action& action, const Program& program) {
  if (action.act != Act::run) return name_of(action.act);
  const BodyRole role = program.bodies[action.body].role;
  return is_optimizer(role) ? "optimizer" : is_backward(role) ? "backward" : "forward";
}

}  // namespace

std::string chrome_trace(const Simulation& s, const Program& program) {
  std::string out = "{\"traceEvents\":[\n";
  for (int i = 0; i < program.stages; ++i) {
    out += fmt::format(
        "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":{},\"args\":{{\"name\":\"stage "
        "{} (rank {})\"}}}},\n",
        i, i, s.stages[i].rank);
    for (size_t a = 0; a < s.stages[i].actions.size(); ++a) {
      const Action& action = program.actions[i][a];
      const Span& t = s.stages[i].actions[a];
      if (t.end <= t.start) continue;
      const std::string name =
          action.act == Act::run ? program.bodies[action.body].name : name_of(action.act);
      out += fmt::format(
          "{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{:.3f},\"dur\":{:."
          "3f},\"args\":{{\"unit\":{},\"micro_batch\":{}}}}},\n",
          json(name).dump(), category_of(action, program), i, t.start * 1e6,
          (t.end - t.start) * 1e6, action.unit, action.micro_batch);
    }
  }
  return out +
         "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"predicted\"}}\n]}"
         "\n";
}

}  // namespace myriad
