#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/random.h"
#include "ckpt/shards.h"
#include "data/files.h"
#include "data/samples.h"
#include "machine/simulate_report.h"
#include "train/checkpoint.h"
#include "train/forecast.h"
#include "train/generate.h"
#include "train/model_folder.h"
#include "train/plan_json.h"
#include "train/read_ahead.h"
#include "train/timeline.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

json to_json(const StepProfile& p) {
  json collectives = json::object();
  for (const auto& [kind, count] : p.collectives)
    collectives[kind] = {{"bytes", count.bytes},
                         {"messages", count.messages},
                         {"between_nodes_bytes", count.between_nodes_bytes},
                         {"between_nodes_rows", count.between_nodes_rows}};
  return {{"flops", static_cast<int64_t>(p.flops)},
          {"collectives", collectives},
          {"peak_bytes", p.peak_bytes}};
}

void append(Batch& batch, const SampleRow& row) {
  const auto add = [](std::vector<int32_t>& to, const std::vector<int32_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  add(batch.ids, row.ids);
  add(batch.targets, row.targets);
  add(batch.positions, row.positions);
  add(batch.documents, row.documents);
}

// A row without targets, to fill up the last evaluation batch.
SampleRow blank_row(int64_t length) {
  SampleRow row{.ids = std::vector<int32_t>(length, 0),
                .targets = std::vector<int32_t>(length, kNoTarget),
                .documents = std::vector<int32_t>(length, 0),
                .positions = {}};
  for (int64_t i = 0; i < length; ++i) row.positions.push_back(static_cast<int32_t>(i));
  return row;
}

// As many rows as fill the pipeline with micro-batches no larger than those of training.
int64_t evaluation_rows(const RunConfig& c) {
  const int64_t m = c.plan.micro_batches, rows = c.rows();
  return std::min(rows, (rows + m - 1) / m * c.plan.pp);
}

// Passages are as long as the rows of training.
Generation generation_of(const RunConfig& c) {
  const int64_t context = c.train.sequence_length;
  if (c.prompts.empty() || context < 2) return {};
  return {.rows = std::min<int64_t>(std::ssize(c.prompts), 8), .tokens = cache_places(context)};
}

class Run {
 public:
  Run(const RunConfig& config, const fs::path& folder, const TrainOptions& options)
      : config_(config),
        folder_(folder),
        options_(options),
        env_(options.env ? *options.env : own_env_),
        line_(options.console),
        began_(now()),
        pool_(config.train.workers),
        job_(JobConfig{.model = config.model,
                       .plan = config.plan,
                       .rows = config.rows(),
                       .sequence = config.train.sequence_length,
                       .real = config.train.dtype,
                       .optimizer = config.train.optimizer,
                       .kernels = config.train.kernels},
             pool_,
             Job::Options{.rewrite = options.rewrite,
                          .evaluation_rows = evaluation_rows(config),
                          .generation = generation_of(config)}),
        text_(prepare(options)),
        samples_(training_rows(config, text_)),
        held_out_(text_.held_out, config.train.sequence_length) {}

  RunSummary run() {
    out_.folder = folder_.string();
    out_.planned_peak_bytes = job_.train().peaks();
    out_.plan = plan_json(config_, job_, pool_.workers());
    out_.data = text_.to_json(config_.data);
    start();
    const int64_t steps = config_.train.steps;
    ahead_.emplace([this](int64_t i) { return training_batch(i); }, first_, steps);
    for (int64_t i = first_; i <= steps && out_.stopped.empty() && !out_.interrupted; ++i) step(i);
    line_.end();
    if (!out_.interrupted) finish();
    return std::move(out_);
  }

 private:
  TextData prepare(const TrainOptions& options) {
    std::error_code failed;
    fs::create_directories(folder_, failed);
    if (failed)
      throw Error(fmt::format("cannot be made: {}", failed.message()), folder_,
                  "--out names the folder of the run");
    LiveLine line(options.console);
    return prepare_text(config_, [&](const std::string& what) { line.note("data: " + what); });
  }

  void start() {
    std::string metrics, samples;  // lines of the run that goes on
    if (!options_.resume.empty()) std::tie(metrics, samples) = resume();
    for (const char* old : {"summary.json", "model.safetensors", "timeline.json",
                            "timeline_predicted.json", "report.html"})
      fs::remove(folder_ / old);
    write_file_aside(folder_ / "config.yaml", write_run(config_));
    for (const auto& [name, bytes] : text_.tokenizer_files) write_file_aside(folder_ / name, bytes);
    metrics_ = begin_lines("metrics.jsonl", metrics);
    samples_lines_ = begin_lines("samples.jsonl", samples);
    const MatrixPeak peak = measure_matrix_peak(pool_, options_.peak_seconds);
    out_.peak_flops_per_s = peak.flops_per_s;
    std::string plan = plan_text(config_, job_, text_, peak, pool_.workers());
    plan.pop_back();
    line_.note(plan);
    look_ahead();
    for (const std::string& w : run_warnings(config_, text_)) line_.say("  warning  " + w);
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
    const Forecast f = forecast(config_, job_.train().program, options_.machine(), pool_.workers());
    out_.predicted_step_seconds = f.step_seconds;
    out_.predicted_bubble = f.bubble;
    write_file_aside(folder_ / "timeline_predicted.json", f.timeline);
    line_.note(
        fmt::format("  time     {} a step on this machine; bubble {:.1f} %, were each rank on a "
                    "device of its own",
                    show_seconds(f.step_seconds), 100 * f.bubble));
  }

  std::ofstream begin_lines(const char* name, const std::string& lines) const {
    write_file_aside(folder_ / name, lines);
    std::ofstream out(folder_ / name, std::ios::app);
    if (!out) throw Failure(fmt::format("{}: cannot be written", (folder_ / name).string()));
    return out;
  }

  // Nothing is written before the checkpoint is found to be whole and of this run.
  std::pair<std::string, std::string> resume() {
    const Manifest saved = read_manifest(options_.resume);
    check_same_run(saved, manifest_of(config_, text_, saved.step), options_.allow);
    restore_run(job_, options_.resume);
    first_ = saved.data_position;
    out_.steps = saved.step;
    const fs::path run = run_of(options_.resume);
    if (fs::exists(folder_) && fs::equivalent(run, folder_)) {
      if (const Outcome o = set_later_aside(env_, run, saved.step); !o.ok())
        throw Failure(o.reason);
    }
    const auto lines = [&](const char* name) {
      return fs::exists(run / name) ? metrics_up_to(read_file(run / name), saved.step) : "";
    };
    return {lines("metrics.jsonl"), lines("samples.jsonl")};
  }

  // A fault is told, and training goes on: the checkpoints of before are as they were.
  bool save(int64_t i) {
    Outcome o = env_.flush(folder_ / "metrics.jsonl");
    if (o.ok()) o = save_run(env_, folder_, job_, config_, text_, i);
    if (o.ok()) {
      ++out_.saved;
    } else {
      ++out_.saves_failed;
      line_.say(fmt::format("warning: step {} was not saved: {}", i, o.reason));
    }
    return o.ok();
  }

  Batch training_batch(int64_t step) const {
    Batch batch{.rows = config_.rows(), .sequence = config_.train.sequence_length};
    for (int64_t r = 0; r < batch.rows; ++r)
      append(batch, samples_.row((step - 1) * batch.rows + r));
    return batch;
  }

  void step(int64_t i) {
    const double from = now();
    const Batch batch = ahead_->next();
    const double ready = now(), lr = learning_rate(config_.train, i);
    job_.train().executor->set_timing(i == first_ + 1 || i == config_.train.steps);
    const StepResult r = take_step(batch, {.lr = lr, .step = i});
    const double seconds = now() - ready;
    out_.steps = i;
    out_.loss = r.loss();
    out_.data_wait_seconds += ready - from;
    out_.step_seconds += seconds;
    taken_.push_back(seconds);
    const double rate = static_cast<double>(config_.train.tokens_per_step) / seconds;
    const double mfu = rate * model_flops_per_token(config_.model, config_.train.sequence_length) /
                       out_.peak_flops_per_s;
    const std::vector<LayerLoad> loads = expert_loads(r, rounds_);
    record({{"step", i},
            {"loss", r.loss()},
            {"norm", r.norm},
            {"learning_rate", lr},
            {"tokens", r.tokens},
            {"tokens_per_second", rate},
            {"mfu", mfu},
            {"seconds", seconds},
            {"data_wait_seconds", ready - from}},
           r, loads);
    compare(i);
    if (!std::isfinite(r.loss_sum) || !std::isfinite(r.norm)) return stop(i, r, batch);
    const int64_t every = config_.train.evaluate_every;
    const bool evaluated = i == config_.train.steps || (every > 0 && i % every == 0);
    if (evaluated) evaluate(i);
    if (i == config_.train.steps || (config_.generate_every > 0 && i % config_.generate_every == 0))
      write_samples(i);
    recent_ = i == first_ ? seconds : 0.95 * recent_ + 0.05 * seconds;
    show(i, r, lr, evaluated);
    if (evaluated && !loads.empty()) line_.note(load_table(loads));
    keep(i);
  }

  void keep(int64_t i) {
    const int64_t every = config_.train.save_every, last = config_.train.steps;
    const bool leave = i < last && options_.interrupted && options_.interrupted();
    if (!leave && (every == 0 || (i % every != 0 && i != last))) return;
    const bool saved = save(i);
    if (!leave) return;
    out_.interrupted = saved;
    if (!saved) out_.stopped = fmt::format("step {}: asked to stop, but it could not be saved", i);
  }

  // Notes how many rounds the experts of each unit took.
  StepResult take_step(const Batch& batch, const StepScalars& scalars) {
    rounds_.clear();
    if (config_.model.moe.experts == 0) return job_.step(batch, scalars);
    std::mutex mutex;
    job_.set_tap([&](int, const Action& a, int buffer, const Tensor& t) {
      const Program& p = job_.train().program;
      if (p.value(p.buffers[buffer]).name != "rounds") return;
      const std::lock_guard lock(mutex);
      rounds_[a.unit] = std::max(rounds_[a.unit], static_cast<int>(*t.as<int32_t>()));
    });
    const StepResult r = job_.step(batch, scalars);
    job_.set_tap(nullptr);
    return r;
  }

  void show(int64_t i, const StepResult& r, double lr, bool evaluated) {
    const int64_t every = config_.train.evaluate_every, left = config_.train.steps - i;
    const double evaluations =
        static_cast<double>(every > 0 ? left / every + (left % every != 0) : left > 0);
    const double rate = static_cast<double>(config_.train.tokens_per_step) / recent_;
    line_.show(
        {.step = i,
         .steps = config_.train.steps,
         .loss = r.loss(),
         .bits_per_byte = out_.heldout_bits_per_byte,
         .norm = r.norm,
         .learning_rate = lr,
         .tokens_per_second = rate,
         .mfu = rate * model_flops_per_token(config_.model, config_.train.sequence_length) /
                out_.peak_flops_per_s,
         .seconds_left = recent_ * static_cast<double>(left) + evaluations * last_evaluation_},
        evaluated);
  }

  void record(json line, const StepResult& r, const std::vector<LayerLoad>& loads) {
    if (!loads.empty()) line["router_losses"] = r.auxiliary;
    for (const LayerLoad& l : loads) {
      line["experts"].push_back({{"layer", l.layer},
                                 {"tokens", l.tokens},
                                 {"max_over_mean", l.max_over_mean()},
                                 {"dead", l.dead()},
                                 {"dropped", l.dropped},
                                 {"rounds", l.rounds}});
    }
    record(line);
  }

  void record(const json& line) { append_line(metrics_, "metrics.jsonl", line); }

  void append_line(std::ofstream& to, const char* name, const json& line) const {
    to << line.dump() << std::endl;
    if (!to) throw Failure(fmt::format("{}: cannot be written", (folder_ / name).string()));
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
    const double nats = measure_held_out();
    record({{"step", i},
            {"heldout_bits_per_byte", out_.heldout_bits_per_byte},
            {"heldout_loss", nats / static_cast<double>(held_out_.predicted_tokens())},
            {"seconds", last_evaluation_}});
  }

  double measure_held_out() {
    const double from = now();
    const int64_t per_call = evaluation_rows(config_), length = config_.train.sequence_length;
    double nats = 0;
    for (int64_t first = 0; first < held_out_.rows(); first += per_call) {
      Batch batch{.rows = per_call, .sequence = length};
      for (int64_t r = first; r < first + per_call; ++r)
        append(batch, r < held_out_.rows() ? held_out_.row(r) : blank_row(length));
      nats += job_.evaluate(batch).loss_sum;
    }
    out_.heldout_bits_per_byte = nats / std::log(2.0) / static_cast<double>(held_out_.text_bytes());
    last_evaluation_ = now() - from;
    out_.evaluate_seconds += last_evaluation_;
    return nats;
  }

  void finish() {
    if (out_.stopped.empty() && out_.heldout_bits_per_byte < 0)
      measure_held_out();  // no step was left
    const double tokens = static_cast<double>(out_.steps_compared * config_.train.tokens_per_step);
    if (!taken_.empty()) {
      std::sort(taken_.begin(), taken_.end());
      out_.median_step_seconds = taken_[taken_.size() / 2];
    }
    out_.tokens_per_second = out_.step_seconds > 0 ? tokens / out_.step_seconds : 0;
    out_.mfu = out_.tokens_per_second *
               model_flops_per_token(config_.model, config_.train.sequence_length) /
               out_.peak_flops_per_s;
    const CompressedSizes sizes = compressed(text_.held_out_texts);
    const double bytes = static_cast<double>(held_out_.text_bytes());
    out_.gzip_bits_per_byte = 8 * static_cast<double>(sizes.gzip) / bytes;
    out_.zstd_bits_per_byte = 8 * static_cast<double>(sizes.zstd) / bytes;
    if (out_.stopped.empty() && first_ > config_.train.steps)
      out_.passages = passages();  // no step was left
    if (const Timeline t = replay(*job_.train().executor); !t.ranks.empty()) {
      out_.bubble = t.bubble();
      write_file_aside(folder_ / "timeline.json", chrome_trace(*job_.train().executor));
    }
    write_model_config(config_.model, folder_ / "config.json");
    write_weights(job_, folder_ / "model.safetensors");
    out_.seconds = now() - began_;
    write_file_aside(folder_ / "summary.json", myriad::to_json(out_).dump(1) + "\n");
  }

  // What the model makes of the prompts now, each the beginning of a document; of a longer one its
  // last tokens.
  std::vector<Passage> passages() {
    if (job_.options().generation.rows == 0) return {};
    const int32_t end = text_.tokenizer->end_of_text();
    const GenerateConfig config{
        .max_tokens = config_.generate_tokens,
        .sampling = {.temperature = config_.temperature, .seed = config_.train.seed},
        .stops = {},
        .end_tokens = {end},
        .context = config_.train.sequence_length};
    std::vector<std::vector<int32_t>> prompts;
    for (const std::string& prompt : config_.prompts) {
      std::vector<int32_t> ids = {end};
      text_.tokenizer->encode_onto(prompt, ids);
      const int64_t over = std::ssize(ids) - (config.context - 1);
      ids.erase(ids.begin(), ids.begin() + std::max<int64_t>(0, over));
      prompts.push_back(std::move(ids));
    }
    Decoder decoder(job_);
    std::vector<Passage> out;
    for (Continuation& c : generate(decoder, *text_.tokenizer, prompts, config))
      out.push_back({config_.prompts[out.size()], std::move(c.text)});
    return out;
  }

  void write_samples(int64_t step) {
    out_.passages = passages();
    for (const Passage& p : out_.passages)
      append_line(samples_lines_, "samples.jsonl",
                  {{"step", step}, {"prompt", p.prompt}, {"text", p.text}});
  }

  const RunConfig& config_;
  const fs::path folder_;
  const TrainOptions& options_;
  Env own_env_;
  Env& env_;
  LiveLine line_;
  const double began_;
  Pool pool_;
  Job job_;  // before the text: a layout that cannot be is refused before any work
  TextData text_;
  MixedSamples samples_;
  HeldOutRows held_out_;
  std::ofstream metrics_, samples_lines_;
  RunSummary out_;
  int64_t first_ = 1;          // step
  std::map<int, int> rounds_;  // of the last step, by unit
  std::vector<double> taken_;  // seconds of each step
  double recent_ = 0, last_evaluation_ = 0;
  std::optional<ReadAhead> ahead_;  // the last: its thread reads what stands above
};

// JSON has no NaN.
json number(double x) { return std::isfinite(x) ? json(x) : json(nullptr); }
json known(double x) { return x < 0 ? json(nullptr) : number(x); }

}  // namespace

json to_json(const RunSummary& s) {
  json passages = json::array();
  for (const Passage& p : s.passages) passages.push_back({{"prompt", p.prompt}, {"text", p.text}});
  json predicted = to_json(s.predicted);
  predicted["planned_peak_bytes"] = s.planned_peak_bytes;
  predicted["step_seconds"] = known(s.predicted_step_seconds);
  predicted["bubble"] = known(s.predicted_bubble);
  json measured = to_json(s.measured);
  measured["step_seconds"] = known(s.median_step_seconds);
  measured["bubble"] = known(s.bubble);
  json out = {{"plan", s.plan},
              {"data", s.data},
              {"predicted", predicted},
              {"measured", measured},
              {"steps_compared", s.steps_compared},
              {"steps_different", s.steps_different},
              {"heldout_bits_per_byte", known(s.heldout_bits_per_byte)},
              {"gzip_bits_per_byte", known(s.gzip_bits_per_byte)},
              {"zstd_bits_per_byte", known(s.zstd_bits_per_byte)},
              {"mfu", number(s.mfu)},
              {"peak_flops_per_s", s.peak_flops_per_s},
              {"tokens_per_second", number(s.tokens_per_second)},
              {"steps", s.steps},
              {"loss", number(s.loss)},
              {"seconds", s.seconds},
              {"step_seconds", s.step_seconds},
              {"evaluate_seconds", s.evaluate_seconds},
              {"data_wait_seconds", s.data_wait_seconds},
              {"passages", passages},
              {"checkpoints_saved", s.saved},
              {"checkpoints_failed", s.saves_failed},
              {"folder", s.folder}};
  if (!s.first_difference.empty()) out["first_difference"] = s.first_difference;
  if (!s.stopped.empty()) out["stopped"] = s.stopped;
  return out;
}

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
  const bool goes_on = !options.resume.empty() && fs::exists(folder) &&
                       fs::equivalent(run_of(options.resume), folder);
  if (const std::vector<Checkpoint> old = checkpoints_of(folder); !old.empty() && !goes_on) {
    throw Error(
        fmt::format("holds a run saved at step {}", old.back().step), folder,
        fmt::format("--resume {} goes on with it; --out names another folder", folder.string()));
  }
  return Run(config, folder, options).run();
}

}  // namespace myriad
