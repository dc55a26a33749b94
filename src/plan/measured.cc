// Reads tables of published measurements. Each source has columns of its own, so each has a
// function (from_runs, from_vtrain, ...) that makes a Measured of a row: the model, the plan, and
// what was measured. What a row does not say is filled in from the paper that the row cites; a row
// that this cannot describe is kept with the reason (`skipped`), so that nothing is left out
// silently.
#include "plan/measured.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <regex>

#include "base/error.h"

namespace myriad {

namespace {

using Fields = std::map<std::string, std::string>;

double number(const Fields& row, const std::string& key, double otherwise = 0) {
  const auto at = row.find(key);
  double x = otherwise;
  if (at != row.end()) {
    std::from_chars(at->second.data(), at->second.data() + at->second.size(), x);
  }
  return x;
}
int64_t whole(const Fields& row, const std::string& key, int64_t otherwise = 0) {
  return static_cast<int64_t>(number(row, key, static_cast<double>(otherwise)));
}
bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

ModelConfig gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn, int64_t vocabulary,
                int64_t sequence) {
  return {.family = Family::gpt2,
          .hidden = hidden,
          .layers = layers,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .ffn = ffn,
          .vocabulary = vocabulary,
          .positions = sequence,
          .norm_eps = 1e-5,
          .tied = true};
}

// Sets run.plan, or says why the layout is not one of ours.
void set_plan(Measured& m, Plan plan, int64_t micro_batch, int64_t rows) {
  if (!m.skipped.empty()) return;
  const int64_t together = micro_batch * plan.dp;
  if (together < 1 || rows % together != 0) {
    m.skipped = fmt::format("batch {} is not a whole number of micro-batches of {} on dp {}", rows,
                            micro_batch, plan.dp);
    return;
  }
  plan.micro_batches = static_cast<int>(rows / together);
  m.run.rows = rows;
  try {
    m.run.plan = resolve(plan, static_cast<int>(m.run.model.layers), rows);
  } catch (const Error& e) {
    m.skipped = e.what();
  }
}

// FLOPs of the step as most sources count them, with full attention. Hardware FLOPs count the
// forward pass of the layers once more.
double counted_flops(const Measured& m, bool hardware) {
  const Workload w = workload_of(m.run);
  const double head = 6 * w.tokens * static_cast<double>(m.run.model.vocabulary) *
                      static_cast<double>(m.run.model.hidden);
  return hardware ? (w.model_flops_full_attention - head) * 4 / 3 + head
                  : w.model_flops_full_attention;
}

std::string cluster_of(const Fields& row) {
  const std::string& a = row.at("accelerator");
  if (has(a, "A100-80G")) {
    const double link = number(row, "inter_bw_Gbps_per_device", 200);
    return link > 150 ? "a100-80-selene" : "a100-80-vtrain";
  }
  if (has(a, "H100")) return "h100";
  if (has(a, "H200")) return "h200";
  if (has(a, "H800")) return "h800";
  if (has(a, "V100")) return "v100";
  if (a.rfind("B200", 0) == 0) return "b200";
  if (has(a, "Ascend-910B")) return "ascend-910b";
  if (has(a, "Ascend-910C")) return "ascend-910c";
  return "";
}

std::string why_not(const Fields& row, const std::string& cluster) {
  const auto is = [&](const char* key, const char* value) { return row.at(key) == value; };
  if (!is("verified", "y") || !is("sim_ready", "y")) {
    return fmt::format("verified is {}, sim_ready is {}", row.at("verified"), row.at("sim_ready"));
  }
  if (cluster.empty()) return fmt::format("no shipped cluster for {}", row.at("accelerator"));
  if (whole(row, "moe_experts") > 0) return "experts: their spread over ranks is not in the row";
  if (!is("ffn_kind", "gelu") && !is("ffn_kind", "swiglu")) return "ffn is " + row.at("ffn_kind");
  if (!is("attn_kind", "mha") && !is("attn_kind", "gqa"))
    return "attention is " + row.at("attn_kind");
  if (has(row.at("precision"), "fp8")) return "precision is " + row.at("precision");
  if (row.at("zero_stage").find("shard group") != std::string::npos ||
      has(row.at("zero_stage"), "hybrid"))
    return "sharding in groups: " + row.at("zero_stage");
  return "";
}

void set_seconds(Measured& m, const Fields& row) {
  const double devices = number(row, "devices");
  const double step = number(row, "measured_step_time_s");
  const double rate = number(row, "measured_tokens_per_s_per_device");
  const double tflops = number(row, "measured_tflops_per_device");
  const double mfu = number(row, "measured_mfu_pct"), peak = number(row, "accel_peak_tflops_bf16");
  const double tokens = static_cast<double>(m.run.rows * m.run.sequence);
  const bool hardware = has(row.at("notes"), "HARDWARE") || has(row.at("notes"), "hardware TFLOP");
  if (step > 0) {
    m.step_seconds = step;
  } else if (rate > 0) {
    m.step_seconds = tokens / rate / devices;
  } else if (tflops > 0) {
    m.step_seconds = counted_flops(m, hardware) / (tflops * 1e12 * devices);
  } else if (mfu > 0 && peak > 0) {
    m.step_seconds = counted_flops(m, false) / (mfu / 100 * peak * 1e12 * devices);
  } else {
    m.skipped = "no step time, rate, TFLOP/s or MFU";
  }
}

Measured from_run(const Fields& row) {
  Measured m{.id = row.at("id"), .framework = row.at("framework"), .cluster = cluster_of(row)};
  m.skipped = why_not(row, m.cluster);
  if (!m.skipped.empty()) return m;
  const int64_t hidden = whole(row, "hidden"), heads = whole(row, "heads");
  m.run.sequence = whole(row, "seq_len");
  m.run.model = gpt(whole(row, "layers"), hidden, heads, whole(row, "ffn_hidden", 4 * hidden),
                    whole(row, "vocab", 51200), m.run.sequence);
  m.run.model.head_dim = whole(row, "head_dim", hidden / heads);
  m.run.model.kv_heads = whole(row, "kv_heads", heads);
  if (row.at("ffn_kind") == "swiglu") {
    m.run.model.family = Family::llama;
    m.run.model.tied = false;
  } else if (m.run.model.kv_heads != heads) {
    m.skipped = "gelu with grouped queries";
  }
  m.selective = row.at("recompute") == "selective";
  const std::string& z = row.at("zero_stage");
  const size_t digit = z.find_first_of("0123");
  const auto n = [&](const char* key) { return static_cast<int>(whole(row, key, 1)); };
  Plan plan{.dp = n("dp"), .cp = n("cp"), .tp = n("tp"), .pp = n("pp"), .vpp = n("vpp")};
  plan.zero = digit == std::string::npos ? -1 : z[digit] - '0';
  plan.sp = row.at("sequence_parallel") == "y";
  plan.recompute = row.at("recompute") == "full" ? Recompute::full : Recompute::none;
  m.group = fmt::format("{} {} {} {}", row.at("model_name"), row.at("devices"), m.run.sequence,
                        row.at("global_batch"));
  if (plan.zero < 0) plan.zero = 1;
  if (plan.ranks() != whole(row, "devices")) {
    m.skipped = fmt::format("dp {} x cp {} x tp {} x pp {} is not {} devices", plan.dp, plan.cp,
                            plan.tp, plan.pp, row.at("devices"));
  }
  set_plan(m, plan, whole(row, "micro_batch", 1), whole(row, "global_batch"));
  if (m.skipped.empty()) set_seconds(m, row);
  return m;
}

Measured from_vtrain(const Fields& row, size_t index) {
  const int64_t hidden = whole(row, "hidden size"), sequence = whole(row, "sequence length");
  const auto n = [&](const char* key) { return static_cast<int>(whole(row, key, 1)); };
  Measured m{.id = fmt::format("row {}", index + 1),
             .framework = "Megatron-DeepSpeed",
             .cluster = "a100-80-vtrain"};
  m.run.sequence = sequence;
  m.run.model = gpt(whole(row, "# layers"), hidden, whole(row, "attention heads"), 4 * hidden,
                    51200, sequence);
  m.step_seconds = number(row, "iteration time (ms)") / 1e3;
  const Plan plan{.dp = n("data parallelism"),
                  .tp = n("tensor parallelism"),
                  .pp = n("pipeline parallelism"),
                  .zero = 1,
                  .recompute = Recompute::full};
  m.group = fmt::format("h{} l{} a{} s{} {} GPUs batch {}", hidden, m.run.model.layers,
                        m.run.model.heads, sequence, plan.ranks(), whole(row, "global batch"));
  set_plan(m, plan, whole(row, "micro batch"), whole(row, "global batch"));
  return m;
}

// llama3_70b_l12_tp4_pp1_dp2_mbc8_cef
Measured from_b200(const Fields& row) {
  Measured m{.id = row.at("case"), .framework = "Megatron-Core", .cluster = "b200"};
  const auto after = [&](const char* key, int64_t otherwise) {
    std::smatch found;
    const std::regex pattern(fmt::format("(^|_){}(\\d+)(_|$)", key));
    return std::regex_search(m.id, found, pattern) ? std::stoll(found[2]) : otherwise;
  };
  m.step_seconds = number(row, "measured_step_ms") / 1e3;
  m.peak_bytes = static_cast<int64_t>(number(row, "measured_peak_alloc_GiB") * 1073741824.0);
  const bool large = has(m.id, "405b");
  if (!has(m.id, "llama3")) m.skipped = "latent attention (DeepSeek)";
  m.run.sequence = after("seq", 4096);
  m.run.model = {.family = Family::llama,
                 .hidden = large ? 16384 : 8192,
                 .layers = after("l", large ? 4 : 12),
                 .heads = large ? 128 : 64,
                 .kv_heads = 8,
                 .head_dim = 128,
                 .ffn = large ? 53248 : 28672,
                 .vocabulary = 128256,
                 .norm_eps = 1e-5};
  const auto n = [&](const char* key) { return static_cast<int>(after(key, 1)); };
  Plan plan{.dp = n("dp"), .cp = n("cp"), .tp = n("tp"), .pp = n("pp"), .vpp = n("vp"), .zero = 1};
  plan.sp = plan.tp > 1;
  const int64_t rows = after("mbc", 1) * plan.dp;
  m.group = fmt::format("{} l{} s{} batch {}", large ? "405b" : "70b", m.run.model.layers,
                        m.run.sequence, rows);
  set_plan(m, plan, 1, rows);
  return m;
}

}  // namespace

std::vector<Measured> read_measured(const std::string& file) {
  const auto rows = read_csv(file);
  if (rows.empty()) throw Error("has no rows", file);
  const Fields& first = rows[0];
  std::vector<Measured> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (first.count("measured_tflops_per_device")) {
      out.push_back(from_run(rows[i]));
    } else if (first.count("iteration time (ms)")) {
      out.push_back(from_vtrain(rows[i], i));
    } else if (first.count("measured_peak_alloc_GiB")) {
      out.push_back(from_b200(rows[i]));
    } else if (first.count("out_of_place_ns")) {
      Measured m{.id = rows[i].at("bytes"), .group = "all_reduce"};
      m.cluster = has(std::filesystem::path(file).filename(), "v100") ? "v100" : "a100-80-vtrain";
      m.message_bytes = whole(rows[i], "bytes");
      m.step_seconds = number(rows[i], "out_of_place_ns") / 1e9;
      out.push_back(std::move(m));
    } else {
      throw Error("is no file of measurements", file,
                  "columns as runs.csv, vtrain_*.csv, b200_8gpu.csv or nccl_*.csv");
    }
  }
  return out;
}

}  // namespace myriad
