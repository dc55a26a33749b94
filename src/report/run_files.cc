#include "report/run_files.h"

#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/yaml.h"
#include "data/files.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json read_json(const fs::path& file) {
  if (!fs::exists(file)) return nullptr;
  try {
    return json::parse(read_file(file));
  } catch (const json::exception& e) {
    throw Error(fmt::format("is not JSON: {}", e.what()), file);
  }
}

std::map<std::string, std::string> read_config_keys(const fs::path& file) {
  if (!fs::exists(file)) return {};
  return flatten(YamlFile::parse(read_file(file), file).root());
}

// Objects with a step, one a line. A last line that a running or killed trainer has not finished is
// left out.
std::vector<json> read_lines(const fs::path& file) {
  std::vector<json> out;
  std::istringstream lines(read_file(file));
  for (std::string text; std::getline(lines, text);) {
    json line = json::parse(text, nullptr, false);
    if (line.is_discarded() && lines.eof()) break;
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number())
      throw Error(fmt::format("line {} is no JSON object with a step", out.size() + 1), file);
    out.push_back(std::move(line));
  }
  return out;
}

std::map<std::string, Series> read_metrics(const fs::path& file) {
  std::map<std::string, std::map<double, double>> figures;
  for (const json& line : read_lines(file)) {
    for (const auto& [key, value] : line.items()) {
      if (key != "step" && value.is_number())
        figures[key][line["step"].get<double>()] = value.get<double>();
    }
  }
  std::map<std::string, Series> out;
  for (const auto& [key, by_step] : figures) {
    for (const auto& [step, value] : by_step) {
      out[key].x.push_back(step);
      out[key].y.push_back(value);
    }
  }
  return out;
}

}  // namespace

RunFiles read_run_files(const fs::path& folder) {
  const fs::path metrics = folder / "metrics.jsonl";
  if (!fs::exists(metrics))
    throw Error("holds no metrics.jsonl", folder, "a run's folder: runs/NAME, or what --out named");
  RunFiles run{
      .folder = folder.string(),
      .name = fs::absolute(folder / ".").lexically_normal().parent_path().filename().string()};
  run.metrics = read_metrics(metrics);
  if (fs::exists(folder / "samples.jsonl")) run.samples = read_lines(folder / "samples.jsonl");
  run.config = read_config_keys(folder / "config.yaml");
  run.summary = read_json(folder / "summary.json");
  run.timeline = read_json(folder / "timeline.json");
  run.predicted_timeline = read_json(folder / "timeline_predicted.json");
  if (const auto at = run.config.find("name"); at != run.config.end()) run.name = at->second;
  return run;
}

double figure(const json& object, const std::string& a, const std::string& b) {
  const double none = std::nan("");
  if (!object.is_object() || !object.contains(a)) return none;
  const json& value = object[a];
  if (!b.empty()) return figure(value, b);
  return value.is_number() ? value.get<double>() : none;
}

}  // namespace myriad
