// The table of ops and the functions it names, in the order of its columns: linear sets, labels
// that must be whole, work, gradients. A gradient is written once, in the ops of this very table,
// and needs no rule of its own for any layout: the sharder lays it out as it does the forward pass.
// Read ir/rows.h first, which says what each column means, and the rules in ir/graph.h.
#include "ir/rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace myriad {

namespace {

using Masks = std::vector<uint32_t>;

// Linear sets.
Masks none(const Op&) { return {}; }
Masks together(const Op& op) { return {(1u << op.ins.size()) - 1}; }
Masks each(const Op& op) {
  Masks m;
  for (size_t i = 0; i < op.ins.size(); ++i) m.push_back(1u << i);
  return m;
}
// A sum of rounded parts is not the rounded sum.
Masks widening(const Op& op) {
  return size_of(op.out_types[0]) > size_of(op.in_types[0]) ? Masks{1} : Masks{};
}
template <int I>
Masks operand(const Op&) {
  return {1u << I};
}

// Labels that must be whole: that of the last dim, or those named.
std::string nothing(const Op&) { return ""; }
std::string last(const Op& op) { return op.in_labels[0].substr(op.in_labels[0].size() - 1); }
std::string only_j(const Op&) { return "j"; }
std::string only_bsj(const Op&) { return "bsj"; }
std::string only_st(const Op&) { return "st"; }
std::string only_thu(const Op&) { return "thu"; }
std::string only_hu(const Op&) { return "hu"; }
std::string sliced(const Op& op) { return {op.attrs.label, op.attrs.to}; }

// Work: FLOPs an element of the first output or of the first operand, or more than that.
double points(const LabelSizes& local, std::string_view labels) {
  double n = 1;
  for (char l : labels) n *= static_cast<double>(local.at(l));
  return n;
}
double no_work(const Op&, const LabelSizes&) { return 0; }
template <int N>
double outputs(const Op& op, const LabelSizes& local) {
  return N * points(local, op.out_labels[0]);
}
template <int N>
double inputs(const Op& op, const LabelSizes& local) {
  return N * points(local, op.in_labels[0]);
}
double contract_work(const Op& op, const LabelSizes& local) {
  const bool contracted = std::any_of(local.labels.begin(), local.labels.end(), [&](char l) {
    return op.out_labels[0].find(l) == std::string::npos;
  });
  const double n = static_cast<double>(op.ins.size());
  return (contracted ? n : n - 1) * points(local, local.labels);
}
double add_work(const Op& op, const LabelSizes& local) {
  return static_cast<double>(op.ins.size() - 1) * points(local, op.out_labels[0]);
}
double sum_work(const Op& op, const LabelSizes& local) {
  return static_cast<double>(op.ins.size()) * points(local, op.in_labels[0]);
}
double attention_work(const Op&, const LabelSizes& local) {
  return 2 * points(local, "bsgrt") * static_cast<double>(local.at('h') + local.at('u'));
}
double attention_grad_work(const Op&, const LabelSizes& local) {
  return 2 * points(local, "bsgrt") * static_cast<double>(3 * local.at('h') + 2 * local.at('u'));
}

// Gradients of the operands (-1: none); d are those of the outputs.
using Grads = std::vector<int>;
using DOuts = std::span<const int>;

Builder::Options with(Attrs attrs, LabelSizes sizes = {}, std::vector<DType> dtypes = {}) {
  return {.names = {},
          .sizes = std::move(sizes),
          .attrs = std::move(attrs),
          .dtypes = std::move(dtypes)};
}

// The gradient of operand i of a product is the product of that of the result (labels y) with the
// other operands, summed over the labels that operand i lacks. It is repeated along labels that
// only operand i has.
Grads product_grad(Builder& b, const Op& op, int d, const std::string& y) {
  Grads out;
  for (size_t i = 0; i < op.ins.size(); ++i) {
    const DType t = b.graph()[op.ins[i]].dtype;
    if (t == DType::i32 || (op.attrs.stop >> i & 1)) {
      out.push_back(-1);
      continue;
    }
    const auto twin = std::find_if(out.begin(), out.end(), [&](const int& o) {
      const size_t j = static_cast<size_t>(&o - out.data());
      return op.ins[j] == op.ins[i] && op.in_labels[j] == op.in_labels[i];
    });
    if (twin != out.end()) {  // x * x: both gradients are the same
      out.push_back(*twin);
      continue;
    }
    std::string rule = y, have = y, kept;
    std::vector<int> ins = {d};
    for (size_t j = 0; j < op.ins.size(); ++j) {
      if (j == i) continue;
      rule += "," + op.in_labels[j];
      have += op.in_labels[j];
      ins.push_back(op.ins[j]);
    }
    for (char l : op.in_labels[i]) {
      if (have.find(l) != std::string::npos) kept += l;
    }
    const DType type = b.graph().gradient_type(op.ins[i]);
    int x = b.contract(rule + "->" + kept, ins, "", op.attrs.scale, 0, type);
    if (kept != op.in_labels[i]) {
      x = b.op1(Row::broadcast, {x}, kept + "->" + op.in_labels[i], with({}, op.size));
    }
    out.push_back(x);
  }
  return out;
}
Grads contract_grad(Builder& b, const Op& op, DOuts d) {
  return product_grad(b, op, d[0], op.out_labels[0]);
}
Grads sum_exact_grad(Builder& b, const Op& op, DOuts d) { return product_grad(b, op, d[0], ""); }
Grads broadcast_grad(Builder& b, const Op& op, DOuts d) {
  return {b.contract(op.out_labels[0] + "->" + op.in_labels[0], {d[0]}, "", 1, 0,
                     b.graph().gradient_type(op.ins[0]))};
}
Grads cast_grad(Builder& b, const Op& op, DOuts d) {
  return {b.cast(d[0], b.graph().gradient_type(op.ins[0]))};
}
Grads add_grad(Builder&, const Op& op, DOuts d) { return Grads(op.ins.size(), d[0]); }
std::string repeat(const std::string& l, int n) {
  std::string rule = l;
  for (int i = 1; i < n; ++i) rule += "," + l;
  return rule + "->" + l;
}
Grads rsqrt_grad(Builder& b, const Op& op, DOuts d) {
  const int y = op.outs[0];
  return {b.contract(repeat(op.out_labels[0], 4), {y, y, y, d[0]}, "", -0.5 * op.attrs.a)};
}
Grads recip_grad(Builder& b, const Op& op, DOuts d) {
  return {b.contract(repeat(op.out_labels[0], 3), {op.outs[0], op.outs[0], d[0]}, "", -1)};
}
Grads log_grad(Builder& b, const Op& op, DOuts d) {
  return {b.contract(repeat(op.out_labels[0], 2), {d[0], b.elementwise(Row::recip, {op.ins[0]})})};
}
Grads silu_grad(Builder& b, const Op& op, DOuts d) {
  return {b.elementwise(Row::silu_grad, {op.ins[0], d[0]})};
}
// The maximum m only keeps exp in range: the log-sum-exp built on it does not depend on it.
Grads sum_exp_grad(Builder& b, const Op& op, DOuts d) {
  const std::string &z = op.in_labels[0], &m = op.in_labels[1];
  return {b.op1(Row::exp_scale, {op.ins[0], op.ins[1], d[0]}, z + "," + m + "," + m + "->" + z,
                with({})),
          -1};
}
template <Row Back>
Grads back(Builder& b, const Op& op, DOuts d) {
  const std::string rule = op.out_labels[0] + "," + op.in_labels[1] + "->" + op.in_labels[0];
  return {
      b.op1(Back, {d[0], op.ins[1]}, rule, with({}, op.size, {b.graph().gradient_type(op.ins[0])})),
      -1};
}
Grads rope_grad(Builder& b, const Op& op, DOuts d) {
  Attrs attrs = op.attrs;
  attrs.sign = -attrs.sign;
  const std::string rule = op.out_labels[0] + "," + op.in_labels[1] + "->" + op.in_labels[0];
  return {b.op1(Row::rope, {d[0], op.ins[1]}, rule, with(std::move(attrs))), -1};
}
Grads gelu_grad(Builder& b, const Op& op, DOuts d) {
  return {b.elementwise(Row::gelu_grad, {op.ins[0], d[0]})};
}
Grads sigmoid_grad(Builder& b, const Op& op, DOuts d) {
  return {b.elementwise(Row::sigmoid_grad, {op.outs[0], d[0]})};
}
Grads softmax_grad(Builder& b, const Op& op, DOuts d) {
  const int y = op.outs[0];
  const std::string l = op.out_labels[0], rest = l.substr(0, l.size() - 1);
  const int t = b.contract(l + "," + l + "->" + rest, {y, d[0]});
  return {b.add({b.contract(repeat(l, 2), {y, d[0]}),
                 b.contract(l + "," + rest + "->" + l, {y, t}, "", -1)})};
}
Grads attention_grad(Builder& b, const Op& op, DOuts d) {
  const auto &l = op.in_labels, &o = op.out_labels;
  const std::string rule = fmt::format("{},{},{},{},{},{},{},{},{},{}->{};{};{}", l[0], l[1], l[2],
                                       o[0], o[1], o[0], l[3], l[4], l[5], l[6], l[0], l[1], l[2]);
  const int ins[] = {op.ins[0], op.ins[1], op.ins[2], op.outs[0], op.outs[1],
                     d[0],      op.ins[3], op.ins[4], op.ins[5],  op.ins[6]};
  Grads g =
      b.op(Row::attention_grad, ins, rule,
           with({.scale = op.attrs.scale}, {}, {op.in_types[0], op.in_types[1], op.in_types[2]}));
  g.resize(7, -1);
  return g;
}
Grads slice_grad(Builder& b, const Op& op, DOuts d) {
  return {b.op1(Row::pad, {d[0]}, op.out_labels[0] + "->" + op.in_labels[0],
                with({.label = op.attrs.label, .to = op.attrs.to, .lo = op.attrs.lo}, op.size))};
}

template <Row Back>
Grads rows_back(Builder& b, const Op& op, DOuts d) {
  const std::string rule =
      op.out_labels[0] + "," + op.in_labels[1] + "," + op.in_labels[2] + "->" + op.in_labels[0];
  return {b.op1(Back, {d[0], op.ins[1], op.ins[2]}, rule, with(op.attrs, op.size)), -1, -1};
}

constexpr auto kNoGrad = nullptr;

// What few rows are besides.
constexpr RowInfo reducing_max(RowInfo r) {
  r.reduces_max = true;
  return r;
}
constexpr RowInfo laid_as_wanted(RowInfo r) {
  r.as_wanted = true;
  return r;
}
constexpr RowInfo in_place(RowInfo r) {
  r.elementwise = true;
  return r;
}
constexpr RowInfo on(Engine engine, RowInfo r) {
  r.engine = engine;
  return r;
}

// clang-format off
const RowInfo kTable[] = {
  // op                 name            linear      whole     work         gradient
  on(Engine::matrix, {Row::contract, "contract", each, nothing, contract_work, contract_grad}),
  {Row::broadcast,    "broadcast",    together,   nothing,  no_work,     broadcast_grad},
  {Row::add,          "add",          together,   nothing,  add_work,    add_grad},
  {Row::cast,         "cast",         widening,   nothing,  no_work,     cast_grad},
  {Row::rsqrt,        "rsqrt",        none,       nothing,  outputs<3>,  rsqrt_grad},
  {Row::recip,        "recip",        none,       nothing,  outputs<1>,  recip_grad},
  {Row::log,          "log",          none,       nothing,  outputs<1>,  log_grad},
  {Row::silu,         "silu",         none,       nothing,  outputs<4>,  silu_grad},
  {Row::silu_grad,    "silu_grad",    operand<1>, nothing,  outputs<7>,  kNoGrad},
  {Row::sigmoid,      "sigmoid",      none,       nothing,  outputs<4>,  sigmoid_grad},
  {Row::sigmoid_grad, "sigmoid_grad", operand<1>, nothing,  outputs<3>,  kNoGrad},
  {Row::gelu,         "gelu",         none,       nothing,  outputs<9>,  gelu_grad},
  {Row::gelu_grad,    "gelu_grad",    operand<1>, nothing,  outputs<16>, kNoGrad},
  {Row::softmax,      "softmax",      none,       last,     outputs<4>,  softmax_grad},
  reducing_max({Row::max_stop, "max_stop", none, nothing, inputs<1>, kNoGrad}),
  {Row::sum_exp,      "sum_exp",      none,       nothing,  inputs<3>,   sum_exp_grad},
  {Row::exp_scale,    "exp_scale",    operand<2>, nothing,  inputs<3>,   kNoGrad},
  {Row::pick,         "pick",         operand<0>, nothing,  no_work,     back<Row::unpick>},
  {Row::unpick,       "unpick",       operand<0>, nothing,  no_work,     kNoGrad},
  {Row::topk,         "topk",         none,       last,     no_work,     kNoGrad},
  {Row::count,        "count",        none,       nothing,  no_work,     kNoGrad},
  {Row::fits,         "fits",         none,       only_bsj, no_work,     kNoGrad},
  laid_as_wanted({Row::window, "window", none, only_j, no_work, kNoGrad}),
  laid_as_wanted(reducing_max({Row::rounds, "rounds", none, only_j, no_work, kNoGrad})),
  {Row::dispatch,     "dispatch",     operand<0>, only_j,   no_work,     back<Row::combine>},
  {Row::combine,      "combine",      operand<0>, only_j,   inputs<1>,   back<Row::dispatch>},
  {Row::leads,        "leads",        none,       only_j,   no_work,     kNoGrad},
  {Row::spread,       "spread",       operand<0>, only_j,   no_work,     rows_back<Row::collapse>},
  {Row::collapse,     "collapse",     operand<0>, only_j,   inputs<1>,   rows_back<Row::spread>},
  {Row::dispatch_w,   "dispatch_w",   operand<0>, only_j,   no_work,     back<Row::collect_w>},
  {Row::collect_w,    "collect_w",    operand<0>, only_j,   no_work,     kNoGrad},
  {Row::balance,      "balance",      none,       nothing,  no_work,     kNoGrad},
  {Row::valid,        "valid",        none,       nothing,  no_work,     kNoGrad},
  {Row::gather_rows,  "gather_rows",  operand<0>, nothing,  no_work,     back<Row::scatter_rows>},
  {Row::scatter_rows, "scatter_rows", operand<0>, nothing,  inputs<1>,   kNoGrad},
  in_place({Row::place_rows, "place_rows", none, only_st, no_work, kNoGrad}),
  {Row::rope,         "rope",         operand<0>, last,     inputs<3>,   rope_grad},
  on(Engine::attention,
     {Row::attention, "attention", none, only_thu, attention_work, attention_grad}),
  on(Engine::attention,
     {Row::attention_grad, "attention_grad", operand<5>, only_hu, attention_grad_work, kNoGrad}),
  {Row::slice,        "slice",        together,   sliced,   no_work,     slice_grad},
  {Row::pad,          "pad",          together,   sliced,   no_work,     kNoGrad},
  {Row::sum_exact,    "sum_exact",    none,       nothing,  sum_work,    sum_exact_grad},
  {Row::clip,         "clip",         none,       nothing,  no_work,     kNoGrad},
  {Row::settle_exact, "settle_exact", none,       nothing,  no_work,     kNoGrad},
  in_place({Row::adamw, "adamw", none, nothing, outputs<15>, kNoGrad}),
  {Row::read,         "read",         none,       nothing,  no_work,     kNoGrad},
  {Row::write,        "write",        none,       nothing,  no_work,     kNoGrad},
  {Row::accum,        "accum",        none,       nothing,  no_work,     kNoGrad},
};
// clang-format on
static_assert(std::size(kTable) == kRows, "each row has an entry");

}  // namespace

const RowInfo& info(Row row) {
  const RowInfo& r = kTable[static_cast<int>(row)];
  CHECK(r.row == row, "row table out of order at {}", r.name);
  return r;
}

bool is_product(const Op& op) {
  if (info(op.row).engine != Engine::matrix || op.ins.size() != 2) return false;
  const auto has = [](const std::string& labels, char l) {
    return labels.find(l) != std::string::npos;
  };
  bool contracts = false, keeps_left = false, keeps_right = false;
  for (char l : op.size.labels) {
    const bool left = has(op.in_labels[0], l), right = has(op.in_labels[1], l);
    contracts |= left && right && !has(op.out_labels[0], l);
    keeps_left |= left && !right;
    keeps_right |= right && !left;
  }
  return contracts && keeps_left && keeps_right;
}

Row row_named(std::string_view name) {
  for (const RowInfo& r : kTable) {
    if (name == r.name) return r.row;
  }
  throw Error(fmt::format("unknown op row \"{}\"", name));
}

}  // namespace myriad
