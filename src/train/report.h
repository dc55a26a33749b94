// What a run shows on the terminal: the plan before, a live line during, predicted against measured
// after.
#pragma once

#include <cstdio>
#include <string>

#include "train/job.h"
#include "train/peak.h"
#include "train/run_config.h"
#include "train/text_data.h"

namespace myriad {

struct Console {
  std::FILE* out = stdout;  // standard error when standard output carries JSON
  bool quiet = false;       // only warnings, failures and the last lines
  bool live = false;        // a terminal: one line that changes
};

// Texts for people: "1,234,567", "12.3 MB", "2 min 5 s".
std::string grouped(int64_t n);
std::string bytes_text(double bytes);
std::string duration_text(double seconds);

// What multiplies matrices of the type: "onednn, bf16 as it is".
std::string products_text(DType dtype);
std::string plan_text(const RunConfig& config, Job& job, const TextData& text,
                      const MatrixPeak& peak, int workers);
std::vector<std::string> plan_warnings(const RunConfig& config);  // warnings() of ir/plan.h
std::vector<std::string> run_warnings(const RunConfig& config, const TextData& text);

// "all_gather bytes: predicted 10, measured 12"; empty if flops, collectives and peaks are equal.
std::string first_difference(const StepProfile& predicted, const StepProfile& measured);
std::string comparison_table(const StepProfile& predicted, const StepProfile& measured);

// How the tokens of a step spread over the experts of one layer.
struct LayerLoad {
  int layer = 0;
  std::vector<int64_t> tokens;  // by expert, choices of the step
  int64_t dropped = 0;
  int rounds = 1;                // most that a rank took in a micro-batch
  double max_over_mean() const;  // 1 is even; 0 without tokens
  int64_t dead() const;          // experts without a token
};
// rounds: by unit.
std::vector<LayerLoad> expert_loads(const StepResult& result, const std::map<int, int>& rounds);
std::string load_table(const std::vector<LayerLoad>& loads);

struct LiveFigures {
  int64_t step = 0, steps = 0;
  double loss = 0, bits_per_byte = -1;  // -1: not evaluated yet
  double norm = 0, learning_rate = 0, tokens_per_second = 0, mfu = 0, seconds_left = 0;
};

// The figures in at most `width` columns, the least important left out first.
std::string progress_text(const LiveFigures& figures, size_t width);

// A line that replaces itself on a terminal, cut to its width; elsewhere a line every few per cent
// of the steps. No colours and no escape sequences.
class LiveLine {
 public:
  explicit LiveLine(const Console& console) : console_(console) {}
  ~LiveLine() { end(); }
  void show(const LiveFigures& figures, bool evaluated);
  void say(const std::string& line);   // a line of its own, quiet or not
  void note(const std::string& line);  // not when quiet
  void end();                          // leaves the line as it is

 private:
  const Console console_;
  bool open_ = false;
  size_t shown_ = 0;  // columns of the line that stands there
  double shown_at_ = 0;
};

}  // namespace myriad
