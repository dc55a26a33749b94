// Formats what a run shows: the plan, the live line, and predictions against measurements.
//
// Almost everything here is a function from figures to text, so that tests can compare the text;
// only LiveLine at the end prints. Its line is overwritten in place by a carriage return and
// blanks, which needs no escape sequences, and is kept shorter than the terminal by leaving out
// figures in order of importance. Where output is no terminal it prints about 25 ordinary lines
// instead, and one for each evaluation. Read train/report.h first.
#include "train/report.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "kernels/fast/matrix.h"

namespace myriad {

std::string grouped(int64_t n) {
  std::string digits = fmt::format("{}", std::abs(n));
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return (n < 0 ? "-" : "") + digits;
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 5) bytes /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes)
                   : fmt::format("{:.{}f} {}", bytes, bytes < 100 ? 1 : 0, kUnits[unit]);
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
}

namespace {

std::string model_line(const RunConfig& c) {
  const ModelConfig& m = c.model;
  return fmt::format(
      "{}, hidden {}, {} layers, {} heads over {} kv heads of size {}, ffn {}, vocabulary {}, {} "
      "head: {} parameters, {}",
      write_config(m).at("model_type").get<std::string>(), m.hidden, m.layers, m.heads, m.kv_heads,
      m.head_dim, m.ffn, m.vocabulary, m.tied ? "tied" : "untied", grouped(parameter_count(m)),
      c.weights.empty() ? "random start" : "from " + c.weights);
}

std::string memory_lines(const std::vector<MemoryPlan>& memory) {
  constexpr size_t kListed = 16;
  std::string out;
  if (memory.size() <= kListed) {
    for (size_t r = 0; r < memory.size(); ++r) {
      out += fmt::format("  {}rank {:<3} {:>8} state, {:>8} in all\n",
                         r == 0 ? "memory   " : "         ", r,
                         bytes_text(static_cast<double>(memory[r].state_bytes)),
                         bytes_text(static_cast<double>(memory[r].peak_bytes)));
    }
    return out;
  }
  const auto [least, most] =
      std::minmax_element(memory.begin(), memory.end(),
                          [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
  return fmt::format("  memory   a rank from {} to {} in all (rank {} most)\n",
                     bytes_text(static_cast<double>(least->peak_bytes)),
                     bytes_text(static_cast<double>(most->peak_bytes)), most - memory.begin());
}

std::string expert_line(const RunConfig& c) {
  const MoeConfig& m = c.model.moe;
  if (m.experts == 0) return "";
  const RoutingConfig& r = m.routing;
  std::string out =
      fmt::format("  experts  {} of {} a token in {} layers, ffn {}, {} shared; ", m.top_k,
                  m.experts, c.model.expert_layers(), m.expert_ffn, m.shared_experts);
  out += r.capacity_factor > 0 ? fmt::format("capacity {}", r.capacity_factor) : "dropless";
  if (r.load_balance > 0) out += fmt::format(", load-balancing loss {}", r.load_balance);
  if (r.z > 0) out += fmt::format(", z-loss {}", r.z);
  if (r.bias_update_rate > 0) out += fmt::format(", bias update {}", r.bias_update_rate);
  return out + fmt::format("; ep {} x etp {}, rows of {} x an even share a round\n", c.plan.ep,
                           c.plan.etp, c.plan.expert_rows_bound);
}

std::string predicted_line(const StepProfile& p) {
  if (p.ops.empty()) return "known once the tokens have chosen their experts";
  std::string out = fmt::format("{:.2f} GFLOP", p.flops / 1e9);
  for (const auto& [kind, count] : p.collectives) {
    out += fmt::format("; {} {} in {} messages", kind, bytes_text(static_cast<double>(count.bytes)),
                       grouped(count.messages));
  }
  return out;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// "corpus.jsonl", or "web 7 : books 3".
std::string source_names(const DataConfig& d) {
  if (d.sources.size() == 1) return d.sources[0].path;
  const std::vector<int64_t> weights = whole_weights(d.weights(), "data.sources");
  std::string out;
  for (size_t i = 0; i < weights.size(); ++i)
    out += fmt::format("{}{} {}", i ? " : " : "", d.sources[i].name, weights[i]);
  return out;
}

// "1.20 epochs", or "0.93 epochs of web, 2.10 of books".
std::string epochs_text(const RunConfig& c, const TextData& text) {
  const std::vector<int64_t> weights = whole_weights(c.data.weights(), "data.sources");
  const auto sum = static_cast<double>(std::accumulate(weights.begin(), weights.end(), int64_t{0}));
  const auto tokens = static_cast<double>(c.train.steps * c.train.tokens_per_step);
  std::string out;
  for (size_t i = 0; i < weights.size(); ++i) {
    out +=
        fmt::format("{}{:.2f}{}{}", i ? ", " : "",
                    tokens * static_cast<double>(weights[i]) / sum /
                        static_cast<double>(text.training[i].tokens()),
                    i ? "" : " epochs", weights.size() > 1 ? " of " + c.data.sources[i].name : "");
  }
  return out;
}

}  // namespace

std::string products_text(DType dtype) {
  if (dtype != DType::bf16) return matrix_library();
  return fmt::format("{}{}", matrix_library(),
                     bf16_products() ? ", bf16 as it is" : ", bf16 widened to fp32");
}

std::string plan_text(const RunConfig& c, Job& job, const TextData& text, const MatrixPeak& peak,
                      int workers) {
  const TextData::Totals training = text.totals();
  std::string out =
      fmt::format("{}\n  layout   {}: {} rank{} on {} worker{}\n", c.name, show(c.plan),
                  c.plan.ranks(), c.plan.ranks() == 1 ? "" : "s", workers, workers == 1 ? "" : "s");
  out += "  model    " + model_line(c) + "\n" + expert_line(c);
  out += fmt::format(
      "  data     {}: {} documents to train on ({}, {} tokens), {} held out ({}, {} tokens)\n",
      source_names(c.data), grouped(training.documents),
      bytes_text(static_cast<double>(training.text_bytes)), grouped(training.tokens),
      grouped(text.held_out.documents()),
      bytes_text(static_cast<double>(text.held_out.text_bytes())), grouped(text.held_out.tokens()));
  out += fmt::format("  steps    {} of {} rows x {} = {} tokens: {} tokens, {}\n",
                     grouped(c.train.steps), c.rows(), c.train.sequence_length,
                     grouped(c.train.tokens_per_step),
                     grouped(c.train.steps * c.train.tokens_per_step), epochs_text(c, text));
  out += memory_lines(job.train().memory);
  out += "  a step   " + predicted_line(job.predicted()) + "\n";
  out += fmt::format(
      "  kernels  {}, {}, products by {}; peak here {:.1f} GFLOP/s ({}, fp32, 2048 cubed)\n",
      c.train.kernels == KernelSet::fast ? "fast" : "reference", text_of(c.train.dtype),
      products_text(c.train.dtype), peak.flops_per_s / 1e9, peak.library);
  return out;
}

std::vector<std::string> plan_warnings(const RunConfig& c) {
  return warnings(c.plan, cut_sizes(c.model, c.rows(), c.train.sequence_length));
}

std::vector<std::string> run_warnings(const RunConfig& c, const TextData& text) {
  const ModelConfig& m = c.model;
  std::vector<std::string> out = plan_warnings(c);
  if (text.tokenizer->vocabulary() < m.vocabulary) {
    out.push_back(
        fmt::format("the text gives a tokenizer of {} tokens only; the model keeps its vocabulary "
                    "of {}, {:.0f} % of which is never used",
                    text.tokenizer->vocabulary(), m.vocabulary,
                    100.0 * (1 - static_cast<double>(text.tokenizer->vocabulary()) /
                                     static_cast<double>(m.vocabulary))));
  }
  return out;
}

namespace {

// The counts of one kind of collective, with their names.
std::vector<std::pair<std::string, int64_t>> figures(const Count& c) {
  return {{"bytes", c.bytes},
          {"messages", c.messages},
          {"between_nodes_bytes", c.between_nodes_bytes},
          {"between_nodes_rows", c.between_nodes_rows}};
}

}  // namespace

std::string first_difference(const StepProfile& p, const StepProfile& m) {
  if (p.flops != m.flops)
    return fmt::format("flops: predicted {:.0f}, measured {:.0f}", p.flops, m.flops);
  std::map<std::string, Count> kinds = p.collectives;
  kinds.insert(m.collectives.begin(), m.collectives.end());
  for (const auto& [kind, ignored] : kinds) {
    const auto of = [&](const StepProfile& s) {
      const auto at = s.collectives.find(kind);
      return at == s.collectives.end() ? Count{} : at->second;
    };
    const auto a = figures(of(p)), b = figures(of(m));
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].second != b[i].second)
        return fmt::format("{} {}: predicted {}, measured {}", kind, a[i].first, a[i].second,
                           b[i].second);
    }
  }
  if (p.peak_bytes.size() != m.peak_bytes.size())
    return fmt::format("ranks: predicted {}, measured {}", p.peak_bytes.size(),
                       m.peak_bytes.size());
  for (size_t r = 0; r < p.peak_bytes.size(); ++r) {
    if (p.peak_bytes[r] != m.peak_bytes[r])
      return fmt::format("peak bytes of rank {}: predicted {}, measured {}", r, p.peak_bytes[r],
                         m.peak_bytes[r]);
  }
  return "";
}

std::string comparison_table(const StepProfile& p, const StepProfile& m) {
  std::string out = fmt::format("  {:<34}{:>18}{:>18}\n", "a step", "predicted", "measured");
  const auto row = [&](const std::string& name, int64_t a, int64_t b) {
    out += fmt::format("  {:<34}{:>18}{:>18}{}\n", name, grouped(a), grouped(b),
                       a == b ? "" : "  differs");
  };
  row("FLOPs", static_cast<int64_t>(p.flops), static_cast<int64_t>(m.flops));
  std::map<std::string, Count> kinds = p.collectives;
  kinds.insert(m.collectives.begin(), m.collectives.end());
  for (const auto& [kind, ignored] : kinds) {
    const Count a = p.collectives.count(kind) ? p.collectives.at(kind) : Count{},
                b = m.collectives.count(kind) ? m.collectives.at(kind) : Count{};
    row(kind + " bytes", a.bytes, b.bytes);
    row(kind + " messages", a.messages, b.messages);
    if (a.between_nodes_bytes > 0 || b.between_nodes_bytes > 0)
      row(kind + " bytes between nodes", a.between_nodes_bytes, b.between_nodes_bytes);
    if (a.between_nodes_rows > 0 || b.between_nodes_rows > 0)
      row(kind + " rows between nodes", a.between_nodes_rows, b.between_nodes_rows);
  }
  constexpr size_t kListed = 16;
  for (size_t r = 0; r < std::min({kListed, p.peak_bytes.size(), m.peak_bytes.size()}); ++r) {
    row(fmt::format("peak bytes, rank {}", r), p.peak_bytes[r], m.peak_bytes[r]);
  }
  return out;
}

double LayerLoad::max_over_mean() const {
  const int64_t sum = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  if (sum == 0) return 0;
  return static_cast<double>(*std::max_element(tokens.begin(), tokens.end())) *
         static_cast<double>(tokens.size()) / static_cast<double>(sum);
}

int64_t LayerLoad::dead() const { return std::count(tokens.begin(), tokens.end(), 0); }

std::vector<LayerLoad> expert_loads(const StepResult& result, const std::map<int, int>& rounds) {
  std::vector<LayerLoad> loads;
  for (const auto& [unit, tokens] : result.tokens_per_expert) {
    const auto dropped = result.dropped.find(unit);
    const auto taken = rounds.find(unit);
    loads.push_back({.layer = unit - 1,
                     .tokens = tokens,
                     .dropped = dropped == result.dropped.end() ? 0 : dropped->second,
                     .rounds = taken == rounds.end() ? 1 : taken->second});
  }
  return loads;
}

std::string load_table(const std::vector<LayerLoad>& loads) {
  constexpr size_t kListed = 16;
  std::string out = "  layer  max/mean  dead  dropped  rounds  tokens per expert";
  for (const LayerLoad& l : loads) {
    const size_t n = std::min(kListed, l.tokens.size());
    out += fmt::format(
        "\n  {:>5}  {:>8.2f}  {:>4}  {:>7}  {:>6}  {}{}", l.layer, l.max_over_mean(), l.dead(),
        l.dropped, l.rounds,
        fmt::join(l.tokens.begin(), l.tokens.begin() + static_cast<std::ptrdiff_t>(n), " "),
        n < l.tokens.size() ? " ..." : "");
  }
  return out;
}

namespace {

size_t columns(std::FILE* terminal) {
  winsize size{};
  if (ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 1) return size.ws_col;
  return 80;
}

}  // namespace

std::string progress_text(const LiveFigures& f, size_t width) {
  struct Part {
    int rank;  // the highest are left out first, 0 never
    std::string text;
  };
  std::vector<Part> parts = {
      {0, fmt::format("step {:>{}}/{}", f.step, fmt::formatted_size("{}", f.steps), f.steps)},
      {1, fmt::format("loss {:.3f}", f.loss)},
      {3, f.bits_per_byte < 0 ? "held-out - bits/byte"
                              : fmt::format("held-out {:.3f} bits/byte", f.bits_per_byte)},
      {6, fmt::format("norm {:.2f}", f.norm)},
      {7, fmt::format("lr {:.1e}", f.learning_rate)},
      {4, fmt::format("{} tokens/s", grouped(std::llround(f.tokens_per_second)))},
      {5, fmt::format("MFU {:.1f} %", 100 * f.mfu)},
      {2, fmt::format("{} left", duration_text(f.seconds_left))}};
  for (int rank = 8;; --rank) {
    std::string line;
    for (const Part& p : parts) {
      if (p.rank < rank) line += (line.empty() ? "" : "  ") + p.text;
    }
    if (line.size() <= width || rank == 1) return line.substr(0, width);
  }
}

void LiveLine::show(const LiveFigures& f, bool evaluated) {
  if (console_.quiet) return;
  const int64_t every = std::max<int64_t>(1, f.steps / 25);
  if (!console_.live && f.step != 1 && f.step != f.steps && f.step % every != 0 && !evaluated)
    return;
  if (console_.live && open_ && f.step != f.steps && !evaluated && now() - shown_at_ < 0.1) return;
  const std::string line =
      progress_text(f, console_.live ? columns(console_.out) - 1 : std::string::npos);
  if (console_.live) {  // blanks cover what is left of a longer line
    fmt::print(console_.out, "\r{:<{}}", line,
               open_ ? std::min(shown_, columns(console_.out) - 1) : 0);
  } else {
    fmt::print(console_.out, "{}\n", line);
  }
  shown_ = line.size();
  std::fflush(console_.out);
  open_ = console_.live;
  shown_at_ = now();
}

void LiveLine::say(const std::string& line) {
  end();
  fmt::print(console_.out, "{}\n", line);
  std::fflush(console_.out);
}

void LiveLine::note(const std::string& line) {
  if (!console_.quiet) say(line);
}

void LiveLine::end() {
  if (open_) fmt::print(console_.out, "\n");
  open_ = false;
}

}  // namespace myriad
