// Ops that count the choices "bsj" of experts that a router made: how many tokens each expert got,
// which choices still fit its capacity, and how the choices are divided into rounds, of which each
// brings an owner of experts a bounded number of rows. A negative choice is no choice. Choices are
// always counted in the order of the tokens, so that all ranks agree on the division. Rounds in
// which a token's choices on a node go together are made by ir/rounds.h.
#include <vector>

#include "ir/rounds.h"
#include "ir/sequence.h"
#include "kernels/call.h"
#include "kernels/ref/ref.h"

namespace myriad::ref {

namespace {

// Counts in n[e] how often expert e was chosen.
void count_experts(const KernelCall& call, int64_t* n) {
  const int64_t experts = call.op->attrs.experts, all = call.ins[0].elements();
  std::fill_n(n, experts, 0);
  for (int64_t i = 0; i < all; ++i) {
    const int32_t e = call.ins[0].as<int32_t>()[i];
    CHECK(e < experts, "choice {} of {} experts", e, experts);
    if (e >= 0) ++n[e];
  }
}

// The experts that owner p has.
Range owned(const Attrs& a, int64_t p) {
  return {p * a.experts / a.parts, (p + 1) * a.experts / a.parts};
}

// Calls to(i, round) for the choices of all tokens in order, and returns the number of rounds.
template <class F>
int64_t node_rounds(const KernelCall& call, F&& to) {
  const Attrs& a = call.op->attrs;
  const Tensor& idx = call.ins[0];
  const auto k = static_cast<size_t>(idx.size[idx.dims - 1]);
  NodeRounds rounds(a.experts, call.nodes, a.bound,
                    {reinterpret_cast<int64_t*>(call.scratch), NodeRounds::state_size(call.nodes)});
  for (int64_t i = 0; k > 0 && i < idx.elements(); i += static_cast<int64_t>(k)) {
    rounds.token({idx.as<int32_t>() + i, k},
                 [&](size_t j, int64_t round) { to(i + static_cast<int64_t>(j), round); });
  }
  return rounds.rounds();
}

}  // namespace

size_t experts_scratch(const Op& op, const LabelSizes&, DType) {
  const Attrs& a = op.attrs;
  return sizeof(int64_t) * (a.ranks_per_node > 0 ? NodeRounds::state_size({.owners = a.parts})
                                                 : static_cast<size_t>(a.experts));
}

void count(const KernelCall& call) {
  begin(call);
  const Tensor &idx = call.ins[0], &y = call.outs[0];
  const int64_t x = y.size[y.dims - 1], lo = y.lo[y.dims - 1];
  const int64_t rows = y.dims == 2 ? y.size[0] : 1, n = rows == 0 ? 0 : idx.elements() / rows;
  by_real(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(y.as<T>(), y.elements(), T(0));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = row * n; i < (row + 1) * n; ++i) {
        const int32_t e = idx.as<int32_t>()[i];
        if (e < 0 || e < lo || e >= lo + x) continue;
        T& times = y.as<T>()[row * x + e - lo];
        times = static_cast<T>(times + 1);
      }
    }
  });
}

void fits(const KernelCall& call) {
  begin(call);
  const Attrs& a = call.op->attrs;
  int64_t* taken = reinterpret_cast<int64_t*>(call.scratch);
  std::fill_n(taken, a.experts, 0);
  const Tensor& idx = call.ins[0];
  const int64_t rows = idx.size[0], sequence = idx.size[1], k = idx.size[2];
  const std::vector<int32_t> order = sequence_order(sequence, a.cp);
  std::vector<int32_t> place_of(order.size());
  for (size_t place = 0; place < order.size(); ++place)
    place_of[static_cast<size_t>(order[place])] = static_cast<int32_t>(place);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t b = 0; b < rows; ++b) {
      for (const int32_t place : place_of) {
        for (int64_t i = (b * sequence + place) * k, end = i + k; i < end; ++i) {
          const int32_t e = idx.as<int32_t>()[i];
          CHECK(e < a.experts, "choice {} of {} experts", e, a.experts);
          call.outs[0].as<T>()[i] = e >= 0 && taken[e]++ < a.capacity ? T(1) : T(0);
        }
      }
    }
  });
}

void window(const KernelCall& call) {
  begin(call);
  const Attrs& a = call.op->attrs;
  if (a.ranks_per_node > 0) {
    int32_t* now = call.outs[0].as<int32_t>();
    std::fill_n(now, call.outs[0].elements(), -1);
    node_rounds(call, [&](int64_t i, int64_t round) {
      if (round == call.round) now[i] = call.ins[0].as<int32_t>()[i];
    });
    return;
  }
  int64_t* place =
      reinterpret_cast<int64_t*>(call.scratch);  // in its owner's list: of the next pair
  count_experts(call, place);
  for (int64_t p = 0; p < a.parts; ++p) {
    int64_t before = 0;
    for (int64_t e = owned(a, p).lo; e < owned(a, p).hi; ++e) {
      const int64_t n = place[e];
      place[e] = before;
      before += n;
    }
  }
  const int64_t n = call.ins[0].elements();
  for (int64_t i = 0; i < n; ++i) {
    const int32_t e = call.ins[0].as<int32_t>()[i];
    const int64_t round = e < 0 || a.bound == 0 ? 0 : place[e]++ / a.bound;
    call.outs[0].as<int32_t>()[i] = round == call.round ? e : -1;
  }
}

void rounds(const KernelCall& call) {
  begin(call);
  const Attrs& a = call.op->attrs;
  if (a.ranks_per_node > 0) {
    const int64_t most = node_rounds(call, [](int64_t, int64_t) {});
    *call.outs[0].as<int32_t>() = static_cast<int32_t>(most);
    return;
  }
  int64_t* of_expert = reinterpret_cast<int64_t*>(call.scratch);
  count_experts(call, of_expert);
  int64_t most = 1;
  for (int64_t p = 0; p < a.parts; ++p) {
    int64_t n = 0;
    for (int64_t e = owned(a, p).lo; e < owned(a, p).hi; ++e) n += of_expert[e];
    if (a.bound > 0) most = std::max(most, ceil_div(n, a.bound));
  }
  *call.outs[0].as<int32_t>() = static_cast<int32_t>(most);
}

}  // namespace myriad::ref
