// Contracts that are matrix products. read_product() finds out whether the labels of the operands
// part into rows, columns and contracted ones that lie one after the other in memory; then no
// operand has to be copied or transposed, and the contract is one call of the matrix library with
// strides. Products of few rows, which generation makes one after the other, have a kernel of their
// own, whose sums do not depend on how many rows come together. Read fast/fast.h first; the
// products themselves are in fast/matrix.cc and fast/vector_few.cc.
#include <algorithm>
#include <cmath>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/floats.h"
#include "kernels/fast/matrix.h"
#include "kernels/fast/vector.h"

namespace myriad::fast {

namespace {

// A contract of two operands (besides scalars) read as a matrix product.
struct Product {
  int a = -1, b = -1;  // operands; the rows of the output are labels of a
  bool ta = false, tb = false;
  std::string_view m, n, k;
};

bool in(std::string_view labels, char c) { return labels.find(c) != std::string_view::npos; }

// Splits the letters of `labels` into those that `other` has as well (shared) and those that it has
// not (own). `ok` if each of the two is one run.
struct Split {
  bool ok = false, shared_first = false;
  std::string_view own, shared;
};
Split split(std::string_view labels, std::string_view other) {
  size_t changes = 0, at = labels.size();
  for (size_t i = 1; i < labels.size(); ++i) {
    if (in(other, labels[i]) != in(other, labels[i - 1])) ++changes, at = i;
  }
  if (changes > 1 || labels.empty()) return {};
  const bool shared_first = in(other, labels[0]);
  const auto first = labels.substr(0, at), second = labels.substr(at);
  return {true, shared_first, shared_first ? second : first, shared_first ? first : second};
}

// Fills `p` and returns null, or returns the reason why the op is no matrix product.
const char* read_product(const Op& op, Product& p) {
  int count = 0;
  for (size_t i = 0; i < op.in_labels.size(); ++i) {
    if (op.in_labels[i].empty()) continue;
    (count++ == 0 ? p.a : p.b) = static_cast<int>(i);
  }
  if (count != 2) return "needs two operands";
  const std::string_view out = op.out_labels[0];
  // The operand whose own labels begin the output is A.
  if (!out.empty() && !in(op.in_labels[p.a], out[0])) std::swap(p.a, p.b);
  const std::string_view a = op.in_labels[p.a], b = op.in_labels[p.b];
  const Split sa = split(a, b), sb = split(b, a);
  if (!sa.ok || !sb.ok) return "labels do not part into rows, columns and contracted";
  if (sa.shared != sb.shared || sa.shared.empty())
    return "contracted labels differ in order, or none";
  if (sa.own.empty() || sb.own.empty()) return "a vector: no rows or no columns";
  if (out.size() != sa.own.size() + sb.own.size() || out.substr(0, sa.own.size()) != sa.own ||
      out.substr(sa.own.size()) != sb.own) {
    return "the output is not rows then columns";
  }
  p = {p.a, p.b, sa.shared_first, !sb.shared_first, sa.own, sb.own, sa.shared};
  return nullptr;
}

int64_t size_of_labels(const LabelSizes& local, std::string_view labels) {
  int64_t n = 1;
  for (char c : labels) n *= local.at(c);
  return n;
}

float scale_of(const KernelCall& call) {
  double scale = call.op->attrs.scale;
  for (const Tensor& t : call.ins) {
    if (t.dims == 0) scale *= scalar(t);
  }
  return static_cast<float>(scale);
}

}  // namespace

const char* few_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32(op, local, real)) return reason;
  Product p;
  if (const char* reason = read_product(op, p)) return reason;
  if (p.ta) return "rows do not lie one after the other";
  return size_of_labels(local, p.m) <= kFewRows ? nullptr : "many rows";
}

void few(const KernelCall& call) {
  begin_f32(call);
  Product p;
  CHECK(read_product(*call.op, p) == nullptr);
  const int64_t n = size_of_labels(call.local, p.n), k = size_of_labels(call.local, p.k);
  const vec::FewRows x{.a = call.ins[p.a].as<float>(),
                       .b = call.ins[p.b].as<float>(),
                       .lda = k,
                       .ldb = p.tb ? k : n,
                       .ldc = n,
                       .m = size_of_labels(call.local, p.m),
                       .k = k,
                       .tb = p.tb,
                       .scale = scale_of(call),
                       .c = call.outs[0].as<float>()};
  constexpr int64_t kColumns = 64, kElements = 65536;  // of B, of a task
  const int64_t columns =
      std::max(kColumns, kElements / std::max<int64_t>(1, k) / kColumns * kColumns);
  parallel(call.pool, ceil_div(n, columns),
           [&](int64_t i) { vec::few_rows(x, i * columns, std::min(n, (i + 1) * columns)); });
}

const char* gemm_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32_or_bf16(op, local, real)) return reason;
  Product p;
  return read_product(op, p);
}

void gemm(const KernelCall& call) {
  begin_f32_or_bf16(call);
  Product p;
  CHECK(read_product(*call.op, p) == nullptr);
  const int64_t m = size_of_labels(call.local, p.m), n = size_of_labels(call.local, p.n);
  const int64_t k = size_of_labels(call.local, p.k);
  const Tensor &a = call.ins[p.a], &b = call.ins[p.b], &c = call.outs[0];
  const auto narrow = [](const Tensor& t) { return t.dtype == DType::bf16; };
  matrix_product(call.pool, m, n, k, scale_of(call), {a.data, narrow(a), p.ta, p.ta ? m : k},
                 {b.data, narrow(b), p.tb, p.tb ? k : n}, {c.data, narrow(c), n});
}

}  // namespace myriad::fast
