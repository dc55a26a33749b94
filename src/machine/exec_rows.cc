#include "machine/exec_rows.h"

#include "base/error.h"
#include "kernels/grouped.h"
#include "kernels/rows.h"

namespace myriad {

const BoxRows& RoundRows::get(const Tensor& choices, const Box3& box) {
  for (size_t i = 0; i < used_; ++i) {
    if (boxes_[i].box == box && boxes_[i].choices == choices.data) return boxes_[i];
  }
  if (used_ == boxes_.size()) boxes_.emplace_back();
  BoxRows& rows = boxes_[used_++];
  rows.box = box;
  rows.choices = choices.data;
  const bool empty = box.e.size() <= 0 || box.b.size() <= 0 || box.s.size() <= 0;
  CHECK(empty || (box.b.lo >= choices.lo[0] && box.b.hi <= choices.lo[0] + choices.size[0] &&
                  box.s.lo >= choices.lo[1] && box.s.hi <= choices.lo[1] + choices.size[1]),
        "rows [{}, {}) x [{}, {}) lie outside the choices at hand", box.b.lo, box.b.hi, box.s.lo,
        box.s.hi);
  enumerate_rows(choices, box.e, box.b, box.s, rows.e, rows.b, rows.s);
  rows.set = {static_cast<int64_t>(rows.e.size()), rows.e.data(), rows.b.data(), rows.s.data()};
  return rows;
}

void RowChoice::take(const BoxRows& rows, const Box3& within) {
  index_.clear();
  const auto in = [](const Range& range, int64_t x) { return x >= range.lo && x < range.hi; };
  for (int64_t i = 0; i < rows.set.n; ++i) {
    if (in(within.e, rows.box.e.lo + rows.e[i]) && in(within.b, rows.box.b.lo + rows.b[i]) &&
        in(within.s, rows.box.s.lo + rows.s[i])) {
      index_.push_back(static_cast<int32_t>(i));
    }
  }
  list = {static_cast<int64_t>(index_.size()), index_.data()};
}

KernelStatus run_on_rows(KernelCall call, DType real, const Kernels& kernels) {
  call.local = collapsed_sizes(*call.op, call.local, call.rows->n);
  const bool dense_experts = [&] {
    for (const auto* tensors : {&call.ins, &call.outs}) {
      for (size_t i = 0; i < tensors->size(); ++i) {
        const auto& labels = tensors == &call.ins ? call.op->in_labels : call.op->out_labels;
        if ((*tensors)[i].dims > static_cast<int>(labels[i].size())) return true;
      }
    }
    return false;
  }();
  if (dense_experts) return run_grouped(call, real, kernels);
  const KernelChoice& choice = kernels.choose(*call.op, call.local, real);
  call.scratch_bytes = choice.scratch ? choice.scratch(*call.op, call.local, real) : 0;
  return choice.run(call);
}

}  // namespace myriad
