// Fits constants of a cluster to measurements by coordinate descent: one constant after the other
// is multiplied or divided by a step while the mean error falls, and the step shrinks towards 1.
// The error is not smooth (a collective changes its algorithm, a stage becomes the slowest), so
// nothing that needs a derivative would do. Every constant has a range outside which it would mean
// nothing.
#include "plan/fit.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/accuracy.h"

namespace myriad {

namespace {

void scale_curve(Curve& c, double f) {
  for (auto& [size, value] : c.points) value *= f;
}

std::vector<Knob> knobs() {
  std::vector<Knob> all = {
      {"device.memory_share", 0.4, 1.17, [](Cluster& c, double f) { c.device.memory_share *= f; }},
      {"device.tiles", 0.4, 1.3,
       [](Cluster& c, double f) {
         for (Tile& t : c.device.tiles) t.share = std::min(1.0, t.share * f);
       }},
      {"device.depth", 0.05, 8, [](Cluster& c, double f) { c.device.depth *= f; }},
      {"device.attention_forward", 0.3, 1.9,
       [](Cluster& c, double f) {
         c.device.attention_forward = std::min(1.0, c.device.attention_forward * f);
       }},
      {"device.attention_backward", 0.3, 2.4,
       [](Cluster& c, double f) {
         c.device.attention_backward = std::min(1.0, c.device.attention_backward * f);
       }},
      {"device.launch_seconds", 0.1, 10,
       [](Cluster& c, double f) { c.device.launch_seconds *= f; }},
      {"host.issue_seconds", 0.1, 12, [](Cluster& c, double f) { c.host.issue_seconds *= f; }},
      {"host.action_seconds", 0.05, 200, [](Cluster& c, double f) { c.host.action_seconds *= f; }},
  };
  for (size_t i = 0; i < kMostLevels; ++i) {
    const auto level = [i](Cluster& c) { return i < c.levels.size() ? &c.levels[i] : nullptr; };
    const auto add = [&](const char* key, double least, double most, auto change) {
      all.push_back(
          {fmt::format("levels.{}.{}", i, key), least, most, [level, change](Cluster& c, double f) {
             if (Level* l = level(c)) change(*l, f);
           }});
    };
    add("bandwidth", 0.2, 4, [](Level& l, double f) { scale_curve(l.bandwidth, f); });
    add("latency", 0.1, 10, [](Level& l, double f) { scale_curve(l.latency, f); });
    add("send_bandwidth", 0.1, 4, [](Level& l, double f) { l.send_bandwidth *= f; });
    add("send_latency", 0.1, 100, [](Level& l, double f) { l.send_latency *= f; });
  }
  return all;
}

}  // namespace

std::vector<double> descend(const std::vector<Knob>& knobs, Cluster& cluster,
                            const std::function<double(const Cluster&)>& loss) {
  std::vector<double> factors(knobs.size(), 1);
  const auto with = [&](const std::vector<double>& f) {
    Cluster c = cluster;
    for (size_t i = 0; i < knobs.size(); ++i) knobs[i].scale(c, f[i]);
    return c;
  };
  double best = loss(cluster);
  for (double step = 1.5; step > 1.015; step = std::sqrt(step)) {
    for (int round = 0; round < 3; ++round) {
      const double before = best;
      for (size_t i = 0; i < knobs.size(); ++i) {
        for (const double factor : {step, 1 / step}) {
          for (;;) {
            std::vector<double> next = factors;
            next[i] = std::clamp(factors[i] * factor, knobs[i].least, knobs[i].most);
            const double l = next[i] == factors[i] ? best : loss(with(next));
            if (l >= best) break;
            best = l;
            factors = next;
          }
        }
      }
      if (best > before - 1e-5) break;
    }
  }
  cluster = with(factors);
  return factors;
}

std::vector<std::string> fit_keys() {
  std::vector<std::string> keys;
  for (const Knob& k : knobs()) keys.push_back(k.key);
  return keys;
}

std::map<std::string, double> fit(Bench& bench, std::span<const size_t> rows,
                                  const std::vector<std::string>& keys, Cluster& cluster) {
  const std::vector<Knob> all = knobs();
  std::vector<Knob> used;
  for (const std::string& key : keys) {
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const Knob& k) { return k.key == key; });
    if (at == all.end()) {
      throw Error(fmt::format("{} cannot be fitted", key), "--fit",
                  fmt::format("{}", fmt::join(fit_keys(), ", ")));
    }
    used.push_back(*at);
  }
  const std::vector<double> factors = descend(used, cluster, [&](const Cluster& c) {
    return accuracy(bench.rows(), rows, bench.price(rows, c)).mean;
  });
  std::map<std::string, double> out;
  for (size_t i = 0; i < used.size(); ++i) out[used[i].key] = factors[i];
  return out;
}

}  // namespace myriad
