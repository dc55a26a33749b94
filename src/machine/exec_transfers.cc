// Turns the steps that move data into descriptions for the communicator. A part is the box where
// what one rank holds before the move meets what the other holds after it, as strides into the
// local tensor; a collective is such a box for each member of its group. Parts of routed rows are
// lists of rows, known only in the round, times boxes of the remaining dims.
#include "machine/exec_transfers.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "comm/boxes.h"
#include "ir/flight.h"

namespace myriad {

namespace {

// The box of `t` that covers the global ranges of `of` (clipped to t).
View box_of(const Tensor& t, const Tensor& of) {
  View v{.data = t.data, .dims = t.dims};
  int64_t stride = 1, offset = 0;
  for (int d = t.dims - 1; d >= 0; --d) {
    const int64_t lo = std::max(t.lo[d], of.lo[d]),
                  hi = std::min(t.lo[d] + t.size[d], of.lo[d] + of.size[d]);
    v.size[d] = std::max<int64_t>(0, hi - lo);
    v.stride[d] = stride;
    if (v.size[d] > 0) offset += (lo - t.lo[d]) * stride;
    stride *= t.size[d];
  }
  if (v.elements() > 0) v.data += offset * static_cast<int64_t>(size_of(t.dtype));
  return v;
}

View flat(const Tensor& t) {
  View v{.data = t.data, .dims = 1};
  v.size[0] = t.elements();
  v.stride[0] = 1;
  return v;
}

CommKind comm_kind(MoveKind what) {
  switch (what) {
    case MoveKind::all_gather:
      return CommKind::all_gather;
    case MoveKind::reduce_scatter:
      return CommKind::reduce_scatter;
    case MoveKind::all_reduce:
      return CommKind::all_reduce;
    case MoveKind::all_to_all:
      return CommKind::all_to_all;
    default:
      CHECK(false, "{} sends nothing", name_of(what));
  }
}

// Parts are row lists, filled in when they are known, times boxes of the other dims.
Transfer collective_of_rows(const Mesh& mesh, Transfer x, const Value& v, const Layout& before,
                            const Layout& after, const Tensor& src, const Tensor& dst,
                            PreparedBody::Rows& rows) {
  const size_t n = x.group.size();
  rows.send.resize(n);
  rows.recv.resize(n);
  const auto part = [](const Tensor& t, const Tensor& of, const RowList& list) {
    View view = box_of(t, of);
    view.size[0] = 0;
    view.stride[0] = 1;
    for (int d = 1; d < t.dims; ++d) view.stride[0] *= t.size[d];
    int64_t offset = 0, stride = 1;
    for (int d = t.dims - 1; d > 0; --d) {
      if (view.size[d] > 0) offset += (std::max(t.lo[d], of.lo[d]) - t.lo[d]) * stride;
      stride *= t.size[d];
    }
    view.data = t.data + offset * static_cast<int64_t>(size_of(t.dtype));
    view.rows = &list;
    return view;
  };
  if (x.kind == CommKind::all_reduce) {
    x.send = {part(src, src, rows.send[0].list)};
    x.recv = {part(dst, dst, rows.recv[0].list)};
    return x;
  }
  for (size_t j = 0; j < n; ++j) {
    const Tensor theirs_before = describe_rows(describe(mesh, v, before, x.group[j]));
    const Tensor theirs_after = describe_rows(describe(mesh, v, after, x.group[j]));
    x.send.push_back(part(src, theirs_after, rows.send[j].list));
    x.recv.push_back(part(dst, theirs_before, rows.recv[j].list));
  }
  return x;
}

Transfer point_to_point(int from, int to, bool sender, const Tensor& t) {
  Transfer x{.kind = CommKind::send, .dtype = t.dtype, .group = {from, to}, .me = sender ? 0 : 1};
  x.send.resize(2);
  x.recv.resize(2);
  (sender ? x.send[1] : x.recv[0]) = flat(t);
  return x;
}

// Of a step that begins a collective. src, dst: the two versions with their memory. rows: what the
// parts of routed rows point to.
Transfer collective(const Mesh& mesh, const LoweredBody& body, const Step& step, int rank,
                    const Tensor& src, const Tensor& dst, PreparedBody::Rows& rows) {
  const Version &from = body.versions[step.ins[0]], &to = body.versions[step.outs[0]];
  const Value& v = (*body.graph)[from.value];
  Transfer x{.kind = comm_kind(step.what), .dtype = v.dtype, .group = mesh.group(step.atoms, rank)};
  std::sort(x.group.begin(),
            x.group.end());  // sums run in mesh order, whatever the order of the list
  if (is_routed_hidden(body, step.ins[0])) x.row_elements = src.size[src.dims - 1];
  x.me = static_cast<int>(std::find(x.group.begin(), x.group.end(), rank) - x.group.begin());
  if (step.what == MoveKind::reduce_scatter || step.what == MoveKind::all_reduce) {
    x.reduction = from.layout.max ? Reduction::max : Reduction::sum;
  }
  if (v.sparse()) {
    return collective_of_rows(mesh, std::move(x), v, from.layout, to.layout, src, dst, rows);
  }
  if (step.what == MoveKind::all_reduce) {
    x.send = {flat(src)};
    x.recv = {flat(dst)};
    return x;
  }
  for (int peer : x.group) {
    const Tensor before = describe(mesh, v, from.layout, peer),
                 after = describe(mesh, v, to.layout, peer);
    switch (step.what) {
      case MoveKind::all_gather:
        x.send.push_back(box_of(src, src));
        x.recv.push_back(box_of(dst, before));
        break;
      case MoveKind::reduce_scatter:
        x.send.push_back(box_of(src, after));
        x.recv.push_back(box_of(dst, dst));
        break;
      default:
        x.send.push_back(box_of(src, after));
        x.recv.push_back(box_of(dst, before));
    }
  }
  return x;
}

}  // namespace

std::vector<int> prepare_transfers(const Program& program, int rank, RankMemory& memory,
                                   Communicator& comm) {
  const int stage = program.stage_of(rank);
  const int per_stage = program.mesh.ranks() / program.stages;
  const std::vector<int> starts = starts_of(program, stage);
  std::vector<int> handles;
  std::map<int, int> sends;  // by buffer
  const auto prepare = [&](const Action& a) {
    const int peer = a.peer * per_stage + rank % per_stage;
    if (a.act == Act::wait) return sends.at(a.ins[0]);
    if (a.act == Act::recv)
      return comm.prepare(rank, point_to_point(peer, rank, false, memory.buffer(a.outs[0])));
    if (a.act != Act::send) return -1;
    return sends[a.ins[0]] =
               comm.prepare(rank, point_to_point(rank, peer, true, memory.buffer(a.ins[0])));
  };
  for (const Action& a : program.actions[stage]) {
    if (a.act != Act::run) {
      handles.push_back(prepare(a));
      continue;
    }
    const int action = static_cast<int>(&a - program.actions[stage].data());
    const LoweredBody& body = program.bodies[a.body];
    for (size_t t = 0; t < body.steps.size(); ++t) {
      const Step& step = body.steps[t];
      const int start = starts[handles.size()];
      if (begins_collective(step)) {
        handles.push_back(comm.prepare(
            rank, collective(program.mesh, body, step, rank, memory.place(a, action, step.ins[0]),
                             memory.place(a, action, step.outs[0]), memory.body(a).rows[t])));
      } else {
        handles.push_back(start >= 0 ? handles[start] : -1);
      }
    }
  }
  return handles;
}

void list_rows(const Mesh& mesh, const LoweredBody& body, const Step& step, int rank,
               const BoxRows& mine, const BoxRows& theirs, PreparedBody::Rows& rows) {
  const Version &from = body.versions[step.ins[0]], &to = body.versions[step.outs[0]];
  const Value& v = (*body.graph)[from.value];
  if (step.what == MoveKind::all_reduce) {
    rows.send[0].take_all(mine.set.n);
    rows.recv[0].take_all(mine.set.n);
    return;
  }
  std::vector<int> group = mesh.group(step.atoms, rank);
  std::sort(group.begin(), group.end());
  for (size_t j = 0; j < group.size(); ++j) {
    rows.send[j].take(mine, box_of_rows(describe(mesh, v, to.layout, group[j])));
    rows.recv[j].take(theirs, box_of_rows(describe(mesh, v, from.layout, group[j])));
  }
}

void copy_part(const Tensor& from, const Tensor& to) {
  if (to.elements() > 0) copy(Boxes({box_of(to, to), box_of(from, to)}), to.dtype);
}

void copy_rows(const Tensor& from, const Tensor& to, const RowList& chosen) {
  Tensor from_row = from, to_row = to;
  from_row.size[0] = to_row.size[0] = 1;
  for (int64_t r = 0; r < chosen.n; ++r) {
    from_row.data = from.data + static_cast<int64_t>(from_row.bytes()) * chosen.index[r];
    to_row.data = to.data + static_cast<int64_t>(to_row.bytes()) * r;
    copy_part(from_row, to_row);
  }
}

}  // namespace myriad
