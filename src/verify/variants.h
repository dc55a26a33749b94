// Tiny models of odd sizes with their data, and the layouts to try them in: what verify_layouts and
// random_layouts run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/job.h"

namespace myriad {

// A model and the steps to train it. Every layout of a variant sees the same rows.
struct Variant {
  std::string name;
  ModelConfig model;
  int64_t rows = 5, sequence = 7;
  std::vector<Batch> steps;  // a step may have no valid target
  DType real = DType::f64;
  // Router losses and capacity are those of a micro-batch: one rank with as many is the reference.
  bool by_micro_batch() const;
};

enum class Targets : uint8_t {
  most,    // every seventh is masked
  slices,  // so many that some ranks, rows and micro-batches have none; in the second step nobody
           // has
};

// Documents are packed where `packed`: several to a row, positions start anew in each.
Batch make_batch(const Variant& variant, int step, bool packed, Targets targets);

// "base" and then the others: tied, packed, masked, uneven (kv heads and vocabulary that do not
// divide), huge (logits so large that only their true maximum keeps exp in range), few (rows fewer
// than dp), qwen3, telechat; of experts experts (losses, softmax), capacity, groups (sigmoid, bias
// update, a shared expert, a dense layer), sequence (losses by row); in bf16: bf16 (the base),
// bf16tied, bf16experts.
std::vector<Variant> all_variants();

// The variant's type, reference kernels, AdamW with eps 1e-3, so that noise in vanishing gradients
// stays noise.
JobConfig job_config(const Variant& variant, const Plan& plan);

// All resolved layouts of a variant with at most so many ranks whose programs differ: what has no
// effect (a schedule of one micro-batch, the moment of reduction without ZeRO-2, ...) is not
// varied. Of expert models also each ep and etp, and with ep a bound on rows that takes several
// rounds.
std::vector<Plan> all_plans(const Variant& variant, int max_ranks);

// A selection in which every pair of values of any two settings occurs that occurs in `plans`;
// greedy, ties by seed. Then `more` others by seed.
std::vector<Plan> pairwise(const std::vector<Plan>& plans, uint64_t seed, size_t more = 0);

}  // namespace myriad
