// A cluster that need not exist, as plain data: the YAML files of clusters/ (docs/cluster-files.md
// lists every key). SI units: bytes, seconds, FLOPs a second; bandwidths of one direction.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace myriad {

// A curve by group size or matrix depth: linear between its points in the logarithm of the key,
// constant beyond them.
struct Curve {
  std::map<double, double> points;
  double at(double x) const;  // CHECKs that there is a point
  bool operator==(const Curve&) const = default;
};

// A block of a matrix product that one compute unit makes at a time, and the share of the unit's
// peak that it reaches.
struct Tile {
  int64_t m, n;
  double share;
  bool operator==(const Tile&) const = default;
};

struct Device {
  std::string name;
  double memory_bytes = 0;
  double reserved_bytes = 0;    // not for the arena: context, communication library, allocator
  double memory_bandwidth = 0;  // peak
  double memory_share = 1;      // of it that a long copy reaches
  std::map<std::string, double>
      peak_flops;  // of matrix products by dtype; the first of bf16, fp32 there is prices a run
  std::map<std::string, double> vector_flops;  // elementwise, by dtype; default: peak_flops
  int units = 1;            // compute units (streaming multiprocessors, cube cores)
  std::vector<Tile> tiles;  // none: one unit of any size with share 1
  double depth = 0;         // a product of depth K takes as long as K + depth at full speed
  double attention_forward = 1,
         attention_backward =
             1;               // share of the peak in fused attention, at depth (head dim) as above
  double launch_seconds = 0;  // of one kernel on the device
  double exact_rate = 0;      // elements a second in exact sums; 0: bound by memory like all else
  bool operator==(const Device&) const = default;
};

// What issues the kernels. A run takes the longer of device and host; where ranks share workers,
// host and device are one, and it takes both.
struct Host {
  double issue_seconds = 0;   // a kernel
  double action_seconds = 0;  // an action of the program
  int workers = 0;            // virtual ranks share this many devices; 0: each rank has its own
  double parallel = 0;        // share of a kernel that idle workers can help with (Amdahl)
  bool operator==(const Host&) const = default;
};

// One level of the network: groups of `devices` devices (of the level below: whole groups) joined
// by it.
struct Level {
  std::string name;
  int64_t devices = 0;  // 0: all; the last level only
  Curve bandwidth;  // a device, by group size at this level: bus bandwidth that collectives reach
  double small_bytes = 0;  // collectives of fewer bytes take another protocol, with this bandwidth
  Curve small_bandwidth;
  double send_bandwidth =
      0;  // of point-to-point, a device that has its own port; default: the smallest of the curve
  Curve latency;  // of a collective, by group size at this level
  double send_latency = 0;
  double ports = 0;             // of a group of the level below; 0: one a device. Fewer are shared
  double oversubscription = 1;  // bandwidth is divided by it where all groups send at once
  bool operator==(const Level&) const = default;
};

struct Cluster {
  std::string name, file;
  Device device;
  Host host;
  int64_t devices = 0;        // of the whole cluster; 0: as many as a run asks for
  std::vector<Level> levels;  // the innermost (a node) first
  std::map<std::string, std::string> sources,
      fitted;  // key -> where its value comes from; fitted: from which measurements
  int64_t node_devices() const { return levels.front().devices; }
  bool shared() const { return host.workers > 0; }
};

// Throws Error naming file, key, value, rule and nearest legal values.
Cluster read_cluster(const std::string& file);
Cluster parse_cluster(const std::string& text, const std::string& name);

// The file of a cluster by name ("h100"), the user's own before a shipped one, or the path itself;
// throws Error with the names there are.
std::string cluster_file(const std::string& name_or_path);
// Folder of the user's own clusters: $XDG_CONFIG_HOME/myriad/clusters, by default in ~/.config; it
// need not exist. Empty: there is no home.
std::string user_clusters();
// Folders that may hold the shipped clusters, the first that exists before the others: what the
// environment variable MYRIAD_CLUSTERS names; clusters/ in the working directory; of an installed
// program ../share/myriad/clusters beside the executable's folder; of one in a build tree the
// checkout's clusters/, found above the executable.
std::vector<std::string> shipped_clusters();

// Throws Error if the run needs more devices than there are.
void check_ranks(const Cluster& cluster, int64_t ranks);

constexpr int kMostFitted = 25;

}  // namespace myriad
