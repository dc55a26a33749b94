// Prices a lowered body for one rank, step by step, from the rows of its ops and true local sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cost.h"
#include "cluster/load.h"
#include "ir/program.h"

namespace myriad {

// Bytes of one element of what the program calls real, by what it is. Mixed precision by default:
// 16-bit parameters, activations and their gradients; gradient sums, moments and the master copy of
// a parameter in fp32. The master copy lies, and is read and written, with the first moment. Other
// dtypes are as they are.
struct ByteMap {
  int64_t parameter = 2, activation = 2, gradient = 4, moment = 4, master = 4;
  // state: letter of the state it lies in ("pmvgs"), 0: none. Settled gradients ("NAME/g") count as
  // gradient.
  int64_t of(const Value& value, char state) const;
  static ByteMap fp32() { return {4, 4, 4, 4, 0}; }
  static ByteMap fp64() { return {8, 8, 8, 8, 0}; }
};

// Attention as products, masks and softmax that write the scores out: full, not causal; elementwise
// kernels read and write scores (2 bytes) so many times, forward and backward. All of it again in
// the backward pass where it is recomputed.
struct WrittenScores {
  double passes_forward = 0, passes_backward = 0;
  bool recomputed = false;
};

struct Pricing {
  std::string dtype = "bf16";  // of matrix products: a key of device.peak_flops
  ByteMap bytes;
  // Ops that stand together in a body, with no matrix product, attention or collective between
  // them, are one kernel: it reads each value made elsewhere once and writes each value needed
  // elsewhere once. A product that is only added to a gradient sum is added as it is made. Not
  // fused, each op is a kernel and each slice a copy.
  bool fused = true;
  ExpertLoad load;  // every rank is priced as the busiest of its experts' owners
  std::optional<WrittenScores> scores;  // none: fused attention, which skips what is masked
};

// The pricing of a run on a cluster by its `train.dtype`; "": the first the device has of bf16,
// fp16, fp32, fp64. Throws Error if it has none.
Pricing pricing_for(const Cluster& cluster, const std::string& dtype);

enum class Cost : uint8_t {
  matrix,
  attention,
  memory,
  host,
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  send,
  idle,
  count_
};
constexpr int kCosts = static_cast<int>(Cost::count_);
const char* name_of(Cost c);
Cost cost_of(MoveKind kind);
constexpr bool communicates(Cost c) { return c >= Cost::all_gather && c <= Cost::send; }

struct StepPrice {
  double seconds =
      0;  // of a kernel: on its last step. Collectives: when all of the group have come
  Cost cost = Cost::memory;
  AtomList atoms;    // collectives
  double bytes = 0;  // collectives: see collective_seconds
};

struct BodyPrice {
  std::vector<StepPrice> steps;
  int kernels = 0;   // collectives too
  double flops = 0;  // as computed: half of causal attention
};

// first: accum writes instead of adding. Collectives get their bytes; seconds are set by
// `collective`.
using CollectivePrice =
    std::function<double(MoveKind kind, AtomList atoms, double bytes, int rank)>;
BodyPrice price_body(const Device& device, const Pricing& pricing, const Mesh& mesh,
                     const LoweredBody& body, int rank, bool first,
                     const CollectivePrice& collective);

}  // namespace myriad
