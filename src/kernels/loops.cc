#include "kernels/loops.h"

namespace myriad {

namespace {

// The stride of `label` in a row-major tensor; 0 if the tensor does not have it.
int64_t stride_of(const std::string& labels, char label, const LabelSizes& local) {
  int64_t stride = 0, step = 1;
  for (int d = static_cast<int>(labels.size()) - 1; d >= 0; --d) {
    if (labels[d] == label) stride += step;
    step *= local.at(labels[d]);
  }
  return stride;
}

bool mergeable(const Loop& outer, const Loop& inner) {
  for (int i = 0; i <= kOut; ++i) {
    if (outer.stride[i] != inner.stride[i] * inner.size) return false;
  }
  return true;
}

void append(std::array<Loop, LoopNest::kMaxLoops>& loops, int& n, const Loop& loop) {
  if (loop.size == 1) return;
  if (n > 0 && mergeable(loops[n - 1], loop)) {
    loops[n - 1] = {loops[n - 1].size * loop.size, loop.stride};
    return;
  }
  CHECK(n < LoopNest::kMaxLoops);
  loops[n++] = loop;
}

}  // namespace

LoopNest make_nest(const Op& op, const LabelSizes& local) {
  CHECK(op.ins.size() <= kMaxOperands, "contract of {} operands", op.ins.size());
  LoopNest nest;
  for (size_t i = 0; i < op.in_labels.size(); ++i) {
    if (!op.in_labels[i].empty()) nest.operand[nest.operands++] = static_cast<int>(i);
  }
  const std::string& out = op.out_labels[0];
  const auto loop_over = [&](char label) {
    Loop loop{.size = local.at(label)};
    for (int k = 0; k < nest.operands; ++k) {
      loop.stride[k] = stride_of(op.in_labels[nest.operand[k]], label, local);
    }
    loop.stride[kOut] = stride_of(out, label, local);
    return loop;
  };
  for (char label : out) append(nest.out, nest.outs, loop_over(label));
  std::string seen = out;
  for (const std::string& labels : op.in_labels) {
    for (char label : labels) {
      if (seen.find(label) != std::string::npos) continue;
      seen += label;
      append(nest.sum, nest.sums, loop_over(label));
    }
  }
  return nest;
}

bool LoopNest::streams(const Loop& loop) const {
  for (int k = 0; k < operands; ++k) {
    if (loop.stride[k] != 0 && loop.stride[k] != 1) return false;
  }
  return true;
}

int64_t points(std::span<const Loop> loops) {
  int64_t n = 1;
  for (const Loop& loop : loops) n *= loop.size;
  return n;
}

Walk::Walk(std::span<const Loop> loops, int64_t start) : loops_(loops) {
  for (int d = static_cast<int>(loops.size()) - 1; d >= 0; --d) {
    index_[d] = loops[d].size == 0 ? 0 : start % loops[d].size;
    start = loops[d].size == 0 ? 0 : start / loops[d].size;
    for (int i = 0; i <= kOut; ++i) at_[i] += loops[d].stride[i] * index_[d];
  }
}

}  // namespace myriad
