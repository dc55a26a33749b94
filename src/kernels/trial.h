// For unit tests: one op on random tensors, to be run by any of its kernels and compared.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ir/rows.h"
#include "kernels/call.h"
#include "kernels/element.h"
#include "kernels/kernel.h"

namespace myriad {

// Memory of a tensor, `shift` elements off alignment, with a guard behind it.
struct Block {
  std::vector<std::byte> memory;
  Tensor tensor;
  static constexpr size_t kGuard = 64;

  Block() = default;
  Block(Block&&) = default;
  Block& operator=(Block&&) = default;
  Block(const Block& other) : memory(other.memory), tensor(other.tensor) {
    tensor.data = memory.data() + (other.tensor.data - other.memory.data());
  }
  Block& operator=(const Block& other) { return *this = Block(other); }

  // `rows`: of routed rows "ebs..." (else none is routed).
  void make(DType t, const std::string& labels, const LabelSizes& local, int64_t shift = 0,
            const RowSet* rows = nullptr) {
    tensor = {};
    tensor.dtype = t;
    const bool routed = rows != nullptr && labels.starts_with("ebs");
    if (routed) tensor.size[tensor.dims++] = rows->n;
    for (char l : labels.substr(routed ? 3 : 0)) tensor.size[tensor.dims++] = local.at(l);
    memory.assign(tensor.bytes() + 2 * kGuard + static_cast<size_t>(shift) * size_of(t),
                  std::byte{0xff});
    auto at = reinterpret_cast<size_t>(memory.data());
    at = (at + kGuard - 1) / kGuard * kGuard - at + static_cast<size_t>(shift) * size_of(t);
    tensor.data = memory.data() + at;
  }
  // Bytes behind the tensor are untouched.
  bool guarded() const {
    const std::byte* end = tensor.data + tensor.bytes();
    for (; end != memory.data() + memory.size(); ++end) {
      if (*end != std::byte{0xff}) return false;
    }
    return true;
  }
  double at(int64_t i) const { return element(tensor, i); }
  void set(int64_t i, double x) const { set_element(tensor, i, x); }
};

struct Trial {
  Op op;
  DType real;
  std::vector<DType> out_types;
  std::vector<Block> ins;
  std::map<char, int64_t> lo;  // of labels; others 0
  bool alias = false;          // output i lies on input i
  const RowSet* rows = nullptr;
  const RowSet* leads = nullptr;  // see KernelCall
  int64_t round = 0;
  OwnerNodes nodes;

  // `rule` as for Builder::op. Reals are normal; types of operands beyond `types` are `real`.
  Trial(Row row, const std::string& rule, LabelSizes sizes, DType real_, uint32_t seed = 1,
        std::vector<DType> types = {}, int64_t shift = 0, const RowSet* rows_ = nullptr)
      : real(real_), rows(rows_) {
    op.row = row;
    op.size = std::move(sizes);
    const size_t arrow = rule.find("->");
    split(rule.substr(0, arrow), ',', op.in_labels);
    split(rule.substr(arrow + 2), ';', op.out_labels);
    op.ins.resize(op.in_labels.size());
    op.outs.resize(op.out_labels.size());
    out_types.assign(op.outs.size(), real);
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    ins.resize(op.ins.size());
    for (size_t i = 0; i < ins.size(); ++i) {
      ins[i].make(i < types.size() ? types[i] : real, op.in_labels[i], op.size, shift, rows);
      for (int64_t j = 0; j < ins[i].tensor.elements(); ++j) ins[i].set(j, normal(random));
    }
  }

  static void split(const std::string& text, char by, std::vector<std::string>& parts) {
    parts.push_back("");
    for (char c : text) c == by ? parts.push_back("") : parts.back().push_back(c);
  }

  // Integers of [from, to) for operand i.
  void fill_ids(int i, int from, int to, uint32_t seed = 7) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> any(from, to - 1);
    for (int64_t j = 0; j < ins[i].tensor.elements(); ++j) ins[i].set(j, any(random));
  }

  std::vector<Block> run(const KernelChoice& kernel, Pool* pool = nullptr, Meter* meter = nullptr,
                         int64_t shift = 0) const {
    std::vector<Block> outs(op.outs.size()), inputs(ins.size());
    std::vector<Tensor> in, out;
    for (size_t i = 0; i < ins.size(); ++i) {
      inputs[i].make(ins[i].tensor.dtype, op.in_labels[i], op.size, shift,
                     leads && op.row == Row::spread ? leads : rows);
      if (ins[i].tensor.bytes() > 0)
        std::memcpy(inputs[i].tensor.data, ins[i].tensor.data, ins[i].tensor.bytes());
      in.push_back(placed(inputs[i].tensor, op.in_labels[i]));
    }
    for (size_t i = 0; i < outs.size(); ++i) {
      if (alias) {
        outs[i] = std::move(inputs[i]);
      } else {
        outs[i].make(out_types[i], op.out_labels[i], op.size, shift,
                     leads && op.row == Row::collapse ? leads : rows);
      }
      out.push_back(placed(outs[i].tensor, op.out_labels[i]));
    }
    const Op op = typed();
    KernelCall call{
        .op = &op, .ins = in, .outs = out, .local = op.size, .meter = meter, .pool = pool};
    if (rows != nullptr)
      call.rows = rows, call.leads = leads, call.e = range('e'), call.b = range('b'),
      call.s = range('s');
    call.round = round;
    call.nodes = nodes;
    call.scratch_bytes = kernel.scratch ? kernel.scratch(op, op.size, real) : 0;
    std::vector<std::byte> scratch(call.scratch_bytes + 2 * kAlignment, std::byte{0xff});
    auto at = reinterpret_cast<size_t>(scratch.data());
    call.scratch = scratch.data() + (kAlignment - at % kAlignment) % kAlignment;
    EXPECT_EQ(kernel.run(call), KernelStatus::ok);
    for (const std::byte* p = call.scratch + call.scratch_bytes;
         p != scratch.data() + scratch.size(); ++p) {
      EXPECT_EQ(*p, std::byte{0xff}) << "scratch overrun";
    }
    for (const Block& o : outs) EXPECT_TRUE(o.guarded()) << "output overrun";
    return outs;
  }
  Range range(char label) const {
    const auto at = lo.find(label);
    const int64_t from = at == lo.end() ? 0 : at->second;
    return {from, from + op.size.at(label)};
  }
  std::vector<Block> run_ref() const { return run(choose(op, op.size, real, KernelSet::ref)); }
  const KernelChoice& fast() const { return choose(typed(), op.size, real, KernelSet::fast); }
  // The op with the types of its tensors.
  Op typed() const {
    Op o = op;
    for (const Block& b : ins) o.in_types.push_back(b.tensor.dtype);
    o.out_types = out_types;
    return o;
  }

 private:
  Tensor placed(Tensor t, const std::string& labels) const {
    if (rows != nullptr && labels.starts_with("ebs")) return t;  // its rows say where they are
    for (int d = 0; d < t.dims; ++d) {
      const auto at = lo.find(labels[d]);
      if (at != lo.end()) t.lo[d] = at->second;
    }
    return t;
  }
};

inline bool same_bits(const std::vector<Block>& a, const std::vector<Block>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t n = a[i].tensor.bytes();
    if (n != b[i].tensor.bytes()) return false;
    if (n > 0 && std::memcmp(a[i].tensor.data, b[i].tensor.data, n) != 0) return false;
  }
  return true;
}

// |x - y| <= tolerance(i) for each element i of output `o`; equal infinities and NaN with NaN pass.
template <class F>
void expect_close(const std::vector<Block>& x, const std::vector<Block>& y, size_t o, F tolerance,
                  const std::string& what) {
  for (int64_t i = 0; i < x[o].tensor.elements(); ++i) {
    const double a = x[o].at(i), b = y[o].at(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    ASSERT_LE(std::fabs(a - b), tolerance(i))
        << what << " output " << o << " element " << i << ": " << a << " and " << b;
  }
}

// Bits do not depend on workers or on where the tensors lie; FLOPs are those that the row declares.
inline void expect_steady(const Trial& t, const KernelChoice& kernel, const std::string& what) {
  Pool two(2), three(3);
  Meter meter;
  const auto alone = t.run(kernel, nullptr, &meter);
  double work = info(t.op.row).work(t.op, t.op.size);
  if (t.rows != nullptr && work > 0) {  // of all pairs; some exist
    for (char l : {'e', 'b', 's'}) work /= static_cast<double>(t.op.size.at(l));
    work *= static_cast<double>(t.rows->n);
  }
  EXPECT_EQ(meter.flops, work) << what;
  EXPECT_TRUE(same_bits(alone, t.run(kernel, &two))) << what << ": two workers";
  EXPECT_TRUE(same_bits(alone, t.run(kernel, &three))) << what << ": three workers";
  EXPECT_TRUE(same_bits(alone, t.run(kernel, nullptr, nullptr, 3))) << what << ": shifted";
}

}  // namespace myriad
