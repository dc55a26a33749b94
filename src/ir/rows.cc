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

// Whole labels.
std::string nothing(const Op&) { return ""; }
std::string last(const Op& op) { return op.in_labels[0].substr(op.in_labels[0].size() - 1); }
std::string choices(const Op&) { return "j"; }
std::string all_choices(const Op&) { return "bsj"; }
std::string sliced(const Op& op) { return {op.attrs.label, op.attrs.to}; }

// Work.
double points(const LabelSizes& local, std::string_view labels) {
  double n = 1;
  for (char l : labels) n *= static_cast<double>(local.at(l));
  return n;
}
double no_work(const Op&, const LabelSizes&) { return 0; }
template <int N>
double per_output(const Op& op, const LabelSizes& local) {
  return N * points(local, op.out_labels[0]);
}
template <int N>
double per_input(const Op& op, const LabelSizes& local) {
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

// Gradients. d: of the outputs; a result of -1: none.
using Grads = std::vector<int>;
using DOuts = std::span<const int>;

Builder::Options with(Attrs attrs, LabelSizes sizes = {}, std::vector<DType> dtypes = {}) {
  return {.names = {},
          .sizes = std::move(sizes),
          .attrs = std::move(attrs),
          .dtypes = std::move(dtypes)};
}

// d of operand i of a product: the product of dY with the others, summed over what operand i lacks;
// labels that only operand i has are spread.
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
Grads turn_back(Builder& b, const Op& op, DOuts d) {
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
Grads turn_rows_back(Builder& b, const Op& op, DOuts d) {
  const std::string rule =
      op.out_labels[0] + "," + op.in_labels[1] + "," + op.in_labels[2] + "->" + op.in_labels[0];
  return {b.op1(Back, {d[0], op.ins[1], op.ins[2]}, rule, with(op.attrs, op.size)), -1, -1};
}

constexpr auto kNoGrad = nullptr;

const RowInfo kTable[] = {
    {.row = Row::contract,
     .name = "contract",
     .linear = each,
     .whole = nothing,
     .work = contract_work,
     .gradient = contract_grad,
     .engine = Engine::matrix},
    {.row = Row::broadcast,
     .name = "broadcast",
     .linear = together,
     .whole = nothing,
     .work = no_work,
     .gradient = broadcast_grad},
    {.row = Row::add,
     .name = "add",
     .linear = together,
     .whole = nothing,
     .work = add_work,
     .gradient = add_grad},
    {.row = Row::cast,
     .name = "cast",
     .linear = widening,
     .whole = nothing,
     .work = no_work,
     .gradient = cast_grad},
    {.row = Row::rsqrt,
     .name = "rsqrt",
     .linear = none,
     .whole = nothing,
     .work = per_output<3>,
     .gradient = rsqrt_grad},
    {.row = Row::recip,
     .name = "recip",
     .linear = none,
     .whole = nothing,
     .work = per_output<1>,
     .gradient = recip_grad},
    {.row = Row::log,
     .name = "log",
     .linear = none,
     .whole = nothing,
     .work = per_output<1>,
     .gradient = log_grad},
    {.row = Row::silu,
     .name = "silu",
     .linear = none,
     .whole = nothing,
     .work = per_output<4>,
     .gradient = silu_grad},
    {.row = Row::silu_grad,
     .name = "silu_grad",
     .linear = operand<1>,
     .whole = nothing,
     .work = per_output<7>,
     .gradient = kNoGrad},
    {.row = Row::sigmoid,
     .name = "sigmoid",
     .linear = none,
     .whole = nothing,
     .work = per_output<4>,
     .gradient = sigmoid_grad},
    {.row = Row::sigmoid_grad,
     .name = "sigmoid_grad",
     .linear = operand<1>,
     .whole = nothing,
     .work = per_output<3>,
     .gradient = kNoGrad},
    {.row = Row::gelu,
     .name = "gelu",
     .linear = none,
     .whole = nothing,
     .work = per_output<9>,
     .gradient = gelu_grad},
    {.row = Row::gelu_grad,
     .name = "gelu_grad",
     .linear = operand<1>,
     .whole = nothing,
     .work = per_output<16>,
     .gradient = kNoGrad},
    {.row = Row::softmax,
     .name = "softmax",
     .linear = none,
     .whole = last,
     .work = per_output<4>,
     .gradient = softmax_grad},
    {.row = Row::max_stop,
     .name = "max_stop",
     .linear = none,
     .whole = nothing,
     .work = per_input<1>,
     .gradient = kNoGrad,
     .reduces_max = true},
    {.row = Row::sum_exp,
     .name = "sum_exp",
     .linear = none,
     .whole = nothing,
     .work = per_input<3>,
     .gradient = sum_exp_grad},
    {.row = Row::exp_scale,
     .name = "exp_scale",
     .linear = operand<2>,
     .whole = nothing,
     .work = per_input<3>,
     .gradient = kNoGrad},
    {.row = Row::pick,
     .name = "pick",
     .linear = operand<0>,
     .whole = nothing,
     .work = no_work,
     .gradient = turn_back<Row::unpick>},
    {.row = Row::unpick,
     .name = "unpick",
     .linear = operand<0>,
     .whole = nothing,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::topk,
     .name = "topk",
     .linear = none,
     .whole = last,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::count,
     .name = "count",
     .linear = none,
     .whole = nothing,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::fits,
     .name = "fits",
     .linear = none,
     .whole = all_choices,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::window,
     .name = "window",
     .linear = none,
     .whole = choices,
     .work = no_work,
     .gradient = kNoGrad,
     .as_wanted = true},
    {.row = Row::rounds,
     .name = "rounds",
     .linear = none,
     .whole = choices,
     .work = no_work,
     .gradient = kNoGrad,
     .reduces_max = true,
     .as_wanted = true},
    {.row = Row::dispatch,
     .name = "dispatch",
     .linear = operand<0>,
     .whole = choices,
     .work = no_work,
     .gradient = turn_back<Row::combine>},
    {.row = Row::combine,
     .name = "combine",
     .linear = operand<0>,
     .whole = choices,
     .work = per_input<1>,
     .gradient = turn_back<Row::dispatch>},
    {.row = Row::leads,
     .name = "leads",
     .linear = none,
     .whole = choices,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::spread,
     .name = "spread",
     .linear = operand<0>,
     .whole = choices,
     .work = no_work,
     .gradient = turn_rows_back<Row::collapse>},
    {.row = Row::collapse,
     .name = "collapse",
     .linear = operand<0>,
     .whole = choices,
     .work = per_input<1>,
     .gradient = turn_rows_back<Row::spread>},
    {.row = Row::dispatch_w,
     .name = "dispatch_w",
     .linear = operand<0>,
     .whole = choices,
     .work = no_work,
     .gradient = turn_back<Row::collect_w>},
    {.row = Row::collect_w,
     .name = "collect_w",
     .linear = operand<0>,
     .whole = choices,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::balance,
     .name = "balance",
     .linear = none,
     .whole = nothing,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::valid,
     .name = "valid",
     .linear = none,
     .whole = nothing,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::gather_rows,
     .name = "gather_rows",
     .linear = operand<0>,
     .whole = nothing,
     .work = no_work,
     .gradient = turn_back<Row::scatter_rows>},
    {.row = Row::scatter_rows,
     .name = "scatter_rows",
     .linear = operand<0>,
     .whole = nothing,
     .work = per_input<1>,
     .gradient = kNoGrad},
    {.row = Row::place_rows,
     .name = "place_rows",
     .linear = none,
     .whole = [](const Op&) -> std::string { return "st"; },
     .work = no_work,
     .gradient = kNoGrad,
     .elementwise = true},
    {.row = Row::rope,
     .name = "rope",
     .linear = operand<0>,
     .whole = last,
     .work = per_input<3>,
     .gradient = rope_grad},
    {.row = Row::attention,
     .name = "attention",
     .linear = none,
     .whole = [](const Op&) -> std::string { return "thu"; },
     .work = attention_work,
     .gradient = attention_grad,
     .engine = Engine::attention},
    {.row = Row::attention_grad,
     .name = "attention_grad",
     .linear = operand<5>,
     .whole = [](const Op&) -> std::string { return "hu"; },
     .work = attention_grad_work,
     .gradient = kNoGrad,
     .engine = Engine::attention},
    {.row = Row::slice,
     .name = "slice",
     .linear = together,
     .whole = sliced,
     .work = no_work,
     .gradient = slice_grad},
    {.row = Row::pad,
     .name = "pad",
     .linear = together,
     .whole = sliced,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::sum_exact,
     .name = "sum_exact",
     .linear = none,
     .whole = nothing,
     .work = sum_work,
     .gradient = sum_exact_grad},
    {.row = Row::clip,
     .name = "clip",
     .linear = none,
     .whole = nothing,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::settle_exact,
     .name = "settle_exact",
     .linear = none,
     .whole = nothing,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::adamw,
     .name = "adamw",
     .linear = none,
     .whole = nothing,
     .work = per_output<15>,
     .gradient = kNoGrad,
     .elementwise = true},
    {.row = Row::read,
     .name = "read",
     .linear = none,
     .whole = nothing,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::write,
     .name = "write",
     .linear = none,
     .whole = nothing,
     .work = no_work,
     .gradient = kNoGrad},
    {.row = Row::accum,
     .name = "accum",
     .linear = none,
     .whole = nothing,
     .work = no_work,
     .gradient = kNoGrad},
};
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
