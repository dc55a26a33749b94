// Evaluates bodies as a model wrote them, before they are laid out: `Evaluator` runs the ops of one
// body on whole tensors, and `PlainModel` runs the units of a model one after the other, forward
// and backward. Neither uses a mesh, a program or the executor. What is shared with a real run is
// the graph, `differentiate`, which is under test, and the reference kernels.
//
// The gradient is compared with central differences of the loss alone, which need no backward body,
// so a wrong rule of differentiation cannot be on both sides. The choice of experts jumps where two
// scores cross, and a difference over such a jump is no derivative; `hold_routing` therefore keeps
// the choices of the last forward pass. Read Evaluator::run first.
#include "verify/differences.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "kernels/element.h"
#include "kernels/grouped.h"
#include "kernels/kernel.h"
#include "passes/differentiate.h"

namespace myriad {

namespace {

std::byte* aligned(std::vector<std::byte>& memory, size_t bytes) {
  memory.assign(bytes + kAlignment, std::byte{0});
  const auto at = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kAlignment - at % kAlignment) % kAlignment;
}

}  // namespace

const BoxRows& Evaluator::rows_of(int sparse) {
  const Value& v = (*graph_)[sparse];
  return rows_.get(values_.at(v.routing).tensor,
                   {{0, v.sizes[0]}, {0, v.sizes[1]}, {0, v.sizes[2]}});
}

Tensor& Evaluator::make(int value) {
  const Value& v = (*graph_)[value];
  Whole& w = values_[value];
  w.tensor = {.dtype = v.dtype, .dims = static_cast<int>(v.sizes.size())};
  std::copy(v.sizes.begin(), v.sizes.end(), w.tensor.size);
  if (v.sparse()) {
    w.tensor.dims -= 2;
    w.tensor.size[0] = rows_of(value).set.n;
    std::copy(v.sizes.begin() + 3, v.sizes.end(), w.tensor.size + 1);
  }
  w.tensor.data = aligned(w.memory, w.tensor.bytes());
  return w.tensor;
}

void Evaluator::set(int value, const std::vector<double>& x) {
  const Tensor& t = make(value);
  CHECK(t.elements() == static_cast<int64_t>(x.size()), "{} has {} elements, not {}",
        (*graph_)[value].name, t.elements(), x.size());
  for (size_t i = 0; i < x.size(); ++i) set_element(t, static_cast<int64_t>(i), x[i]);
}

std::vector<double> Evaluator::get(int value) const {
  const Tensor& t = values_.at(value).tensor;
  std::vector<double> x(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = element(t, static_cast<int64_t>(i));
  return x;
}

void Evaluator::run(const Body& body, States& states) {
  for (const Op& op : body.ops) {
    if (op.row == Row::read) {
      const auto state = states.find(op.attrs.state);
      CHECK(state != states.end(), "{} reads {}, which is nowhere", body.name, op.attrs.state);
      set(op.outs[0], state->second);
    } else if (op.row == Row::write) {
      states[op.attrs.state] = get(op.ins[0]);
    } else if (op.row == Row::accum) {
      const std::vector<double> x = get(op.ins[0]);
      std::vector<double>& sum = states[op.attrs.state];
      sum.resize(x.size(), 0.0);
      for (size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
    } else {
      run_op(op);
    }
  }
}

void Evaluator::run_op(const Op& op) {
  if (held_.count(op.outs[0])) return;
  if (op.row == Row::window) rows_.clear();  // one set of routed rows at a time
  std::vector<Tensor> ins, outs;
  for (int o : op.outs) outs.push_back(make(o));
  for (int i : op.ins) {
    CHECK(has(i), "{}: no value of {}", show(op, *graph_), (*graph_)[i].name);
    ins.push_back(values_.at(i).tensor);
  }
  KernelCall call{
      .op = &op, .ins = ins, .outs = outs, .local = op.size, .nodes = op.attrs.nodes(0)};
  for (const auto* list : {&op.ins, &op.outs}) {
    for (int v : *list) {
      if (!(*graph_)[v].sparse()) continue;
      const BoxRows& rows = rows_of(v);
      call.rows = &rows.set;
      call.e = rows.box.e, call.b = rows.box.b, call.s = rows.box.s;
    }
  }
  if (op.row == Row::spread) call.leads = &rows_of(op.ins[0]).set;
  if (op.row == Row::collapse) call.leads = std::exchange(call.rows, &rows_of(op.ins[0]).set);
  if (works_on_rows(op)) {
    const Op plain = collapsed(op);
    call.op = &plain;
    const KernelStatus status = run_on_rows(call, graph_->real, KernelSet::ref);
    CHECK(status == KernelStatus::ok, "{}", name_of(status));
    return;
  }
  const KernelChoice& kernel = choose(op, op.size, graph_->real, KernelSet::ref);
  call.scratch_bytes = kernel.scratch ? kernel.scratch(op, op.size, graph_->real) : 0;
  std::vector<std::byte> scratch;
  call.scratch = aligned(scratch, call.scratch_bytes);
  const KernelStatus status = kernel.run(call);
  CHECK(status == KernelStatus::ok, "{}", name_of(status));
}

double central_difference(const std::function<double()>& f, double& x, double step) {
  const double at = x;
  x = at + step;
  const double above = f();
  x = at - step;
  const double below = f();
  x = at;
  return (above - below) / (2 * step);
}

PlainModel::PlainModel(Pieces pieces, double balance, double z)
    : pieces_(std::move(pieces)), balance_(balance), z_(z), states_(pieces_.units.size()) {
  for (Piece& p : pieces_.pieces) differentiate(p);
  for (int unit = 0; unit < static_cast<int>(pieces_.units.size()); ++unit) {
    CHECK(piece(unit).graph.real == DType::f64, "differences need double precision");
    values_.emplace_back(piece(unit).graph);
    for (const Param& p : piece(unit).params) {
      int64_t n = 1;
      for (int64_t s : p.sizes) n *= s;
      states_[unit][{StateKind::parameter, p.name}].assign(static_cast<size_t>(n), 0.0);
      if (!p.tied && p.trained) uses_.push_back({unit, p.name});
    }
  }
}

void PlainModel::initialise(uint64_t seed, double scale) {
  for (const Use& use : uses_) {
    std::vector<double>& x = parameter(use.unit, use.param);
    const uint64_t stream = stream_of(fmt::format("{}/{}", use.param, use.unit));
    const double centre =
        piece(use.unit).params[piece(use.unit).find(use.param)].sizes.size() == 1 ? 1 : 0;
    for (size_t i = 0; i < x.size(); ++i) x[i] = centre + scale * normal(seed, stream, i);
  }
}

void PlainModel::feed(Evaluator& e, int unit, const Batch& batch) {
  const std::pair<const char*, const std::vector<int32_t>*> inputs[] = {{"ids", &batch.ids},
                                                                        {"targets", &batch.targets},
                                                                        {"pos", &batch.positions},
                                                                        {"doc", &batch.documents}};
  const Graph& g = piece(unit).graph;
  for (const auto& [name, from] : inputs) {
    if (const int v = g.find(name); v >= 0) e.set(v, {from->begin(), from->end()});
  }
  if (const int v = g.find("inv_n"); v >= 0)
    e.set(v, {batch.valid() ? 1.0 / static_cast<double>(batch.valid()) : 0.0});
  if (const int v = g.find("balance_coef"); v >= 0) e.set(v, {balance_});
  if (const int v = g.find("z_coef"); v >= 0) e.set(v, {z_});
}

void PlainModel::forward(const Batch& batch) {
  const size_t n = pieces_.units.size();
  for (const Param& p : piece(static_cast<int>(n) - 1).params) {
    if (p.tied)
      states_[n - 1][{StateKind::parameter, p.name}] =
          states_[0].at({StateKind::parameter, p.name});
  }
  for (size_t u = 0; u < n; ++u) {
    std::erase_if(states_[u], [](const auto& s) {
      return s.first.kind == StateKind::scalar || s.first.kind == StateKind::counter;
    });
    const Graph& g = piece(static_cast<int>(u)).graph;
    feed(values_[u], static_cast<int>(u), batch);
    if (u > 0)
      values_[u].set(g.at("x"), values_[u - 1].get(piece(static_cast<int>(u) - 1).graph.at("y")));
    values_[u].run(piece(static_cast<int>(u)).forward, states_[u]);
  }
}

double PlainModel::loss(const Batch& batch) {
  forward(batch);
  double sum = states_.back().at({StateKind::scalar, "loss"})[0] /
               static_cast<double>(std::max<int64_t>(batch.valid(), 1));
  for (const States& states : states_) {
    if (const auto aux = states.find({StateKind::scalar, "aux"}); aux != states.end())
      sum += balance_ * aux->second[0];
    if (const auto z = states.find({StateKind::scalar, "zloss"}); z != states.end())
      sum += z_ * z->second[0];
  }
  return sum;
}

void PlainModel::hold_routing() {
  for (size_t u = 0; u < values_.size(); ++u) {
    if (const int v = piece(static_cast<int>(u)).graph.find("idx"); v >= 0) values_[u].hold(v);
  }
}

void PlainModel::forward_and_backward(const Batch& batch) {
  forward(batch);
  for (size_t u = pieces_.units.size(); u-- > 0;) {
    const Graph& g = piece(static_cast<int>(u)).graph;
    std::erase_if(states_[u],
                  [](const auto& s) { return s.first.kind == StateKind::gradient_sum; });
    if (const int dy = g.find("d.y"); dy >= 0)
      values_[u].set(dy, values_[u + 1].get(piece(static_cast<int>(u) + 1).graph.at("d.x")));
    values_[u].run(piece(static_cast<int>(u)).backward, states_[u]);
  }
}

std::vector<double> PlainModel::gradient(int unit, const std::string& param) const {
  std::vector<double> sum = states_[unit].at({StateKind::gradient_sum, param});
  const int last = static_cast<int>(pieces_.units.size()) - 1, other = piece(last).find(param);
  if (unit == 0 && other >= 0 && piece(last).params[other].tied) {
    const std::vector<double>& g = states_[last].at({StateKind::gradient_sum, param});
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += g[i];
  }
  return sum;
}

}  // namespace myriad
