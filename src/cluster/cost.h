// The cost law: pure functions from sizes and a cluster to seconds. docs/simulator.md derives each.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "ir/layout.h"

namespace myriad {

// A product of [m, k] with [k, n], `batch` times.
struct MatrixSize {
  double m = 1, n = 1, k = 1, batch = 1;
  double flops() const { return 2 * m * n * k * batch; }
};

// By waves of tiles over the compute units: the least, over tiles (either way round) and over k cut
// in 1, 2, 4, 8, 16, of ceil(tiles / units) * units * 2 tm tn (k / cut + depth) / (peak * share).
// Without launch and memory.
double matrix_seconds(const Device& device, double peak_flops, const MatrixSize& size);
// Roofline of one kernel: launch + max(compute, bytes over sustained bandwidth).
double kernel_seconds(const Device& device, double compute_seconds, double bytes);

constexpr int kMostLevels = 4;

// How a group of ranks is placed in the network. members[i] is how many groups of level i - 1 (at
// level 0: devices) with ranks of the group one group of level i holds; where they differ, the most
// that any holds. Ranks are placed on devices in order.
struct GroupShape {
  int64_t ranks = 1;
  std::array<int64_t, kMostLevels> members{1, 1, 1, 1};
  auto operator<=>(const GroupShape&) const = default;
  int top() const;  // the highest level with more than one member
};
GroupShape shape_of(const Cluster& cluster, std::span<const int> group);
// The shape of all groups of these atoms, if they have the same; else `ranks` is 0 and the caller
// must look at each group.
GroupShape uniform_shape(const Cluster& cluster, const Mesh& mesh, AtomList atoms);

enum class Algorithm : uint8_t { ring, tree, hierarchical, direct };
const char* name_of(Algorithm a);

struct CollectiveCost {
  double seconds;
  Algorithm algorithm;
};

// bytes: the whole of it, i.e. what a rank holds after an all_gather, before a reduce_scatter or
// all_to_all, before and after an all_reduce. All groups of the same atoms send at the same time
// and share the ports of their nodes. `used`: devices of the run. ring: 2 or 1 latencies of the top
// level at the ring's length, and (2 or 1) (n - 1) / n bytes over the narrowest level; tree
// (all_reduce, between nodes): 2 log2(n) send latencies and 2 bytes; hierarchical: scatter inside,
// the same above with a share, gather inside; direct (all_to_all). The cheapest counts.
CollectiveCost collective_seconds(const Cluster& cluster, MoveKind kind, double bytes,
                                  const GroupShape& shape, int64_t used);

// Bytes that a rank sends in the direct form, at even sizes: what machine/profile.h counts.
double direct_bytes(MoveKind kind, double bytes, int64_t ranks);

// One message between two ranks, while all devices of their nodes send one.
double send_seconds(const Cluster& cluster, double bytes, int from, int to, int64_t used);
// The level over which two ranks talk.
int level_between(const Cluster& cluster, int a, int b);

}  // namespace myriad
