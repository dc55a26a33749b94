#include "cluster/write.h"

#include <yaml-cpp/yaml.h>

#include "base/error.h"

namespace myriad {

namespace {

std::string number(double x) { return fmt::format("{:.6g}", x); }

std::string curve(const Curve& c) {
  if (c.points.size() == 1) return number(c.points.begin()->second);
  std::vector<std::string> points;
  for (const auto& [size, value] : c.points) points.push_back(number(size) + ": " + number(value));
  return fmt::format("{{{}}}", fmt::join(points, ", "));
}

std::string by_dtype(const std::map<std::string, double>& rates) {
  std::vector<std::string> all;
  for (const auto& [dtype, rate] : rates) all.push_back(dtype + ": " + number(rate));
  return fmt::format("{{{}}}", fmt::join(all, ", "));
}

std::string quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

std::string notes(const char* key, const std::map<std::string, std::string>& texts) {
  std::string out;
  for (const auto& [name, text] : texts) out += fmt::format("  {}: {}\n", name, quoted(text));
  return out.empty() ? "" : fmt::format("{}:\n{}", key, out);
}

std::string device_text(const Device& d) {
  std::string out = fmt::format("device:\n  name: {}\n", quoted(d.name));
  const auto add = [&](const char* key, const std::string& value) {
    out += fmt::format("  {}: {}\n", key, value);
  };
  add("memory_bytes", number(d.memory_bytes));
  add("reserved_bytes", number(d.reserved_bytes));
  add("memory_bandwidth", number(d.memory_bandwidth));
  add("memory_share", number(d.memory_share));
  add("peak_flops", by_dtype(d.peak_flops));
  add("vector_flops", by_dtype(d.vector_flops));
  add("units", std::to_string(d.units));
  std::vector<std::string> tiles;
  for (const Tile& t : d.tiles)
    tiles.push_back(fmt::format("[{}, {}, {}]", t.m, t.n, number(t.share)));
  add("tiles", fmt::format("[{}]", fmt::join(tiles, ", ")));
  add("depth", number(d.depth));
  add("attention_forward", number(d.attention_forward));
  add("attention_backward", number(d.attention_backward));
  add("launch_seconds", number(d.launch_seconds));
  if (d.exact_rate > 0) add("exact_rate", number(d.exact_rate));
  return out;
}

}  // namespace

std::string write_cluster(const Cluster& c, const std::string& about) {
  std::string out = fmt::format("name: {}\n", quoted(c.name));
  if (!about.empty()) out += fmt::format("about: {}\n", quoted(about));
  if (c.devices > 0) out += fmt::format("devices: {}\n", c.devices);
  out += device_text(c.device);
  out += fmt::format("host:\n  issue_seconds: {}\n  action_seconds: {}\n",
                     number(c.host.issue_seconds), number(c.host.action_seconds));
  if (c.shared())
    out += fmt::format("  workers: {}\n  parallel: {}\n", c.host.workers, number(c.host.parallel));
  out += "levels:\n";
  for (const Level& l : c.levels) {
    out += fmt::format("  - name: {}\n", quoted(l.name));
    if (l.devices > 0) out += fmt::format("    devices: {}\n", l.devices);
    out +=
        fmt::format("    bandwidth: {}\n    latency: {}\n", curve(l.bandwidth), curve(l.latency));
    if (l.small_bytes > 0) {
      out += fmt::format("    small_bytes: {}\n    small_bandwidth: {}\n", number(l.small_bytes),
                         curve(l.small_bandwidth));
    }
    out += fmt::format("    send_bandwidth: {}\n    send_latency: {}\n", number(l.send_bandwidth),
                       number(l.send_latency));
    if (l.ports > 0) out += fmt::format("    ports: {}\n", number(l.ports));
    out += fmt::format("    oversubscription: {}\n", number(l.oversubscription));
  }
  return out + notes("sources", c.sources) + notes("fitted", c.fitted);
}

}  // namespace myriad
