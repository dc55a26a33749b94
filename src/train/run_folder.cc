// Writes the files of a run. Whole files are written aside and renamed, so that a reader never sees
// half of one. Files of lines grow by one line at a time and are flushed after each, so that they
// can be followed during the run; a line that cannot be written ends the run. Read
// train/run_folder.h first: it lists the files.
#include "train/run_folder.h"

#include <ostream>

#include "base/error.h"
#include "data/files.h"
#include "train/model_folder.h"

namespace myriad {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

Failure cannot_be_written(const fs::path& path) {
  return Failure(fmt::format("{}: cannot be written", path.string()));
}

std::ofstream begin_lines(const fs::path& path, const std::string& lines) {
  write_file_aside(path, lines);
  std::ofstream out(path, std::ios::app);
  if (!out) throw cannot_be_written(path);
  return out;
}

void append_line(std::ofstream& to, const fs::path& path, const json& line) {
  to << line.dump() << std::endl;
  if (!to) throw cannot_be_written(path);
}

}  // namespace

void make_run_folder(const fs::path& path) {
  std::error_code failed;
  fs::create_directories(path, failed);
  if (failed)
    throw Error(fmt::format("cannot be made: {}", failed.message()), path,
                "--out names the folder of the run");
}

void begin_run(RunFolder& folder, const RunConfig& config, const TextData& text,
               const RunLines& lines) {
  for (const char* old : {"summary.json", "model.safetensors", "timeline.json",
                          "timeline_predicted.json", "report.html"})
    fs::remove(folder.path / old);
  write_file_aside(folder.path / "config.yaml", write_run(config));
  for (const auto& [name, bytes] : text.tokenizer_files)
    write_file_aside(folder.path / name, bytes);
  folder.metrics = begin_lines(folder.path / kMetricsFile, lines.metrics);
  folder.samples = begin_lines(folder.path / kSamplesFile, lines.samples);
}

void record(RunFolder& folder, const json& line) {
  append_line(folder.metrics, folder.path / kMetricsFile, line);
}

void record_step(RunFolder& folder, json line, const StepResult& result,
                 const std::vector<LayerLoad>& loads) {
  if (!loads.empty()) line["router_losses"] = result.auxiliary;
  for (const LayerLoad& l : loads) {
    line["experts"].push_back({{"layer", l.layer},
                               {"tokens", l.tokens},
                               {"max_over_mean", l.max_over_mean()},
                               {"dead", l.dead()},
                               {"dropped", l.dropped},
                               {"rounds", l.rounds}});
  }
  record(folder, line);
}

void record_samples(RunFolder& folder, int64_t step, const std::vector<Passage>& passages) {
  for (const Passage& p : passages)
    append_line(folder.samples, folder.path / kSamplesFile,
                {{"step", step}, {"prompt", p.prompt}, {"text", p.text}});
}

void write_model(const RunFolder& folder, const RunConfig& config, const Job& job) {
  write_model_config(config.model, folder.path / "config.json");
  write_weights(job, folder.path / "model.safetensors");
}

void write_summary(const RunFolder& folder, const RunSummary& summary) {
  write_file_aside(folder.path / "summary.json", to_json(summary).dump(1) + "\n");
}

}  // namespace myriad
