// What a step will compute, send and hold, from the program alone: the machine that only counts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/program.h"
#include "machine/routing.h"

namespace myriad {

struct Count {
  int64_t bytes = 0, messages = 0;
  // Of them what goes to ranks of other nodes, and the hidden rows in that which go to experts or
  // come from them.
  int64_t between_nodes_bytes = 0, between_nodes_rows = 0;
  bool operator==(const Count&) const = default;
};

// One optimizer step. By collective kind ("all_gather", "send", ...): of all ranks together, kinds
// that send nothing left out.
struct StepProfile {
  double flops = 0;
  std::map<std::string, Count> collectives;
  std::vector<int64_t> peak_bytes;     // by rank
  std::map<std::string, int64_t> ops;  // executions by op row, of all ranks
  std::vector<uint64_t>
      order;  // by rank: digest of kind, group and bytes of each transfer it sends in, in order
  bool operator==(const StepProfile&) const = default;
};

// memory: by rank, from passes/memory.h; may be empty: no peaks. routing: of programs with routed
// rows, what was recorded. scratch: bytes an op's kernel takes (see ScratchBytes there); with
// routed rows the peak is what their true numbers touch, at most the plan's.
using Scratch = std::function<size_t(const Op& op, const LabelSizes& local, DType real)>;
StepProfile profile(const Program& program, const std::vector<MemoryPlan>& memory,
                    const Routing* routing = nullptr, const Scratch& scratch = {});

// Pairs of routed rows of a value in a box of global ranges (e, b, s), in the round that is asked
// about.
using CountRows = std::function<int64_t(const Value& value, Range e, Range b, Range s)>;
// What one rank sends in one move step, from true local sizes. rows: of sparse values. Rank r is on
// node r / ranks_per_node (0: all are on one).
Count sent_in(const Mesh& mesh, const LoweredBody& body, const Step& step, int rank,
              const CountRows& rows = {}, int ranks_per_node = 0);

}  // namespace myriad
