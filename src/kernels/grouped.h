// Ops on routed rows "ebs...", run by the kernels of ordinary ops: their rows lie one after the
// other, so "ebs" is one label Z. An op is either *plain* ("ebsf,ebs->ebsf" is "Zf,Z->Zf" over all
// rows) or a *grouped* contract, in which something dense has a leading label e ("ebsd,efd->ebsf"
// is "Zd,fd->Zf" for each expert). dispatch, combine, dispatch_w and collect_w are neither.
#pragma once

#include "kernels/kernel.h"

namespace myriad {

inline bool is_routed(std::string_view labels) { return labels.starts_with("ebs"); }

// Of an op that works on rows (ir/graph.h): whether something dense has label e.
bool is_grouped(const Op& op);

// The op with Z for "ebs" and, if grouped, without the label e of dense ones. CHECKs that dense
// ones have no other label of the rows.
Op collapsed(const Op& op);
// Local sizes of the labels of a collapsed op on `rows` rows.
LabelSizes collapsed_sizes(const Op& collapsed, const LabelSizes& local, int64_t rows);

// A grouped contract, one product an expert by the kernel that choose() names for its rows.
// call.op: the collapsed op; call.ins, outs: routed tensors [rows, ...], dense ones with their dim
// e; call.local: sizes of the collapsed op's labels, Z = all rows; call.rows->n and e (local,
// sorted); call.e: the experts here. An expert without rows gives zeros where the output is dense.
// Needs no scratch. Bits do not depend on the workers. If a product fails, so does the call.
KernelStatus run_grouped(const KernelCall& call, DType real, const Kernels& kernels);

}  // namespace myriad
