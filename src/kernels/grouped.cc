// A product of routed rows with the weights of their experts. The rows are sorted by expert, so the
// rows of one expert are one block of memory and its product is an ordinary contract: with_expert()
// cuts the tensors of a call down to that block and the expert's weights, and the kernel that the
// table names for those sizes runs on them. Read kernels/grouped.h first.
#include "kernels/grouped.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "kernels/call.h"
#include "kernels/loops.h"

namespace myriad {

namespace {

template <class F>
bool any_labels(const Op& op, F f) {
  return std::any_of(op.in_labels.begin(), op.in_labels.end(), f) ||
         std::any_of(op.out_labels.begin(), op.out_labels.end(), f);
}

bool is_dense_by_expert(const std::string& labels) {
  return !is_routed(labels) && labels.find('e') != std::string::npos;
}

std::string collapsed_labels(const std::string& labels, bool grouped) {
  if (is_routed(labels)) {
    std::string rows = labels.substr(2);
    rows[0] = 'Z';
    return rows;
  }
  const std::string rest = grouped && labels.starts_with('e') ? labels.substr(1) : labels;
  CHECK(rest.find_first_of("ebs") == std::string::npos, "\"{}\" beside routed rows", labels);
  return rest;
}

// The range of the rows of one expert.
Range rows_of(const RowSet& rows, int64_t expert) {
  const auto [lo, hi] = std::equal_range(rows.e, rows.e + rows.n, static_cast<int32_t>(expert));
  return {lo - rows.e, hi - rows.e};
}

// The part of a tensor that the product of one expert works on.
Tensor part(Tensor t, const std::string& labels, int64_t expert, Range rows) {
  if (labels.starts_with('Z')) {
    const size_t all = t.bytes();
    if (all > 0) t.data += all / static_cast<size_t>(t.size[0]) * static_cast<size_t>(rows.lo);
    t.size[0] = rows.size();
    return t;
  }
  if (t.dims == static_cast<int>(labels.size())) return t;  // without e
  std::copy(t.size + 1, t.size + t.dims, t.size);
  std::copy(t.lo + 1, t.lo + t.dims, t.lo);
  --t.dims;
  t.data += t.bytes() * static_cast<size_t>(expert);
  return t;
}

// Calls f with the call of one expert.
template <class F>
void with_expert(const KernelCall& call, int64_t expert, F f) {
  const Range rows = rows_of(*call.rows, expert);
  std::array<Tensor, kMaxOperands> ins;
  for (size_t i = 0; i < call.ins.size(); ++i) {
    ins[i] = part(call.ins[i], call.op->in_labels[i], expert, rows);
  }
  const Tensor out = part(call.outs[0], call.op->out_labels[0], expert, rows);
  f(KernelCall{.op = call.op,
               .ins = std::span(ins).first(call.ins.size()),
               .outs = {&out, 1},
               .local = collapsed_sizes(*call.op, call.local, rows.size()),
               .meter = call.meter});
}

}  // namespace

bool is_grouped(const Op& op) { return works_on_rows(op) && any_labels(op, is_dense_by_expert); }

Op collapsed(const Op& op) {
  const bool grouped = is_grouped(op);
  CHECK(!grouped || (op.row == Row::contract && op.in_labels.size() <= kMaxOperands &&
                     op.out_labels[0].starts_with('e')),
        "grouped op \"{}\" -> \"{}\"", op.in_labels[0], op.out_labels[0]);
  Op to = op;
  to.size = {};
  int64_t rows = 1;
  for (char l : {'e', 'b', 's'}) rows *= op.size.at(l);
  const auto collapse = [&](std::string& labels) {
    labels = collapsed_labels(labels, grouped);
    for (char l : labels) to.size.set(l, l == 'Z' ? rows : op.size.at(l));
  };
  std::for_each(to.in_labels.begin(), to.in_labels.end(), collapse);
  std::for_each(to.out_labels.begin(), to.out_labels.end(), collapse);
  return to;
}

LabelSizes collapsed_sizes(const Op& collapsed, const LabelSizes& local, int64_t rows) {
  LabelSizes sizes = collapsed.size;
  for (size_t i = 0; i < sizes.sizes.size(); ++i) {
    const char l = sizes.labels[i];
    sizes.sizes[i] = l == 'Z' ? rows : local.at(l);
  }
  return sizes;
}

// Products too small to be shared are run side by side, the others one after the other on the whole
// pool. Either way each is cut into the same tiles.
KernelStatus run_grouped(const KernelCall& call, DType real, const Kernels& kernels) {
  constexpr int64_t kSharedPoints = int64_t{1} << 24;
  const int64_t experts = call.e.size();
  std::atomic<KernelStatus> status = KernelStatus::ok;
  const auto run = [&](KernelCall each, Pool* pool) {
    const KernelChoice& choice = kernels.choose(*each.op, each.local, real);
    CHECK(choice.scratch == nullptr, "{} wants scratch", choice.name);
    each.meter = nullptr;  // counted before, on the thread of the rank
    each.pool = pool;
    const KernelStatus ended = choice.run(each);
    if (ended != KernelStatus::ok) status.store(ended);
  };
  const auto shared = [&](const KernelCall& each) {
    int64_t n = 1;
    for (int64_t size : each.local.sizes) n *= size;
    return n > kSharedPoints;
  };
  for (int64_t i = 0; i < experts; ++i) {
    with_expert(call, i, [&](const KernelCall& each) {
      begin(each);
      if (shared(each)) run(each, call.pool);
    });
  }
  parallel(call.pool, experts, [&](int64_t i) {
    with_expert(call, i, [&](const KernelCall& each) {
      if (!shared(each)) run(each, nullptr);
    });
  });
  return status;
}

}  // namespace myriad
