// The folder of a run and the files that training writes into it:
//   config.yaml, tokenizer.json, ...  what the run is, written before the first step
//   metrics.jsonl                     a line for each step and each evaluation, as they happen
//   samples.jsonl                     a line for each passage that the model wrote
//   timeline_predicted.json, timeline.json   the step as it was forecast and as it was
//   config.json, model.safetensors    the model, at the end
//   summary.json                      the figures of the run, written last
// Checkpoints lie in the same folder; train/checkpoint.h makes them.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/job.h"
#include "train/report.h"
#include "train/run_config.h"
#include "train/text_data.h"
#include "train/trainer.h"

namespace myriad {

inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kSamplesFile = "samples.jsonl";

struct RunFolder {
  std::filesystem::path path;
  std::ofstream metrics = {}, samples = {};  // open from begin_run on
};

// The lines with which a resumed run begins: those of the steps it has done.
struct RunLines {
  std::string metrics, samples;
};

// Throws Error if the folder is not there and cannot be made.
void make_run_folder(const std::filesystem::path& path);

// Removes the results of an earlier run, writes what the run is, and begins the files of lines.
// Throws Failure if the disk refuses.
void begin_run(RunFolder& folder, const RunConfig& config, const TextData& text,
               const RunLines& lines);

// A line of metrics.jsonl, handed to the system when this returns. Throws Failure if it
// cannot be written.
void record(RunFolder& folder, const nlohmann::json& line);
// As record(), with what the experts did in the step; `loads` is empty for a model without experts.
void record_step(RunFolder& folder, nlohmann::json line, const StepResult& result,
                 const std::vector<LayerLoad>& loads);
// Lines of samples.jsonl.
void record_samples(RunFolder& folder, int64_t step, const std::vector<Passage>& passages);

void write_model(const RunFolder& folder, const RunConfig& config, const Job& job);
void write_summary(const RunFolder& folder, const RunSummary& summary);

}  // namespace myriad
