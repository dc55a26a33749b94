// Kernels in plain loops for f32, f64 and bf16: the oracle for the fast ones, and what f64 runs on.
// Sums are kept in double and rounded once, unless a line says otherwise. All run in line and take
// any sizes. Beside each function stand the labels of its operands and outputs (ir/graph.h says
// what a letter means); "..." is any labels, the same everywhere in a line, and an empty place is a
// scalar.
#pragma once

#include "kernels/kernel.h"

namespace myriad::ref {

// ref/contract.cc
void contract(const KernelCall& call);   // 1 to 4 operands of any labels -> any of these labels
void broadcast(const KernelCall& call);  // some of the labels -> all: "bs->bsd", "d->bsd"

// ref/elementwise.cc. The functions of one number are in ref/elementwise.h.
void add(const KernelCall& call);    // ...,...,... -> ...: any number of operands
void cast(const KernelCall& call);   // ... -> ... of another real type
void rsqrt(const KernelCall& call);  // ... -> ...

// ref/loss.cc. z holds the logits; m is the maximum of a row.
void max_stop(const KernelCall& call);   // z ...v -> m ...
void sum_exp(const KernelCall& call);    // z ...v, m ... -> ...
void exp_scale(const KernelCall& call);  // z ...v, m ..., dy ... -> ...v
void valid(const KernelCall& call);      // targets ... (i32) -> ...

// ref/indexed.cc. Indices are i32 and global.
void pick(const KernelCall& call);          // z bsv, bs -> bs, or z bsx, bsj -> bsj
void unpick(const KernelCall& call);        // bs, bs -> bsv, or bsj, bsj -> bsx
void gather_rows(const KernelCall& call);   // table vd, bs -> bsd
void scatter_rows(const KernelCall& call);  // bsd, bs -> vd; sums in the table's own type, in order
void place_rows(const KernelCall& call);    // cache btgh, bsgh, places bs -> btgh
void slice(const KernelCall& call);         // any labels -> the same with attrs.label as attrs.to
void pad(const KernelCall& call);           // its transpose

// ref/router.cc
void softmax(const KernelCall& call);  // ...x -> ...x, over the last label
void topk(const KernelCall& call);     // bsx -> bsj (i32), or bsx, bias x -> bsj
size_t topk_scratch(const Op& op, const LabelSizes& local, DType real);
void balance(const KernelCall& call);  // bias x, counts x, factor -> x

// ref/choices.cc. Choices are i32; a negative one is none.
void count(const KernelCall& call);   // choices bsj -> x (or bx)
void fits(const KernelCall& call);    // choices bsj -> bsj
void window(const KernelCall& call);  // choices bsj -> bsj (i32)
void rounds(const KernelCall& call);  // choices bsj -> scalar (i32)
size_t experts_scratch(const Op& op, const LabelSizes& local, DType real);  // of all but count

// ref/routed.cc and ref/relay.cc. A tensor "ebs..." has dimensions [rows, ...].
void dispatch(const KernelCall& call);  // bsd, choices bsj -> ebsd
// ebsd, choices bsj -> bsd. Sums in the tensor's own type (bf16: in float), in the order of rows.
void combine(const KernelCall& call);
void leads(const KernelCall& call);       // choices bsj -> bsj (i32)
void spread(const KernelCall& call);      // ebsd of leads, leads bsj, choices bsj -> ebsd
void collapse(const KernelCall& call);    // ebsd, leads bsj, choices bsj -> ebsd of leads
void dispatch_w(const KernelCall& call);  // weights bsj, choices bsj -> ebs
void collect_w(const KernelCall& call);   // ebs, choices bsj -> bsj

// ref/attention.cc. Positions and documents are i32.
void rope(const KernelCall& call);  // x bsgrh or bsgh, positions bs -> as x
// q bsgrh, k btgh, v btgu, pos bs, pos bt, doc bs, doc bt -> o bsgru, lse bsgr
void attention(const KernelCall& call);
// q, k, v, o, lse, do bsgru, pos bs, pos bt, doc bs, doc bt -> dq bsgrh, dk btgh, dv btgu
void attention_grad(const KernelCall& call);
size_t attention_scratch(const Op& op, const LabelSizes& local, DType real);
size_t attention_grad_scratch(const Op& op, const LabelSizes& local, DType real);

// ref/optimizer.cc
void sum_exact(const KernelCall& call);     // ..., ... -> scalar (exact): any number of factors
void clip(const KernelCall& call);          // sum of squares (exact), live -> factor, norm (f64)
void settle_exact(const KernelCall& call);  // exact scalar -> f64 scalar
// p, g, m, v of equal labels, then the scalars factor, lr, left1, left2 -> p, m, v
void adamw(const KernelCall& call);

}  // namespace myriad::ref
