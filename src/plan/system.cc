#include "plan/system.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/yaml.h"
#include "cluster/cluster.h"

namespace myriad {

System read_system(const std::string& path) {
  const YamlFile file = YamlFile::open(path);
  const YamlMap root(
      file, file.root(), "",
      {"name", "about", "frameworks", "bytes", "scores", "selective", "zero", "sources"});
  System s{.name = std::filesystem::path(path).stem(), .file = path};
  root.text("name", s.name);
  s.frameworks = root.texts("frameworks");
  root.integer("zero", 0, 3, s.zero);
  s.selective_elementwise = root.choice("selective", {"attention", "elementwise"}) == 1;
  const YamlMap bytes =
      root.child("bytes", {"parameter", "activation", "gradient", "moment", "master"});
  const auto width = [&](const char* key, int64_t& to) { bytes.integer(key, 0, 16, to); };
  width("parameter", s.bytes.parameter);
  width("activation", s.bytes.activation);
  width("gradient", s.bytes.gradient);
  width("moment", s.bytes.moment);
  width("master", s.bytes.master);
  if (root.has("scores")) {
    const YamlMap scores = root.child("scores", {"passes_forward", "passes_backward"});
    constexpr double kMost = std::numeric_limits<double>::infinity();
    s.scores.emplace();
    scores.number("passes_forward", 0, kMost, s.scores->passes_forward);
    scores.number("passes_backward", 0, kMost, s.scores->passes_backward);
  }
  return s;
}

std::vector<System> shipped_systems() {
  // The folder of the shipped clusters, not that of a cluster: the user's own laptop.yaml may hide
  // the shipped one, and has no systems beside it.
  std::vector<std::string> files;
  for (const std::string& folder : shipped_clusters()) {
    const std::filesystem::path systems = std::filesystem::path(folder) / "systems";
    if (!std::filesystem::is_directory(systems)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(systems)) {
      if (entry.path().extension() == ".yaml") files.push_back(entry.path());
    }
    break;
  }
  if (files.empty()) {
    throw Error("no files of training systems", "clusters/systems",
                "MYRIAD_CLUSTERS set to the folder clusters of a checkout or an installation");
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
