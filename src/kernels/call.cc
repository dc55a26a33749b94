// The opening that every kernel shares. begin() compares the tensors of a call with what its op
// says of them, so that a wrong size or type stops here with the numbers and not as a wrong result;
// it reports to the meter what memory the kernel may touch, and counts its FLOPs from the sizes of
// the tensors. count_flops() repeats RowInfo::work on purpose: the prediction uses the one and the
// measurement the other, and a test compares them. Read kernels/kernel.h first.
#include "kernels/call.h"

#include <algorithm>

namespace myriad {

void Meter::touch(const void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  if (arena == nullptr || bytes == 0 || first < arena) return;
  const size_t end = static_cast<size_t>(first - arena) + bytes;
  high = std::max(high, (end + kAlignment - 1) / kAlignment * kAlignment);
}

namespace {

void check_sizes(const KernelCall& call, const Tensor& t, const std::string& labels,
                 const RowSet* rows) {
  // In routed rows "ebs" is one dimension; b and s of dense tensors beside them are checked by
  // their kernels (TokensOfRows).
  const bool routed = rows != nullptr && labels.starts_with("ebs");
  const int joined = routed ? 2 : 0;
  CHECK(t.dims + joined == static_cast<int>(labels.size()), "row {}: {} dims for \"{}\"",
        static_cast<int>(call.op->row), t.dims, labels);
  if (routed) {
    CHECK(t.size[0] == rows->n, "row {}: {} rows for {}", static_cast<int>(call.op->row), t.size[0],
          rows->n);
  }
  for (int d = routed ? 1 : 0; d < t.dims; ++d) {
    const char label = labels[d + joined];
    if (call.rows != nullptr && (label == 'b' || label == 's')) continue;
    const int at = call.local.find(label);
    CHECK(at >= 0 && call.local.sizes[at] == t.size[d],
          "row {}: {} of \"{}\" is {} in a tensor, {} in the call", static_cast<int>(call.op->row),
          label, labels, t.size[d], at < 0 ? -1 : call.local.sizes[at]);
  }
}

// The table chose by the types of the op (of which a hand-made op may have none).
void check_types(const KernelCall& call, std::span<const Tensor> tensors,
                 const std::vector<DType>& types) {
  for (size_t i = 0; i < types.size(); ++i) {
    CHECK(tensors[i].dtype == types[i], "row {}: a tensor of {} where the op has {}",
          static_cast<int>(call.op->row), name_of(tensors[i].dtype), name_of(types[i]));
  }
}

// The product of the sizes of all labels, and whether some label is not in the output.
std::pair<double, bool> points(const KernelCall& call) {
  const std::string& out = call.op->out_labels[0];
  double n = static_cast<double>(call.outs[0].elements());
  bool contracted = false;
  for (size_t i = 0; i < call.ins.size(); ++i) {
    const std::string& labels = call.op->in_labels[i];
    for (size_t d = 0; d < labels.size(); ++d) {
      if (out.find(labels[d]) != std::string::npos) continue;
      contracted = true;
      bool seen = false;
      for (size_t j = 0; j < i; ++j)
        seen |= call.op->in_labels[j].find(labels[d]) != std::string::npos;
      if (!seen) n *= static_cast<double>(call.ins[i].size[d]);
    }
  }
  return {n, contracted};
}

double attention_points(const KernelCall& call) {
  return static_cast<double>(call.ins[0].elements() / std::max<int64_t>(1, call.ins[0].size[4])) *
         static_cast<double>(call.ins[1].size[1]);
}

}  // namespace

double count_flops(const KernelCall& call) {
  const auto in = [&](int i) { return static_cast<double>(call.ins[i].elements()); };
  const double operands = static_cast<double>(call.ins.size());
  switch (call.op->row) {
    case Row::contract: {
      const auto [n, contracted] = points(call);
      return n * (contracted ? operands : std::max(operands - 1, 0.0));
    }
    case Row::add:
      return (operands - 1) * in(0);
    case Row::attention:
      return 2 * attention_points(call) *
             static_cast<double>(call.ins[0].size[4] + call.ins[2].size[3]);
    case Row::attention_grad:
      return 2 * attention_points(call) *
             static_cast<double>(3 * call.ins[0].size[4] + 2 * call.ins[2].size[3]);
    case Row::sum_exact:
      return operands * in(0);
    default: {
      const double each = flops_an_element(call.op->row);
      return each > 0 ? each * in(0) : 0;
    }
  }
}

void begin(const KernelCall& call) {
  check_types(call, call.ins, call.op->in_types);
  check_types(call, call.outs, call.op->out_types);
  const bool gathers = call.op->row == Row::collapse;
  for (size_t i = 0; i < call.ins.size(); ++i)
    check_sizes(call, call.ins[i], call.op->in_labels[i],
                call.leads && !gathers ? call.leads : call.rows);
  for (size_t i = 0; i < call.outs.size(); ++i)
    check_sizes(call, call.outs[i], call.op->out_labels[i],
                call.leads && gathers ? call.leads : call.rows);
  if (call.meter == nullptr) return;
  for (const Tensor& t : call.ins) call.meter->touch(t);
  for (const Tensor& t : call.outs) call.meter->touch(t);
  call.meter->touch(call.scratch, call.scratch_bytes);
  call.meter->flops += count_flops(call);
}

void check_topk(const KernelCall& call) {
  const Attrs& a = call.op->attrs;
  const int64_t x = call.ins[0].size[2];
  CHECK(call.outs[0].size[2] == a.k, "topk of {} into {}", a.k, call.outs[0].size[2]);
  CHECK(a.groups == 0 || (x % a.groups == 0 && a.kept_groups <= a.groups),
        "topk: {} of {} groups of {} experts", a.kept_groups, a.groups, x);
  CHECK(a.k <= (a.groups == 0 ? x : x / a.groups * a.kept_groups), "topk: {} of {} experts", a.k,
        x);
}

}  // namespace myriad
