// What the fast kernels do not take, and why. Types, labels and local sizes decide, so that a
// kernel that was chosen runs every call it is given.
#include <algorithm>

#include "kernels/fast/fast.h"

namespace myriad::fast {

namespace {

// Rows whose operands without labels may be of any type: the kernels read them one by one.
bool reads_any_scalar(Row row) {
  return row == Row::contract || row == Row::broadcast || row == Row::adamw;
}

bool has_f64(const Op& op) {
  for (size_t i = 0; i < op.in_types.size(); ++i) {
    if (op.in_types[i] != DType::f64) continue;
    if (!op.in_labels[i].empty() || !reads_any_scalar(op.row)) return true;
  }
  return std::find(op.out_types.begin(), op.out_types.end(), DType::f64) != op.out_types.end();
}

bool has_bf16(const Op& op) {
  const auto in = [](const std::vector<DType>& types) {
    return std::find(types.begin(), types.end(), DType::bf16) != types.end();
  };
  return in(op.in_types) || in(op.out_types);
}

}  // namespace

const char* takes_f32(const Op& op, const LabelSizes&, DType real) {
  return real == DType::f32 && !has_f64(op) && !has_bf16(op) ? nullptr : "f32 only";
}

const char* takes_f32_or_bf16(const Op& op, const LabelSizes&, DType real) {
  return real == DType::f32 && !has_f64(op) ? nullptr : "f32 and bf16 only";
}

const char* add_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32_or_bf16(op, local, real)) return reason;
  return op.ins.size() <= kMostTerms ? nullptr : "more than 16 operands";
}

const char* rope_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32_or_bf16(op, local, real)) return reason;
  const int64_t h = local.at(op.in_labels[0].back());
  if (h == 0) return "no pairs";
  return h / 2 <= kMostPairs ? nullptr : "more than 512 pairs";
}

const char* topk_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32(op, local, real)) return reason;
  const Attrs& a = op.attrs;
  if (a.k > kMostPicks) return "more than 64 choices";
  if (a.groups > kMostGroups) return "more than 256 groups";
  return a.kept_groups <= kMostPicks ? nullptr : "more than 64 groups stay";
}

const char* unpick_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32_or_bf16(op, local, real)) return reason;
  return op.in_labels[1].size() < op.out_labels[0].size() ? nullptr : "more than one index a row";
}

const char* scatter_rows_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32_or_bf16(op, local, real)) return reason;
  const bool narrow = !op.out_types.empty() && op.out_types[0] == DType::bf16;
  return narrow ? "sums in a bf16 table" : nullptr;
}

const char* sum_exact_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32(op, local, real)) return reason;
  return op.ins.size() <= 2 ? nullptr : "products of more than two factors are rounded";
}

}  // namespace myriad::fast
