// Published measurements as runs that can be priced: rows of runs.csv, vtrain_*.csv, b200_8gpu.csv
// and nccl_*.csv, told apart by their header (docs/prediction.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/predict.h"

namespace myriad {

struct Measured {
  std::string id, group;      // group: rows of equal model, devices and batch
  std::string framework;      // decides the system, see plan/system.h
  std::string cluster;        // shipped cluster that its hardware names
  std::string skipped;        // why it cannot be modelled; empty: it can
  PlannedRun run;             // resolved
  bool selective = false;     // recomputes what its system calls so (plan/system.h)
  double step_seconds = 0;    // as measured, by the FLOP formula of the source where it gave FLOPs
  int64_t peak_bytes = 0;     // 0: not measured
  int64_t message_bytes = 0;  // of an all-reduce; then there is no run
};

// CSV with quotes; keys are the header's. Throws Error naming file and line.
std::vector<std::map<std::string, std::string>> read_csv(const std::string& file);

// Throws Error if the header is of none of these.
std::vector<Measured> read_measured(const std::string& file);

}  // namespace myriad
