// Fast kernels: f32, those of what flows through a model also on bf16 storage (a call with f64
// tensors is handed to the reference). All compute in f32. Each is parallel over a fixed grid. The
// *_declines say which contracts a kernel takes; the others take every call of their row.
#pragma once

#include "kernels/kernel.h"

namespace myriad::fast {

const char* takes_f32(const Op& op, const LabelSizes& local, DType real);
const char* takes_f32_or_bf16(const Op& op, const LabelSizes& local, DType real);

// contract.cc. A matrix product: labels part into M (A and output), N (B and output), K (A and B),
// each a run of letters in the same order in both places.
const char* gemm_declines(const Op& op, const LabelSizes& local, DType real);
void gemm(const KernelCall& call);
// The same of at most kFewRows rows, as generation has them: A is read as it lies, and the bits of
// a row depend on nothing but that row and B, in whatever company it comes.
inline constexpr int64_t kFewRows = 16;
const char* few_declines(const Op& op, const LabelSizes& local, DType real);
void few(const KernelCall& call);
// reduce.cc. No label is contracted; along the last output loop every operand moves by 0 or 1.
// Broadcast as well.
const char* map_declines(const Op& op, const LabelSizes& local, DType real);
void map(const KernelCall& call);
// The same along the last contracted loop: "bsd,bsd->bs".
const char* dot_declines(const Op& op, const LabelSizes& local, DType real);
void dot(const KernelCall& call);
// The same along the last output loop, contracted labels before it: "bsd,bs->d".
const char* columns_declines(const Op& op, const LabelSizes& local, DType real);
void columns(const KernelCall& call);

// declines.cc: what the fixed buffers of the kernels below hold.
inline constexpr int kMostTerms = 16;                         // operands of an add
inline constexpr int64_t kMostPairs = 512;                    // rope: of one head
inline constexpr int64_t kMostPicks = 64, kMostGroups = 256;  // topk
const char* add_declines(const Op& op, const LabelSizes& local, DType real);
const char* rope_declines(const Op& op, const LabelSizes& local, DType real);
const char* topk_declines(const Op& op, const LabelSizes& local, DType real);
const char* unpick_declines(const Op& op, const LabelSizes& local, DType real);
const char* scatter_rows_declines(const Op& op, const LabelSizes& local, DType real);
const char* sum_exact_declines(const Op& op, const LabelSizes& local, DType real);

void add(const KernelCall& call);  // elementwise.cc
void cast(const KernelCall& call);
void silu(const KernelCall& call);
void silu_grad(const KernelCall& call);
void gelu(const KernelCall& call);
void gelu_grad(const KernelCall& call);
void max_stop(const KernelCall& call);
void sum_exp(const KernelCall& call);
void exp_scale(const KernelCall& call);
void rope(const KernelCall& call);
void adamw(const KernelCall& call);

void unpick(const KernelCall& call);  // indexed.cc
void gather_rows(const KernelCall& call);
void scatter_rows(const KernelCall& call);

void sigmoid(const KernelCall& call);  // router.cc
void softmax(const KernelCall& call);
void topk(const KernelCall& call);

void dispatch(const KernelCall& call);  // routed.cc
void combine(const KernelCall& call);
size_t combine_scratch(const Op& op, const LabelSizes& local, DType real);

void sum_exact(const KernelCall& call);  // exact.cc
size_t sum_exact_scratch(const Op& op, const LabelSizes& local, DType real);

void attention(const KernelCall& call);  // attention.cc
size_t attention_scratch(const Op& op, const LabelSizes& local, DType real);
void attention_grad(const KernelCall& call);
size_t attention_grad_scratch(const Op& op, const LabelSizes& local, DType real);

}  // namespace myriad::fast
