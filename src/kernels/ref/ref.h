// Plain-loop kernels for f32, f64 and bf16: the oracle for the fast ones, and what f64 runs on.
// Sums are kept in double and rounded once, unless a line says otherwise. All run in line and take
// any sizes.
#pragma once

#include "kernels/kernel.h"

namespace myriad::ref {

void contract(const KernelCall& call);  // ref/contract.cc
void broadcast(const KernelCall& call);

void add(const KernelCall& call);  // ref/elementwise.cc
void cast(const KernelCall& call);
void rsqrt(const KernelCall& call);
void recip(const KernelCall& call);
void log(const KernelCall& call);
void silu(const KernelCall& call);
void silu_grad(const KernelCall& call);
void gelu(const KernelCall& call);
void gelu_grad(const KernelCall& call);

void max_stop(const KernelCall& call);  // ref/loss.cc; the last label of z is reduced
void sum_exp(const KernelCall& call);
void exp_scale(const KernelCall& call);
void valid(const KernelCall& call);

void pick(const KernelCall& call);  // ref/indexed.cc
void unpick(const KernelCall& call);
void gather_rows(const KernelCall& call);
void scatter_rows(const KernelCall& call);  // sums in the tensor's own type, in the order of rows
void place_rows(const KernelCall& call);
void slice(const KernelCall& call);
void pad(const KernelCall& call);

void sigmoid(const KernelCall& call);  // ref/router.cc
void sigmoid_grad(const KernelCall& call);
void softmax(const KernelCall& call);
void topk(const KernelCall& call);
size_t topk_scratch(const Op& op, const LabelSizes& local, DType real);
void balance(const KernelCall& call);

void count(const KernelCall& call);  // ref/choices.cc
void fits(const KernelCall& call);
void window(const KernelCall& call);
void rounds(const KernelCall& call);
size_t experts_scratch(const Op& op, const LabelSizes& local, DType real);  // but for count

void dispatch(const KernelCall& call);  // ref/routed.cc
void combine(const KernelCall&
                 call);  // sums in the tensor's own type (bf16: in float), in the order of rows
void leads(const KernelCall& call);
void spread(const KernelCall& call);
void collapse(const KernelCall& call);
void dispatch_w(const KernelCall& call);
void collect_w(const KernelCall& call);

void rope(const KernelCall& call);  // ref/attention.cc
void attention(const KernelCall& call);
void attention_grad(const KernelCall& call);
size_t attention_scratch(const Op& op, const LabelSizes& local, DType real);
size_t attention_grad_scratch(const Op& op, const LabelSizes& local, DType real);

void sum_exact(const KernelCall& call);  // ref/optimizer.cc
void clip(const KernelCall& call);
void settle_exact(const KernelCall& call);
void adamw(const KernelCall& call);

}  // namespace myriad::ref
