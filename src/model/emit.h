// Emits the global bodies of a model, single-device code that knows nothing of parallelism: forward
// of the embedding, of a layer and of the head, and the optimizer's bodies of each. Backward bodies
// are made from them by `differentiate`.
#pragma once

#include <cstdint>

#include "ir/pieces.h"
#include "model/config.h"

namespace myriad {

// AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101), decoupled decay on parameters of two or
// more dims; gradients are clipped by their global norm.
struct OptimizerConfig {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double clip_norm = 1;  // 0: no clipping
  bool operator==(const OptimizerConfig&) const = default;
};

// Of states, statistics and losses, where activations are of `dtype`: never narrower than f32.
constexpr DType state_type(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }
// Generation instead of training: attention of `sequence` new tokens a row over a cache of keys and
// values, which is a state of `tokens` places a row. Further inputs: cache.slot "bs", where the
// keys of a token go (negative: nowhere), cache.pos and cache.doc "bt", position and document of
// what lies in a place. A query sees what training would let it see. The head makes "logits" and no
// loss, and experts take all their choices, whatever the capacity in training: what a token gets
// must not depend on who else is there. context: the length that TeleChat2's rotary table is made
// for.
struct CacheShape {
  int64_t tokens = 0;  // 0: no cache
  int64_t context = 0;
};

// Pieces "emb", "layer" (if there are dense layers), "moe" (if there are expert layers), "head",
// then "tied" (if the head uses the embedding's weight) and "finish", see ir/pieces.h. Sizes are
// those of one micro-batch of the whole model: `rows` sequences of `sequence` tokens; a step is
// `step_rows` of them (0: as many), which only the update of correction biases asks for. `dtype` is
// the type of activations and products; real, below, is state_type(dtype). Inputs, by name:
//
//   ids, targets, pos, doc   i32 "bs": token, next token (negative: no loss), position in its
//                            document, document number
//   x                        dtype "bsd", of layer, moe and head
//   inv_n                    real, of head: 1 / number of targets in the step, gradient of "loss"
//   balance_coef, z_coef     real, of moe: the coefficient / number of micro-batches in the step,
//                            gradients of "aux" and "zloss"
//   factor, lr, left1, left2 f64, of update bodies; left1 = 1 - beta1^step, left2 = 1 - beta2^step
//   live                     f64, of finish: 0 for no update in this step, else anything (1)
//
// finish.update outputs f64 scalars "factor", "norm" (before clipping), "loss" (sum over targets)
// and, if their coefficients are not 0, "aux" and "zloss": the plain router losses, summed over
// expert layers and micro-batches. An expert layer counts in state "c:counts" (real "x") the
// choices that each expert got in the step, dropped ones too.
Pieces emit_model(const ModelConfig& config, int64_t rows, int64_t sequence, DType dtype,
                  const OptimizerConfig& optimizer, int64_t step_rows = 0,
                  const CacheShape& cache = {});

}  // namespace myriad
