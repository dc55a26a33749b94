// How a run is laid out, as plain data: the `layout:` part of a run file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace myriad {

// What a layer's backward pass recomputes: nothing; all but the outputs of matrix products and of
// attention (Row's engine, is_product); everything.
enum class Recompute : uint8_t { none, selective, full };
// How rows of experts are sent from node to node, see docs/experts.md.
enum class Dispatch : uint8_t { flat, node_gather, node_relay };
const char* name_of(Dispatch dispatch);
enum class GradReduce : uint8_t { automatic, step, micro_batch };

struct Plan {
  int dp = 1, cp = 1, tp = 1, pp = 1, vpp = 1;  // cp: ranks that share a row, ir/sequence.h
  int micro_batches = 1;
  int zero = 0;
  bool sp = false;
  int ep = 1, etp = 1;  // experts refold dp x cp x tp as expert-dp (slowest), ep, etp (fastest)
  double expert_rows_bound = 2;  // rows of routed choices a rank takes a round, over an even share
  Dispatch dispatch = Dispatch::flat;
  int ranks_per_node = 0;  // node of rank r: r / ranks_per_node; 0: one node holds all
  std::string schedule;    // of ir/schedules.h; empty: interleaved when vpp > 1, else 1f1b
  Recompute recompute = Recompute::none;
  GradReduce grad_reduce = GradReduce::automatic;  // step for zero 0 and 1, else micro_batch
  std::vector<int> stages;               // layers of each virtual stage; empty: the cut rule
  std::string rules;                     // further lines of wanted layouts
  std::map<std::string, double> prices;  // by axis: factor on bytes sent over it
  bool operator==(const Plan&) const = default;
  int ranks() const { return dp * cp * tp * pp; }
};

// Throws Error naming rule, values and nearest legal values; fills in what was left to a default.
// rows: of a step (tokens_per_step / sequence_length).
Plan resolve(Plan plan, int layers, int64_t rows);

// What a plan cuts: rows of a step and their length, and a model (top_k: of its experts).
struct CutSizes {
  int64_t rows = 1, sequence = 1, layers = 1, kv_heads = 1, heads = 1, ffn = 1, vocabulary = 1,
          top_k = 0;
};

// What is legal but costs more than it seems, one sentence each ("kv heads 3 over tp 2: ...").
std::vector<std::string> warnings(const Plan& plan, const CutSizes& sizes);

// On how many nodes the ranks of one ep group (with its etp) are; 0: nodes hold unequal numbers of
// them.
int nodes_of_experts(const Plan& plan);

// One line: "dp 2 x tp 2 x pp 2, vpp 2, 4 micro-batches, zero 1, sp, interleaved".
std::string show(const Plan& plan);

// tp = tg x tr: tg is the divisor of tp with the least ceil(groups / tg) * ceil(queries / tr), ties
// to the larger.
int kv_cut(int tp, int64_t groups, int64_t queries);

}  // namespace myriad
