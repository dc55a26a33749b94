#include "plan/system.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "cluster/cluster.h"

namespace myriad {

namespace {

void check_keys(const YAML::Node& map, const std::string& file,
                const std::vector<std::string>& known) {
  if (!map.IsDefined() || map.IsNull()) return;
  if (!map.IsMap()) throw Error("expected a map", file, fmt::format("{}", fmt::join(known, ", ")));
  for (const auto& entry : map) {
    const std::string key = entry.first.Scalar();
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw Error(fmt::format("unknown key {}", key), file,
                  fmt::format("legal: {}", fmt::join(known, ", ")));
    }
  }
}

template <class T>
void get(const YAML::Node& map, const char* key, T& to) {
  if (map.IsDefined() && map[key].IsDefined()) to = map[key].as<T>();
}

System read(const YAML::Node& root, const std::string& file) {
  check_keys(root, file,
             {"name", "about", "frameworks", "bytes", "scores", "selective", "zero", "sources"});
  System s{.name = std::filesystem::path(file).stem(), .file = file};
  get(root, "name", s.name);
  get(root, "frameworks", s.frameworks);
  get(root, "zero", s.zero);
  std::string selective = "attention";
  get(root, "selective", selective);
  if (selective != "attention" && selective != "elementwise")
    throw Error(fmt::format("selective is {}", selective), file, "attention or elementwise");
  s.selective_elementwise = selective == "elementwise";
  const YAML::Node bytes = root["bytes"], scores = root["scores"];
  check_keys(bytes, file, {"parameter", "activation", "gradient", "moment", "master"});
  get(bytes, "parameter", s.bytes.parameter);
  get(bytes, "activation", s.bytes.activation);
  get(bytes, "gradient", s.bytes.gradient);
  get(bytes, "moment", s.bytes.moment);
  get(bytes, "master", s.bytes.master);
  check_keys(scores, file, {"passes_forward", "passes_backward"});
  if (scores.IsDefined() && scores.IsMap()) {
    WrittenScores w;
    get(scores, "passes_forward", w.passes_forward);
    get(scores, "passes_backward", w.passes_backward);
    s.scores = w;
  }
  return s;
}

}  // namespace

System read_system(const std::string& file) {
  try {
    return read(YAML::LoadFile(file), file);
  } catch (const YAML::Exception& e) {
    throw Error(fmt::format("is no system file: {}", e.what()), file);
  }
}

std::vector<System> shipped_systems() {
  const std::filesystem::path folder =
      std::filesystem::path(cluster_file("laptop")).parent_path() / "systems";
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<System> systems;
  for (const std::string& file : files) systems.push_back(read_system(file));
  return systems;
}

const System* system_of(const std::vector<System>& systems, const std::string& framework) {
  const System* best = nullptr;
  size_t longest = 0;
  for (const System& s : systems) {
    for (const std::string& f : s.frameworks) {
      if (framework.rfind(f, 0) != 0 || f.size() <= longest) continue;
      best = &s;
      longest = f.size();
    }
  }
  return best;
}

}  // namespace myriad
