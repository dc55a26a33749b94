// A run's folder as read for a report: what is not there is left empty, so that a report can be
// made of a run that is going on or was stopped.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace myriad {

// A figure by step; steps ascend, each once (the last line of a step counts: a resumed run writes
// it again).
struct Series {
  std::vector<double> x, y;
};

struct RunFiles {
  std::string folder, name;
  std::map<std::string, std::string> config;    // "train.steps" -> "100", every key of config.yaml
  std::map<std::string, Series> metrics;        // "loss", "heldout_bits_per_byte", ...
  nlohmann::json summary;                       // null: none yet
  std::vector<nlohmann::json> samples;          // lines of samples.jsonl: step, prompt, text
  nlohmann::json timeline, predicted_timeline;  // Chrome traces; null: none
};

// Throws Error if the folder holds no metrics.jsonl, or a file of it cannot be read.
RunFiles read_run_files(const std::filesystem::path& folder);

// summary[a][b] as a number; NaN if it is not there.
double figure(const nlohmann::json& object, const std::string& a, const std::string& b = "");

}  // namespace myriad
