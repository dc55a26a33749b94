// The training loop. A run makes its parts (workers, programs, text, rows), tells what it is going
// to do, takes its steps, and leaves a folder. After every step it holds what the step did against
// what was predicted of it, and says so once if they differ. The loop decides when something
// happens; how it happens lies in other files: run_parts.h makes the parts, run_folder.h writes the
// files of the run, evaluation.h measures the model and lets it write, resume.h and checkpoint.h go
// on from checkpoints and make them, report.h shows it all on the terminal. Read train/trainer.h
// first, then train/run_parts.h, then Run::run and Run::step.
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>

#include "base/error.h"
#include "ckpt/shards.h"
#include "data/files.h"
#include "machine/simulate_report.h"
#include "train/checkpoint.h"
#include "train/evaluation.h"
#include "train/forecast.h"
#include "train/plan_json.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/run_parts.h"
#include "train/timeline.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// True for every `every`-th step and for the last one; an `every` of 0 means the last one alone.
bool is_due(int64_t step, int64_t every, int64_t last) {
  return step == last || (every > 0 && step % every == 0);
}

// How long things take, to tell how long the rest will take.
struct Pace {
  std::vector<double> steps;  // seconds of each step
  double recent = 0;          // seconds of a step, smoothed
  double evaluation = 0;      // seconds of the last one
};

double seconds_left(const Pace& pace, const TrainConfig& train, int64_t step) {
  const int64_t every = train.evaluate_every, left = train.steps - step;
  const double evaluations =
      static_cast<double>(every > 0 ? left / every + (left % every != 0) : left > 0);
  return pace.recent * static_cast<double>(left) + evaluations * pace.evaluation;
}

// Takes a step and notes how many rounds the experts of each unit took, in the micro-batch and on
// the rank that took most.
StepResult take_step(Job& job, const Batch& batch, const StepScalars& scalars,
                     std::map<int, int>& rounds) {
  if (job.config().model.moe.experts == 0) return job.step(batch, scalars);
  std::mutex mutex;
  job.set_tap([&](int, const Action& a, int buffer, const Tensor& t) {
    const Program& p = job.train().program;
    if (p.value(p.buffers[buffer]).name != "rounds") return;
    const std::lock_guard lock(mutex);
    rounds[a.unit] = std::max(rounds[a.unit], static_cast<int>(*t.as<int32_t>()));
  });
  const StepResult r = job.step(batch, scalars);
  job.set_tap(nullptr);
  return r;
}

class Run {
 public:
  Run(const RunConfig& config, const fs::path& folder, const TrainOptions& options)
      : config_(config),
        options_(options),
        env_(options.env ? *options.env : own_env_),
        line_(options.console),
        began_(now()),
        folder_{.path = folder},
        parts_(config, folder, options) {}

  RunSummary run() {
    out_.folder = folder_.path.string();
    out_.planned_peak_bytes = job_.train().peaks();
    out_.plan = plan_json(config_, job_, parts_.pool.workers());
    out_.data = parts_.text.to_json(config_.data);
    start();
    parts_.read_ahead(config_, first_);
    const int64_t steps = config_.train.steps;
    for (int64_t i = first_; i <= steps && out_.stopped.empty() && !out_.interrupted; ++i) step(i);
    line_.end();
    if (!out_.interrupted) finish();
    return std::move(out_);
  }

 private:
  void start() {
    RunLines lines;
    if (!options_.resume.empty()) {
      Resumed r = resume_run(env_, job_, config_, parts_.text, folder_.path, options_.resume,
                             options_.allow);
      first_ = r.first;
      out_.steps = r.steps;
      lines = std::move(r.lines);
    }
    begin_run(folder_, config_, parts_.text, lines);
    const MatrixPeak peak = measure_matrix_peak(parts_.pool, options_.peak_seconds);
    out_.peak_flops_per_s = peak.flops_per_s;
    std::string plan = plan_text(config_, job_, parts_.text, peak, parts_.pool.workers());
    plan.pop_back();
    line_.note(plan);
    look_ahead();
    for (const std::string& w : run_warnings(config_, parts_.text)) line_.say("  warning  " + w);
    if (!options_.resume.empty()) {
      line_.note(
          fmt::format("  resumed  after step {} of {}", first_ - 1, options_.resume.string()));
    } else if (config_.weights.empty()) {
      job_.initialise(config_.train.seed);
    } else {
      job_.load(open_shards(config_.weights));
      job_.initialise_moments();
    }
  }

  void look_ahead() {
    if (!options_.machine) return;
    const Forecast f =
        forecast(config_, job_.train().program, options_.machine(), parts_.pool.workers());
    out_.predicted_step_seconds = f.step_seconds;
    out_.predicted_bubble = f.bubble;
    write_file_aside(folder_.path / "timeline_predicted.json", f.timeline);
    line_.note(
        fmt::format("  time     {} a step on this machine; bubble {:.1f} %, were each rank on a "
                    "device of its own",
                    show_seconds(f.step_seconds), 100 * f.bubble));
  }

  void step(int64_t i) {
    const int64_t last = config_.train.steps;
    const double from = now();
    const Batch batch = parts_.ahead->next();
    const double ready = now(), lr = learning_rate(config_.train, i);
    job_.train().executor->set_timing(i == first_ + 1 || i == last);
    std::map<int, int> rounds;
    const StepResult r = take_step(job_, batch, {.lr = lr, .step = i}, rounds);
    const double seconds = now() - ready;
    out_.steps = i;
    out_.loss = r.loss();
    out_.data_wait_seconds += ready - from;
    out_.step_seconds += seconds;
    pace_.steps.push_back(seconds);
    const double rate = static_cast<double>(config_.train.tokens_per_step) / seconds;
    const std::vector<LayerLoad> loads = expert_loads(r, rounds);
    record_step(folder_,
                {{"step", i},
                 {"loss", r.loss()},
                 {"norm", r.norm},
                 {"learning_rate", lr},
                 {"tokens", r.tokens},
                 {"tokens_per_second", rate},
                 {"mfu", mfu(rate)},
                 {"seconds", seconds},
                 {"data_wait_seconds", ready - from}},
                r, loads);
    compare(i);
    if (!std::isfinite(r.loss_sum) || !std::isfinite(r.norm)) return stop(i, r, batch);
    const bool evaluated = is_due(i, config_.train.evaluate_every, last);
    if (evaluated) evaluate(i);
    if (is_due(i, config_.generate_every, last)) {
      out_.passages = passages();
      record_samples(folder_, i, out_.passages);
    }
    pace_.recent = i == first_ ? seconds : 0.95 * pace_.recent + 0.05 * seconds;
    show(i, r, lr, evaluated);
    if (evaluated && !loads.empty()) line_.note(load_table(loads));
    keep(i);
  }

  void compare(int64_t i) {
    out_.predicted = job_.predicted();  // with routed rows it depends on the step
    out_.measured = job_.train().executor->measured();
    ++out_.steps_compared;
    const std::string difference = first_difference(out_.predicted, out_.measured);
    if (difference.empty()) return;
    if (++out_.steps_different > 1) return;
    out_.first_difference = fmt::format("step {}: {}", i, difference);
    line_.say("error: not as predicted: " + out_.first_difference);
  }

  // Weights are as before this step: its norm made the update nothing.
  void stop(int64_t i, const StepResult& r, const Batch& batch) {
    const BadTensor bad = job_.hunt(batch);
    out_.stopped = fmt::format("step {}: loss {}, gradient norm {}; ", i, r.loss(), r.norm);
    out_.stopped += bad.name.empty()
                        ? "a replay of the step found every tensor finite"
                        : fmt::format("the first tensor that is not finite: {}, on rank {}",
                                      bad.name, bad.rank);
    line_.say("error: stopped at " + out_.stopped);
  }

  void evaluate(int64_t i) {
    const HeldOutLoss h = measure();
    record(folder_, {{"step", i},
                     {"heldout_bits_per_byte", h.bits_per_byte},
                     {"heldout_loss", h.loss},
                     {"seconds", h.seconds}});
  }

  HeldOutLoss measure() {
    const HeldOutLoss h = measure_held_out(job_, parts_.held_out, config_);
    out_.heldout_bits_per_byte = h.bits_per_byte;
    out_.evaluate_seconds += h.seconds;
    pace_.evaluation = h.seconds;
    return h;
  }

  std::vector<Passage> passages() {
    return continue_prompts(job_, *parts_.text.tokenizer, config_);
  }

  // The share of the local peak that the model's own operations reach at a given number of tokens a
  // second.
  double mfu(double tokens_per_second) const {
    return tokens_per_second * model_flops_per_token(config_.model, config_.train.sequence_length) /
           out_.peak_flops_per_s;
  }

  void show(int64_t i, const StepResult& r, double lr, bool evaluated) {
    const double rate = static_cast<double>(config_.train.tokens_per_step) / pace_.recent;
    line_.show({.step = i,
                .steps = config_.train.steps,
                .loss = r.loss(),
                .bits_per_byte = out_.heldout_bits_per_byte,
                .norm = r.norm,
                .learning_rate = lr,
                .tokens_per_second = rate,
                .mfu = mfu(rate),
                .seconds_left = seconds_left(pace_, config_.train, i)},
               evaluated);
  }

  // Saves where a checkpoint is due, and where the run is asked to leave before its last step.
  void keep(int64_t i) {
    const int64_t every = config_.train.save_every, last = config_.train.steps;
    const bool leave = i < last && options_.interrupted && options_.interrupted();
    if (!leave && (every == 0 || !is_due(i, every, last))) return;
    const bool saved = save(i);
    if (!leave) return;
    out_.interrupted = saved;
    if (!saved) out_.stopped = fmt::format("step {}: asked to stop, but it could not be saved", i);
  }

  // A fault is reported, and training continues: the checkpoints of before are as they were.
  bool save(int64_t i) {
    Outcome o = env_.flush(folder_.path / "metrics.jsonl");
    if (o.ok()) o = save_run(env_, folder_.path, job_, config_, parts_.text, i);
    if (o.ok()) {
      ++out_.saved;
    } else {
      ++out_.saves_failed;
      line_.say(fmt::format("warning: step {} was not saved: {}", i, o.reason));
    }
    return o.ok();
  }

  void finish() {
    const bool whole = out_.stopped.empty();
    if (whole && out_.heldout_bits_per_byte < 0) measure();  // no step was left
    const double tokens = static_cast<double>(out_.steps_compared * config_.train.tokens_per_step);
    if (std::vector<double>& steps = pace_.steps; !steps.empty()) {
      std::sort(steps.begin(), steps.end());
      out_.median_step_seconds = steps[steps.size() / 2];
    }
    out_.tokens_per_second = out_.step_seconds > 0 ? tokens / out_.step_seconds : 0;
    out_.mfu = mfu(out_.tokens_per_second);
    const CompressedSizes sizes = compressed(parts_.text.held_out_texts);
    const double bytes = static_cast<double>(parts_.held_out.text_bytes());
    out_.gzip_bits_per_byte = 8 * static_cast<double>(sizes.gzip) / bytes;
    out_.zstd_bits_per_byte = 8 * static_cast<double>(sizes.zstd) / bytes;
    if (whole && first_ > config_.train.steps) out_.passages = passages();  // no step was left
    if (const Timeline t = replay(*job_.train().executor); !t.ranks.empty()) {
      out_.bubble = t.bubble();
      write_file_aside(folder_.path / "timeline.json", chrome_trace(*job_.train().executor));
    }
    write_model(folder_, config_, job_);
    out_.seconds = now() - began_;
    write_summary(folder_, out_);
  }

  const RunConfig& config_;
  const TrainOptions& options_;
  Env own_env_;
  Env& env_;  // the caller's, or own_env_
  LiveLine line_;
  const double began_;  // before the parts are made: their time counts
  RunFolder folder_;
  RunSummary out_;
  int64_t first_ = 1;  // step
  Pace pace_;
  RunParts parts_;  // below all that has an end of its own, so its thread ends before that goes
  Job& job_ = parts_.job;
};

}  // namespace

RunSummary train(const RunConfig& config, const fs::path& folder, const TrainOptions& options) {
  const char* hint = "data.corpus: a .jsonl or .txt file, or a folder of them; or data.sources";
  if (config.data.sources.empty())
    throw Error("data.corpus is missing: training needs text", config.name, hint);
  for (const DataSource& source : config.data.sources) {
    std::error_code refused;
    if (fs::exists(source.path, refused)) continue;
    throw Error(fmt::format("the source {} is {}, which does not exist", source.name, source.path),
                config.name,
                "scripts/corpus.py builds corpus/documents.jsonl; data/sample/documents.jsonl is a "
                "small one");
  }
  refuse_another_run(folder, options.resume);
  return Run(config, folder, options).run();
}

}  // namespace myriad
