// Cluster files, read strictly.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "base/error.h"
#include "cluster/cluster.h"

namespace myriad {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// One map of the file with its key; keeps the full keys of the numbers that it was asked for.
class Section {
 public:
  Section(YAML::Node node, std::string key, std::string file, std::set<std::string>& numbers,
          const std::vector<std::string>& known)
      : node_(std::move(node)), key_(std::move(key)), file_(std::move(file)), numbers_(numbers) {
    if (!node_.IsDefined() || node_.IsNull()) return;
    if (!node_.IsMap())
      throw Error(fmt::format("{} is not a map", key_.empty() ? "the file" : key_), place(node_));
    std::set<std::string> seen;
    for (const auto& entry : node_) {
      const std::string name = entry.first.Scalar();
      if (!seen.insert(name).second)
        throw Error(fmt::format("{} is given twice", full(name)), place(entry.first));
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        throw Error(fmt::format("unknown key {}", full(name)), place(entry.first),
                    fmt::format("legal: {}", fmt::join(known, ", ")));
      }
    }
  }

  bool has(const std::string& name) const {
    return node_.IsDefined() && node_.IsMap() && node_[name].IsDefined() && !node_[name].IsNull();
  }
  YAML::Node at(const std::string& name) const { return node_[name]; }
  std::string full(const std::string& name) const {
    return key_.empty() ? name : key_ + "." + name;
  }
  Section child(const std::string& name, const std::vector<std::string>& known) const {
    return {has(name) ? node_[name] : YAML::Node(), full(name), file_, numbers_, known};
  }

  double value(const YAML::Node& n, const std::string& key, double least, double most,
               bool open) const {
    double x = std::nan("");
    try {
      x = n.as<double>();
    } catch (const YAML::Exception&) {
    }
    const bool ok = open ? x > least && x <= most : x >= least && x <= most;
    if (!ok) {
      const std::string rule = open ? fmt::format("a number above {}", least)
                                    : fmt::format("a number of {} or more", least);
      throw Error(
          fmt::format("{} is {}, but must be {}{}", key, n.IsScalar() ? n.Scalar() : "no number",
                      rule, std::isfinite(most) ? fmt::format(" and at most {}", most) : ""),
          place(n),
          fmt::format("nearest: {}", x > most ? fmt::format("{}", most)
                                     : open   ? "any positive number"
                                              : fmt::format("{}", least)));
    }
    numbers_.insert(key);
    return x;
  }
  void number(const std::string& name, double& to, double least = 0, double most = kInfinite,
              bool open = false) const {
    if (has(name)) to = value(node_[name], full(name), least, most, open);
  }
  void positive(const std::string& name, double& to, bool needed, double most = kInfinite) const {
    if (needed && !has(name)) missing(name, "a number above 0");
    number(name, to, 0, most, true);
  }
  void count(const std::string& name, int64_t& to, int64_t least) const {
    if (!has(name)) return;
    double x = 0;
    number(name, x, static_cast<double>(least), 1e9);
    if (x != std::floor(x))
      throw Error(fmt::format("{} is {}, but must be a whole number", full(name), x),
                  place(node_[name]),
                  fmt::format("nearest: {} and {}", std::floor(x), std::ceil(x)));
    to = static_cast<int64_t>(x);
  }
  void text(const std::string& name, std::string& to) const {
    if (has(name)) to = node_[name].as<std::string>();
  }
  // A number, or a map from group size to number.
  void curve(const std::string& name, Curve& to, bool positive, bool needed) const {
    if (!has(name)) {
      if (needed) missing(name, "a number, or a map from group size to number");
      return;
    }
    const YAML::Node n = node_[name];
    if (!n.IsMap()) {
      to.points[1] = value(n, full(name), 0, kInfinite, positive);
      return;
    }
    if (n.size() == 0) missing(name, "a number, or a map from group size to number");
    for (const auto& entry : n) {
      const double size = value(entry.first, full(name) + "'s group size", 1, 1e9, false);
      to.points[size] = value(entry.second, fmt::format("{}.{}", full(name), entry.first.Scalar()),
                              0, kInfinite, positive);
    }
    numbers_.insert(full(name));
  }
  void by_dtype(const std::string& name, std::map<std::string, double>& to) const {
    const Section types = child(name, {"bf16", "fp16", "fp32", "fp64", "fp8"});
    for (const char* type : {"bf16", "fp16", "fp32", "fp64", "fp8"}) {
      if (types.has(type)) types.positive(type, to[type], true);
    }
  }
  void texts(const std::string& name, std::map<std::string, std::string>& to) const {
    if (!has(name)) return;
    if (!node_[name].IsMap())
      throw Error(fmt::format("{} is not a map from key to text", full(name)), place(node_[name]));
    for (const auto& entry : node_[name]) to[entry.first.Scalar()] = entry.second.as<std::string>();
  }
  [[noreturn]] void missing(const std::string& name, const std::string& rule) const {
    throw Error(fmt::format("{} is not given", full(name)), place(node_),
                fmt::format("{}: {}", name, rule));
  }
  std::string place(const YAML::Node& n) const {
    const bool known = n.IsDefined() && !n.Mark().is_null();
    return known ? fmt::format("{}:{}", file_, n.Mark().line + 1) : file_;
  }

 private:
  YAML::Node node_;
  std::string key_, file_;
  std::set<std::string>& numbers_;
};

void read_device(const Section& root, Device& d) {
  const Section s = root.child(
      "device", {"name", "memory_bytes", "reserved_bytes", "memory_bandwidth", "memory_share",
                 "peak_flops", "vector_flops", "units", "tiles", "depth", "attention_forward",
                 "attention_backward", "launch_seconds", "exact_rate"});
  s.text("name", d.name);
  s.positive("memory_bytes", d.memory_bytes, true);
  s.number("reserved_bytes", d.reserved_bytes, 0, d.memory_bytes);
  s.positive("memory_bandwidth", d.memory_bandwidth, true);
  s.positive("memory_share", d.memory_share, false, 1);
  s.by_dtype("peak_flops", d.peak_flops);
  if (d.peak_flops.empty())
    s.missing("peak_flops", "at least one of bf16, fp16, fp32, fp64: FLOPs a second above 0");
  d.vector_flops = d.peak_flops;
  s.by_dtype("vector_flops", d.vector_flops);
  int64_t units = d.units;
  s.count("units", units, 1);
  d.units = static_cast<int>(units);
  if (s.has("tiles")) {
    for (const YAML::Node& t : s.at("tiles")) {
      if (!t.IsSequence() || t.size() != 3)
        throw Error("device.tiles has an entry that is not [m, n, share]", s.place(t),
                    "e.g. [256, 128, 0.9]");
      d.tiles.push_back(
          {static_cast<int64_t>(s.value(t[0], "a tile's m", 1, 1e6, false)),
           static_cast<int64_t>(s.value(t[1], "a tile's n", 1, 1e6, false)),
           s.value(t[2], fmt::format("device.tiles.{}", d.tiles.size()), 0, 1, true)});
    }
  }
  if (d.tiles.empty()) d.tiles.push_back({1, 1, 1});
  s.number("depth", d.depth);
  s.positive("attention_forward", d.attention_forward, false, 1);
  s.positive("attention_backward", d.attention_backward, false, 1);
  s.number("launch_seconds", d.launch_seconds);
  s.number("exact_rate", d.exact_rate);
}

void read_host(const Section& root, Host& h) {
  const Section s = root.child("host", {"issue_seconds", "action_seconds", "workers", "parallel"});
  s.number("issue_seconds", h.issue_seconds);
  s.number("action_seconds", h.action_seconds);
  int64_t workers = 0;
  s.count("workers", workers, 1);
  h.workers = static_cast<int>(workers);
  s.number("parallel", h.parallel, 0, 1);
}

Level read_level(const Section& s) {
  Level l;
  s.text("name", l.name);
  if (l.name.empty()) s.missing("name", "what the level is called, e.g. nvlink");
  s.count("devices", l.devices, 1);
  s.curve("bandwidth", l.bandwidth, true, true);
  s.curve("latency", l.latency, false, true);
  s.number("small_bytes", l.small_bytes);
  s.curve("small_bandwidth", l.small_bandwidth, true, l.small_bytes > 0);
  l.send_bandwidth =
      std::min_element(l.bandwidth.points.begin(), l.bandwidth.points.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; })
          ->second;
  l.send_latency = l.latency.points.begin()->second;
  s.positive("send_bandwidth", l.send_bandwidth, false);
  s.number("send_latency", l.send_latency);
  s.number("ports", l.ports);
  s.number("oversubscription", l.oversubscription, 1);
  return l;
}

void check_levels(const Cluster& c) {
  for (size_t i = 0; i < c.levels.size(); ++i) {
    const Level& l = c.levels[i];
    const bool last = i + 1 == c.levels.size();
    if (l.devices == 0 && !last) {
      throw Error(
          fmt::format("levels.{} says no `devices`, which only the last level may leave out",
                      l.name),
          c.file, "devices: how many devices it joins");
    }
    if (i > 0 && l.devices != 0 &&
        (l.devices <= c.levels[i - 1].devices || l.devices % c.levels[i - 1].devices != 0)) {
      const int64_t below = c.levels[i - 1].devices, down = l.devices / below * below;
      throw Error(
          fmt::format(
              "levels.{} joins {} devices, but must join whole groups of the {} devices of {}",
              l.name, l.devices, below, c.levels[i - 1].name),
          c.file,
          fmt::format("nearest: {} and {}", std::max(2 * below, down),
                      std::max(2 * below, down + below)));
    }
    if (last && l.devices != 0 && c.devices > l.devices) {
      throw Error(fmt::format("devices is {}, but the last level {} joins {}", c.devices, l.name,
                              l.devices),
                  c.file, fmt::format("devices: at most {}", l.devices));
    }
  }
}

void check_sources(const Cluster& c, const std::set<std::string>& numbers) {
  for (const auto* texts : {&c.sources, &c.fitted}) {
    for (const auto& [key, text] : *texts) {
      const bool there = std::any_of(numbers.begin(), numbers.end(), [&](const std::string& n) {
        return n == key || n.rfind(key + ".", 0) == 0;
      });
      if (!there)
        throw Error(fmt::format("{} tells of {}, which is no number of the file",
                                texts == &c.fitted ? "fitted" : "sources", key),
                    c.file, "keys as device.depth, levels.nvlink.latency");
      if (text.empty())
        throw Error(fmt::format("the source of {} is empty", key), c.file,
                    "where the value comes from");
    }
  }
  int64_t fitted = 0;  // each point of a curve is a constant
  for (const auto& [key, text] : c.fitted) {
    int64_t points = 0;
    for (const std::string& n : numbers) points += n.rfind(key + ".", 0) == 0;
    fitted += std::max<int64_t>(1, points);
  }
  if (fitted > kMostFitted)
    throw Error(fmt::format("{} fitted constants", fitted), c.file,
                fmt::format("at most {}", kMostFitted));
}

Cluster read(const YAML::Node& node, const std::string& name, const std::string& file) {
  Cluster c{.name = name, .file = file};
  std::set<std::string> numbers;
  const Section root(node, "", file, numbers,
                     {"name", "about", "devices", "device", "host", "levels", "sources", "fitted"});
  root.text("name", c.name);
  root.count("devices", c.devices, 1);
  read_device(root, c.device);
  read_host(root, c.host);
  if (!root.has("levels") || !root.at("levels").IsSequence() || root.at("levels").size() == 0)
    root.missing("levels", "a list of at least one level, the node first");
  for (const YAML::Node& n : root.at("levels")) {
    const std::string level =
        n.IsMap() && n["name"].IsDefined() && n["name"].IsScalar() ? n["name"].Scalar() : "?";
    c.levels.push_back(read_level(
        Section(n, "levels." + level, file, numbers,
                {"name", "devices", "bandwidth", "small_bytes", "small_bandwidth", "send_bandwidth",
                 "latency", "send_latency", "ports", "oversubscription"})));
  }
  check_levels(c);
  root.texts("sources", c.sources);
  root.texts("fitted", c.fitted);
  check_sources(c, numbers);
  return c;
}

}  // namespace

Cluster parse_cluster(const std::string& text, const std::string& name) {
  try {
    return read(YAML::Load(text), name, name);
  } catch (const YAML::Exception& e) {
    throw Error(fmt::format("is not YAML: {}", e.msg),
                e.mark.is_null() ? name : fmt::format("{}:{}", name, e.mark.line + 1));
  }
}

Cluster read_cluster(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error("cannot be opened", file, "the path of a cluster file");
  std::ostringstream text;
  text << in.rdbuf();
  Cluster c = parse_cluster(text.str(), file);
  if (c.name == file) c.name = std::filesystem::path(file).stem();
  return c;
}

}  // namespace myriad
