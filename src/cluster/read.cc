// Reads cluster files. Each key has its legal range, an unknown key is refused with its nearest
// neighbour, and a note on the source or the fit of a number that the file does not have is refused
// too. docs/cluster-files.md lists the keys; base/yaml.h says how an error finds its line.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include "base/yaml.h"
#include "cluster/cluster.h"

namespace myriad {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

constexpr int64_t kMost = 1'000'000'000;

void read_needed(const YamlMap& s, const std::string& key, double& to) {
  if (!s.has(key)) s.refuse(key, "a number above 0");
  s.positive(key, to);
}

// A number, or a map from group size to number.
void read_curve(const YamlMap& s, const std::string& key, bool positive, bool needed, Curve& to) {
  if (!s.has(key) && !needed) return;
  const YAML::Node n = s.node(key);
  const auto read = [&](const YamlMap& from, const std::string& at, double& x) {
    if (positive) from.positive(at, x);
    if (!positive) from.number(at, 0, kInfinite, x);
  };
  if (!s.has(key) || (n.IsMap() && n.size() == 0))
    s.refuse(key, "a number, or a map from group size to number");
  if (!n.IsMap()) return read(s, key, to.points[1]);
  const YamlMap points = s.child(key, {});
  for (const auto& entry : n) {
    const std::string name = entry.first.Scalar();
    double size = 0;
    if (!read_number(YAML::Node(name), size) || size < 1 || size > kMost)
      throw Error(fmt::format("{}'s group size must be a number from 1 to {}, not {}", s.full(key),
                              kMost, name),
                  points.place(name));
    if (!points.has(name)) points.refuse(name, "a number");
    read(points, name, to.points[size]);
  }
}

void read_by_dtype(const YamlMap& s, const char* key, std::map<std::string, double>& to) {
  const std::vector<std::string> types = {"bf16", "fp16", "fp32", "fp64", "fp8"};
  const YamlMap rates = s.child(key, types);
  for (const std::string& type : types) {
    if (rates.has(type)) rates.positive(type, to[type]);
  }
}

void read_tiles(const YamlFile& file, const YamlMap& device, std::vector<Tile>& to) {
  const std::string example = "for instance [256, 128, 0.9]";
  if (device.has("tiles") && !device.node("tiles").IsSequence())
    device.refuse("tiles", "a list of [m, n, share]", example);
  for (const YAML::Node& t : device.node("tiles")) {
    const std::string key = fmt::format("device.tiles.{}", to.size());
    if (!t.IsSequence() || t.size() != 3 || std::any_of(t.begin(), t.end(), is_null))
      throw Error(fmt::format("{} is not [m, n, share]", key), file.place(key, t), example);
    YAML::Node named;
    named["m"] = t[0];
    named["n"] = t[1];
    named["share"] = t[2];
    const YamlMap s(file, named, key, {});
    Tile& tile = to.emplace_back();
    s.integer("m", 1, 1'000'000, tile.m);
    s.integer("n", 1, 1'000'000, tile.n);
    s.positive("share", tile.share, 1);
  }
  if (to.empty()) to.push_back({1, 1, 1});
}

void read_device(const YamlFile& file, const YamlMap& root, Device& d) {
  const YamlMap s = root.child(
      "device", {"name", "memory_bytes", "reserved_bytes", "memory_bandwidth", "memory_share",
                 "peak_flops", "vector_flops", "units", "tiles", "depth", "attention_forward",
                 "attention_backward", "launch_seconds", "exact_rate"});
  s.text("name", d.name);
  read_needed(s, "memory_bytes", d.memory_bytes);
  s.number("reserved_bytes", 0, d.memory_bytes, d.reserved_bytes);
  read_needed(s, "memory_bandwidth", d.memory_bandwidth);
  s.positive("memory_share", d.memory_share, 1);
  read_by_dtype(s, "peak_flops", d.peak_flops);
  if (d.peak_flops.empty())
    s.refuse("peak_flops", "FLOPs a second above 0 of at least one of bf16, fp16, fp32, fp64");
  d.vector_flops = d.peak_flops;
  read_by_dtype(s, "vector_flops", d.vector_flops);
  s.integer("units", 1, kMost, d.units);
  read_tiles(file, s, d.tiles);
  s.number("depth", 0, kInfinite, d.depth);
  s.positive("attention_forward", d.attention_forward, 1);
  s.positive("attention_backward", d.attention_backward, 1);
  s.number("launch_seconds", 0, kInfinite, d.launch_seconds);
  s.number("exact_rate", 0, kInfinite, d.exact_rate);
}

void read_host(const YamlMap& root, Host& h) {
  const YamlMap s = root.child("host", {"issue_seconds", "action_seconds", "workers", "parallel"});
  s.number("issue_seconds", 0, kInfinite, h.issue_seconds);
  s.number("action_seconds", 0, kInfinite, h.action_seconds);
  s.integer("workers", 1, kMost, h.workers);
  s.number("parallel", 0, 1, h.parallel);
}

// A level's keys start with its name, not its place: levels.nvlink.latency.
std::string key_of_level(const YAML::Node& n) {
  const bool named = n.IsMap() && n["name"].IsDefined() && n["name"].IsScalar();
  return "levels." + (named ? n["name"].Scalar() : "?");
}

Level read_level(const YamlFile& file, const YAML::Node& node) {
  const YamlMap s(file, node, key_of_level(node),
                  {"name", "devices", "bandwidth", "small_bytes", "small_bandwidth",
                   "send_bandwidth", "latency", "send_latency", "ports", "oversubscription"});
  Level l;
  s.text("name", l.name);
  if (l.name.empty()) s.refuse("name", "what the level is called, e.g. nvlink");
  s.integer("devices", 1, kMost, l.devices);
  read_curve(s, "bandwidth", true, true, l.bandwidth);
  read_curve(s, "latency", false, true, l.latency);
  s.number("small_bytes", 0, kInfinite, l.small_bytes);
  read_curve(s, "small_bandwidth", true, l.small_bytes > 0, l.small_bandwidth);
  l.send_bandwidth =
      std::min_element(l.bandwidth.points.begin(), l.bandwidth.points.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; })
          ->second;
  l.send_latency = l.latency.points.begin()->second;
  s.positive("send_bandwidth", l.send_bandwidth);
  s.number("send_latency", 0, kInfinite, l.send_latency);
  s.number("ports", 0, kInfinite, l.ports);
  s.number("oversubscription", 1, kInfinite, l.oversubscription);
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

// The keys of the numbers that a file gives; a tile is one.
void collect_numbers(const YAML::Node& n, const std::string& key, std::set<std::string>& to) {
  const auto below = [&](const std::string& name) { return key + "." + name; };
  double x = 0;
  if (n.IsMap()) {
    for (const auto& entry : n) collect_numbers(entry.second, below(entry.first.Scalar()), to);
  } else if (n.IsSequence() && n.size() > 0 && !n[0].IsScalar()) {
    for (size_t i = 0; i < n.size(); ++i)
      collect_numbers(n[i], n[i].IsMap() ? key_of_level(n[i]) : below(std::to_string(i)), to);
  } else if (n.IsSequence() || read_number(n, x)) {
    to.insert(key);
  }
}

void read_texts(const YamlMap& root, const char* key, std::map<std::string, std::string>& to) {
  const YamlMap s = root.child(key, {});
  for (const auto& entry : root.node(key)) s.text(entry.first.Scalar(), to[entry.first.Scalar()]);
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

Cluster read(const YamlFile& file, Cluster c) {
  const YamlMap root(file, file.root(), "",
                     {"name", "about", "devices", "device", "host", "levels", "sources", "fitted"});
  root.text("name", c.name);
  root.integer("devices", 1, kMost, c.devices);
  read_device(file, root, c.device);
  read_host(root, c.host);
  const YAML::Node levels = root.node("levels");
  if (!levels.IsSequence() || levels.size() == 0)
    root.refuse("levels", "a list of at least one level, the node first");
  for (const YAML::Node& n : levels) c.levels.push_back(read_level(file, n));
  check_levels(c);
  read_texts(root, "sources", c.sources);
  read_texts(root, "fitted", c.fitted);
  std::set<std::string> numbers;
  for (const char* key : {"devices", "device", "host", "levels"})
    collect_numbers(root.node(key), key, numbers);
  check_sources(c, numbers);
  return c;
}

}  // namespace

Cluster parse_cluster(const std::string& text, const std::string& name) {
  return read(YamlFile::parse(text, name), {.name = name, .file = name});
}

Cluster read_cluster(const std::string& file) {
  return read(YamlFile::open(file), {.name = std::filesystem::path(file).stem(), .file = file});
}

}  // namespace myriad
