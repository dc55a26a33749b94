#include "cluster/cluster.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/error.h"

namespace myriad {

double Curve::at(double x) const {
  CHECK(!points.empty(), "an empty curve");
  const auto above = points.lower_bound(x);
  if (above == points.end()) return points.rbegin()->second;
  if (above == points.begin() || above->first == x) return above->second;
  const auto below = std::prev(above);
  const double t = std::log(x / below->first) / std::log(above->first / below->first);
  return below->second + t * (above->second - below->second);
}

std::string user_clusters() {
  const char *config = std::getenv("XDG_CONFIG_HOME"), *home = std::getenv("HOME");
  if (config && *config) return std::filesystem::path(config) / "myriad/clusters";
  if (home && *home) return std::filesystem::path(home) / ".config/myriad/clusters";
  return "";
}

std::string cluster_file(const std::string& name) {
  namespace fs = std::filesystem;
  if (fs::is_regular_file(name)) return name;
  std::set<std::string> names;
  for (const std::string& folder :
       {user_clusters(), std::string("clusters"), std::string(MYRIAD_CLUSTERS)}) {
    if (!fs::is_directory(folder)) continue;
    const fs::path file = fs::path(folder) / (name + ".yaml");
    if (fs::is_regular_file(file)) return file;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_regular_file()) names.insert(entry.path().stem());
    }
  }
  throw Error(fmt::format("no cluster \"{}\"", name), "cluster",
              fmt::format("the path of a YAML file, or one of: {}", fmt::join(names, ", ")));
}

void check_ranks(const Cluster& c, int64_t ranks) {
  if (c.shared() || c.devices == 0 || ranks <= c.devices) return;
  throw Error(fmt::format("the layout has {} ranks, but the cluster {} has {} devices", ranks,
                          c.name, c.devices),
              c.file,
              fmt::format("dp x cp x tp x pp of at most {}, or devices: {}", c.devices, ranks));
}

}  // namespace myriad
