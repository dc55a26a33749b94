#include "cluster/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace myriad {

double matrix_seconds(const Device& d, double peak, const MatrixSize& s) {
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& t : d.tiles) {
    for (const auto& [tm, tn] : {std::pair(t.m, t.n), std::pair(t.n, t.m)}) {
      const double tiles = std::ceil(s.m / static_cast<double>(tm)) *
                           std::ceil(s.n / static_cast<double>(tn)) * s.batch;
      for (double cut = 1; cut <= 16; cut *= 2) {
        const double waves = std::ceil(tiles * cut / d.units);
        const double depth = std::ceil(s.k / cut) + d.depth;
        least = std::min(
            least, waves * d.units * 2 * static_cast<double>(tm * tn) * depth / (peak * t.share));
      }
    }
  }
  return least;
}

double kernel_seconds(const Device& d, double compute_seconds, double bytes) {
  return d.launch_seconds +
         std::max(compute_seconds, bytes / (d.memory_bandwidth * d.memory_share));
}

int GroupShape::top() const {
  for (int i = kMostLevels - 1; i > 0; --i) {
    if (members[i] > 1) return i;
  }
  return 0;
}

namespace {

int64_t group_at(const Cluster& c, size_t level, int64_t device) {
  const int64_t n = c.levels[level].devices;
  return n == 0 ? 0 : device / n;
}

}  // namespace

GroupShape shape_of(const Cluster& c, std::span<const int> group) {
  GroupShape s{.ranks = static_cast<int64_t>(group.size())};
  std::vector<int64_t> below(group.begin(), group.end());
  std::sort(below.begin(), below.end());
  for (size_t i = 0; i < c.levels.size(); ++i) {
    // below: one device of each group of the level below. Most of them in one group of this level:
    std::vector<int64_t> here;
    int64_t run = 0, most = 0;
    for (const int64_t device : below) {
      const bool same = !here.empty() && group_at(c, i, here.back()) == group_at(c, i, device);
      run = same ? run + 1 : 1;
      if (!same) here.push_back(device);
      most = std::max(most, run);
    }
    s.members[i] = most;
    below = std::move(here);
  }
  CHECK(below.size() == 1, "a group over {} groups of the last level", below.size());
  return s;
}

GroupShape uniform_shape(const Cluster& c, const Mesh& mesh, AtomList atoms) {
  if (atoms.set() & kOfNodes) return {.ranks = 0};
  for (const Level& l :
       c.levels) {  // each level's edge must fall on a multiple of every atom's block, or divide it
    for (Atom a = 0; a < mesh.atoms() && l.devices != 0; ++a) {
      const int64_t stride = mesh.stride(a), end = stride * mesh.axis(a).size, n = l.devices;
      const bool inside = n % end == 0, above = stride % n == 0,
                 splits = n % stride == 0 && end % n == 0;
      if (!inside && !above && !splits) return {.ranks = 0};
    }
  }
  return shape_of(c, mesh.group(atoms, 0));
}

const char* name_of(Algorithm a) {
  constexpr const char* kNames[] = {"ring", "tree", "hierarchical", "direct"};
  return kNames[static_cast<int>(a)];
}

namespace {

// Share of a port of level i that one device has when all send.
double port_share(const Cluster& c, int i, int64_t used) {
  const Level& l = c.levels[i];
  if (i == 0 || l.ports == 0) return 1 / l.oversubscription;
  const double devices = static_cast<double>(std::min(used, c.levels[i - 1].devices));
  return std::min(1.0, l.ports / devices) / l.oversubscription;
}

struct Pricer {
  const Cluster& c;
  const GroupShape& s;
  int64_t used;
  double all_bytes;

  double bandwidth(int i) const {  // of one device at level i
    const Level& l = c.levels[i];
    const Curve& curve = all_bytes < l.small_bytes ? l.small_bandwidth : l.bandwidth;
    return curve.at(static_cast<double>(s.members[i])) * port_share(c, i, used);
  }
  double inside(int i) const {  // members of the group in one group below level i
    double n = 1;
    for (int j = 0; j < i; ++j) n *= static_cast<double>(s.members[j]);
    return n;
  }
  double narrowest() const {
    double b = std::numeric_limits<double>::infinity();
    for (int i = 0; i <= s.top(); ++i) {
      if (s.members[i] > 1) b = std::min(b, inside(i) * bandwidth(i));
    }
    return b;
  }
  double ring(double bytes, double passes) const {
    const double n = static_cast<double>(s.ranks);
    return passes * (c.levels[s.top()].latency.at(n) + (n - 1) / n * bytes / narrowest());
  }
  double tree(double bytes) const {
    return 2 * std::log2(static_cast<double>(s.ranks)) * c.levels[s.top()].send_latency +
           2 * bytes / narrowest();
  }
  double by_levels(double bytes, double passes) const {
    double seconds = 0;
    for (int i = 0; i <= s.top(); ++i) {
      const double n = static_cast<double>(s.members[i]);
      if (n > 1)
        seconds +=
            passes * (c.levels[i].latency.at(n) + (n - 1) / n * bytes / inside(i) / bandwidth(i));
    }
    return seconds;
  }
  double direct(double bytes) const {  // networks of different levels work at the same time
    double slowest = 0, latency = 0, reached = 1;
    const double n = static_cast<double>(s.ranks);
    for (int i = 0; i <= s.top(); ++i) {
      const double members = static_cast<double>(s.members[i]);
      if (members <= 1) continue;
      slowest = std::max(slowest, reached * (members - 1) / n * bytes / bandwidth(i));
      latency = std::max(latency, c.levels[i].latency.at(members));
      reached *= members;
    }
    return latency + slowest;
  }
};

}  // namespace

CollectiveCost collective_seconds(const Cluster& c, MoveKind kind, double bytes,
                                  const GroupShape& s, int64_t used) {
  if (s.ranks <= 1 || !sends(kind)) return {0, Algorithm::direct};
  const Pricer p{c, s, used, bytes};
  if (kind == MoveKind::all_to_all) return {p.direct(bytes), Algorithm::direct};
  const double passes = kind == MoveKind::all_reduce ? 2 : 1;
  CollectiveCost best{p.ring(bytes, passes), Algorithm::ring};
  // Inside a node a tree is a chain (NCCL): no gain over the ring.
  if (kind == MoveKind::all_reduce && s.top() > 0 && p.tree(bytes) < best.seconds)
    best = {p.tree(bytes), Algorithm::tree};
  if (s.top() > 0 && p.by_levels(bytes, passes) < best.seconds)
    best = {p.by_levels(bytes, passes), Algorithm::hierarchical};
  return best;
}

double direct_bytes(MoveKind kind, double bytes, int64_t ranks) {
  if (!sends(kind)) return 0;
  const double n = static_cast<double>(ranks);
  return (kind == MoveKind::all_reduce ? 2 : 1) * (n - 1) / n * bytes;
}

int level_between(const Cluster& c, int a, int b) {
  for (size_t i = 0; i + 1 < c.levels.size(); ++i) {
    if (group_at(c, i, a) == group_at(c, i, b)) return static_cast<int>(i);
  }
  return static_cast<int>(c.levels.size()) - 1;
}

double send_seconds(const Cluster& c, double bytes, int from, int to, int64_t used) {
  const int i = level_between(c, from, to);
  return c.levels[i].send_latency + bytes / (c.levels[i].send_bandwidth * port_share(c, i, used));
}

}  // namespace myriad
