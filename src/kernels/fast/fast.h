// Fast kernels for f32; those of what flows through a model take bf16 storage as well, and compute
// in f32 on it. None takes f64. Each is parallel over a fixed grid, so that its bits do not depend
// on the workers. A function X_declines says which calls of its row the kernel X takes (null: this
// one; else the reason), and X_scratch how many bytes it needs. What the functions without one take
// is said by takes_f32 and takes_f32_or_bf16; the table (kernels/table.cc) joins them. Labels of
// operands and outputs stand beside the functions of ref/ref.h; they are the same here.
#pragma once

#include "kernels/kernel.h"

namespace myriad::fast {

// declines.cc. No tensor is f64 (nor bf16): scalars of contract, broadcast and adamw may be f64.
const char* takes_f32(const Op& op, const LabelSizes& local, DType real);
const char* takes_f32_or_bf16(const Op& op, const LabelSizes& local, DType real);

// contract.cc. A matrix product: labels divide into M (A and output), N (B and output), K (A and
// B), each a run of letters in the same order in both places: "bsd,fd->bsf" has M = bs, N = f, K =
// d. Operands without labels join the scale.
const char* gemm_declines(const Op& op, const LabelSizes& local, DType real);
void gemm(const KernelCall& call);
// The same of at most kFewRows rows of M, as generation has them, on f32 only. A is read as it is
// in memory, and the bits of a row depend on nothing but that row and B, whatever rows come with
// it.
inline constexpr int64_t kFewRows = 16;
const char* few_declines(const Op& op, const LabelSizes& local, DType real);
void few(const KernelCall& call);
// reduce.cc. No label is contracted, and along the last output loop every operand moves by 0 or 1:
// "bsd,bs->bsd". Serves broadcast as well: "bs->bsd".
const char* map_declines(const Op& op, const LabelSizes& local, DType real);
void map(const KernelCall& call);
// The same along the last contracted loop: "bsd,bsd->bs".
const char* dot_declines(const Op& op, const LabelSizes& local, DType real);
void dot(const KernelCall& call);
// The same along the last output loop, with the contracted labels before it: "bsd,bs->d".
const char* columns_declines(const Op& op, const LabelSizes& local, DType real);
void columns(const KernelCall& call);

// declines.cc. What the fixed buffers of the kernels below hold.
inline constexpr int kMostTerms = 16;                         // operands of an add
inline constexpr int64_t kMostPairs = 512;                    // rope: of one head
inline constexpr int64_t kMostPicks = 64, kMostGroups = 256;  // topk
const char* add_declines(const Op& op, const LabelSizes& local, DType real);
const char* rope_declines(const Op& op, const LabelSizes& local, DType real);
const char* topk_declines(const Op& op, const LabelSizes& local, DType real);
const char* unpick_declines(const Op& op, const LabelSizes& local, DType real);
const char* scatter_rows_declines(const Op& op, const LabelSizes& local, DType real);
const char* sum_exact_declines(const Op& op, const LabelSizes& local, DType real);

// elementwise.cc
void add(const KernelCall& call);  // up to kMostTerms operands
void cast(const KernelCall& call);
void silu(const KernelCall& call);
void silu_grad(const KernelCall& call);
void gelu(const KernelCall& call);
void gelu_grad(const KernelCall& call);
void max_stop(const KernelCall& call);
void sum_exp(const KernelCall& call);
void exp_scale(const KernelCall& call);
void rope(const KernelCall& call);   // h from 2 to 2 kMostPairs
void adamw(const KernelCall& call);  // f32 states

// indexed.cc
void unpick(const KernelCall& call);  // bs, bs -> bsv: one index a row
void gather_rows(const KernelCall& call);
void scatter_rows(const KernelCall& call);  // into an f32 table

// router.cc. f32 only.
void sigmoid(const KernelCall& call);
void softmax(const KernelCall& call);
void topk(const KernelCall& call);

// routed.cc
void dispatch(const KernelCall& call);
void combine(const KernelCall& call);
size_t combine_scratch(const Op& op, const LabelSizes& local, DType real);

// exact.cc. One or two factors of f32.
void sum_exact(const KernelCall& call);
size_t sum_exact_scratch(const Op& op, const LabelSizes& local, DType real);

// attention.cc
void attention(const KernelCall& call);
size_t attention_scratch(const Op& op, const LabelSizes& local, DType real);
void attention_grad(const KernelCall& call);
size_t attention_grad_scratch(const Op& op, const LabelSizes& local, DType real);

}  // namespace myriad::fast
