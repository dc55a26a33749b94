#include "machine/exec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <utility>

#include "base/error.h"
#include "comm/boxes.h"
#include "ir/rows.h"
#include "kernels/grouped.h"
#include "kernels/move.h"
#include "machine/exec_rows.h"

namespace myriad {

Arenas::Arenas(const std::vector<int64_t>& bytes) : bytes_(bytes) {
  for (int64_t n : bytes) {
    const size_t size = (static_cast<size_t>(std::max<int64_t>(n, 1)) + 4095) / 4096 * 4096;
    auto* p = static_cast<std::byte*>(std::aligned_alloc(4096, size));
    if (!p) throw Error(fmt::format("no memory for an arena of {} bytes", size), "executor");
    std::memset(p, 0, size);
    memory_.emplace_back(p);
  }
}

size_t kernel_scratch(KernelSet set, const Op& op, const LabelSizes& local, DType real) {
  const auto of = [&](const Op& op, const LabelSizes& local) -> size_t {
    const KernelChoice& choice = choose(op, local, real, set);
    return choice.scratch ? choice.scratch(op, local, real) : 0;
  };
  if (!works_on_rows(op)) return of(op, local);
  if (is_grouped(op)) return 0;
  const Op rows = collapsed(op);
  return of(rows, collapsed_sizes(rows, local, local.at('e') * local.at('b') * local.at('s')));
}

namespace {

Tensor describe(const Mesh& mesh, const Value& v, const Layout& layout, int rank) {
  Tensor t{.dtype = v.dtype, .dims = layout.dims};
  for (int d = 0; d < layout.dims; ++d) {
    const Range r = local_range(mesh, layout, v.sizes, d, rank);
    t.size[d] = r.size();
    t.lo[d] = r.lo;
  }
  return t;
}

// Of routed rows: the dims after e, b, s, behind one of rows whose number is not known yet.
Tensor describe_rows(const Tensor& t) {
  Tensor rows{.data = t.data, .dtype = t.dtype, .dims = t.dims - 2};
  for (int d = 3; d < t.dims; ++d) {
    rows.size[d - 2] = t.size[d];
    rows.lo[d - 2] = t.lo[d];
  }
  return rows;
}

Box3 box_of_rows(const Tensor& t) {
  return {{t.lo[0], t.lo[0] + t.size[0]},
          {t.lo[1], t.lo[1] + t.size[1]},
          {t.lo[2], t.lo[2] + t.size[2]}};
}

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

bool all_finite(const Tensor& t) {
  const int64_t n = t.elements();
  const auto finite = [n](const auto* x) {
    return std::all_of(x, x + n, [](auto e) { return std::isfinite(e); });
  };
  if (t.dtype == DType::f32) return finite(t.as<float>());
  if (t.dtype == DType::f64) return finite(t.as<double>());
  if (t.dtype == DType::bf16)
    return std::all_of(t.as<Bf16>(), t.as<Bf16>() + n, [](float e) { return std::isfinite(e); });
  if (t.dtype == DType::exact)
    return std::all_of(t.as<ExactSum>(), t.as<ExactSum>() + n,
                       [](const ExactSum& e) { return e.bad == 0; });
  return true;
}

// A body as one rank runs it: everything but addresses, and the numbers of routed rows.
struct PreparedBody {
  struct Run {
    const KernelChoice* choice = nullptr;  // null: chosen when the number of rows is known
    LabelSizes local;
    size_t scratch = 0;
    int rows = -1, leads = -1;      // versions whose rows the op works on, see KernelCall
    std::unique_ptr<Op> collapsed;  // of an op that works on rows as on any tensor
  };
  std::vector<Tensor> versions;
  std::vector<Box3> boxes;  // of sparse versions
  std::vector<int>
      table;  // by version: the version of the choices that define its rows; -1: not sparse
  std::vector<Run> steps;
};

}  // namespace

struct Executor::Shared {
  const Program& program;
  Arenas& arenas;
  Pool& pool;
  ExecOptions options;
  std::unique_ptr<Communicator> comm;
  const Feed* feed = nullptr;
  Tap tap;
  bool check_finite = false, timing = false;
};

struct Executor::Rank : Task, Machine {
  Rank(Shared& shared, int number, MemoryPlan plan)
      : s(shared),
        rank(number),
        plan(std::move(plan)),
        arena(shared.arenas.of(number)),
        walker(shared.program, number) {
    meter.arena = arena;
    CHECK(this->plan.peak_bytes <= shared.arenas.bytes(number), "arena of rank {} is too small",
          number);
    for (const LoweredBody& body : s.program.bodies) prepare(body);
    prepare_transfers();
  }

  void prepare(const LoweredBody& body) {
    PreparedBody p;
    const Mesh& mesh = s.program.mesh;
    for (const Version& v : body.versions) {
      const Value& value = (*body.graph)[v.value];
      const Tensor t = describe(mesh, value, v.layout, rank);
      p.boxes.push_back(value.sparse() ? box_of_rows(t) : Box3{});
      p.versions.push_back(value.sparse() ? describe_rows(t) : t);
      p.table.push_back(value.sparse() ? made_by_window(body, value.routing) : -1);
    }
    for (const Step& step : body.steps)
      p.steps.push_back(step.kind == StepKind::run ? prepare(body, p, step) : PreparedBody::Run{});
    bodies.push_back(std::move(p));
  }

  PreparedBody::Run prepare(const LoweredBody& body, const PreparedBody& p,
                            const Step& step) const {
    PreparedBody::Run run;
    const Op& op = body.ops[step.op];
    run.local = op.size;
    for (size_t l = 0; l < run.local.sizes.size(); ++l) {
      run.local.sizes[l] = s.program.mesh.range(op.size.sizes[l], step.cuts[l], rank).size();
    }
    for (const auto* versions : {&step.ins, &step.outs}) {
      for (int v : *versions) {
        if (p.table[v] >= 0) run.rows = v;
      }
    }
    if (op.row == Row::spread) run.leads = step.ins[0];
    if (op.row == Row::collapse) run.leads = std::exchange(run.rows, step.ins[0]);
    if (works_on_rows(op)) {
      run.collapsed = std::make_unique<Op>(collapsed(op));
      return run;
    }
    run.choice = &choose(op, run.local, body.graph->real, s.options.kernels);
    run.scratch = run.choice->scratch ? run.choice->scratch(op, run.local, body.graph->real) : 0;
    return run;
  }

  // The version of the choices that its window made: it covers whatever rows this rank can hold.
  static int made_by_window(const LoweredBody& body, int routing) {
    for (const Step& step : body.steps) {
      if (step.kind == StepKind::run && body.versions[step.outs[0]].value == routing)
        return step.outs[0];
    }
    CHECK(false, "{} has no choices for its rows", body.name);
  }

  // Rows of a sparse version in this round.
  const BoxRows& rows_of(const Action& a, int action, int v) {
    const PreparedBody& body = bodies[a.body];
    Tensor table = body.versions[body.table[v]];
    table.data = arena + plan.actions[action].versions[body.table[v]];
    return rows.get(table, body.boxes[v]);
  }

  Tensor version(const Action& a, int action, int v) {
    Tensor t = bodies[a.body].versions[v];
    t.data = arena + plan.actions[action].versions[v];
    if (bodies[a.body].table[v] >= 0) t.size[0] = rows_of(a, action, v).set.n;
    return t;
  }

  Tensor buffer(int index) const {
    const Buffer& b = s.program.buffers[index];
    Tensor t = bodies[b.body].versions[b.version];
    t.data = arena + plan.buffers[index];
    return t;
  }

  Tensor state(int index) const {
    const State& st = s.program.states[index];
    const LoweredBody& body = s.program.bodies[st.body];
    Tensor t = describe(s.program.mesh, (*body.graph)[body.states[st.use].value],
                        body.states[st.use].layout, rank);
    if (plan.states[index] >= 0) t.data = arena + plan.states[index];
    return t;
  }

  // Handles of transfers, by flat position.
  void prepare_transfers() {
    const auto& actions = s.program.actions[s.program.stage_of(rank)];
    const int per_stage = s.program.mesh.ranks() / s.program.stages, column = rank % per_stage;
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      if (a.act == Act::run) {
        const LoweredBody& body = s.program.bodies[a.body];
        for (const Step& step : body.steps) {
          const bool comm = step.kind == StepKind::move && sends(step.what);
          handles.push_back(
              comm ? s.comm->prepare(rank, collective(a, static_cast<int>(i), body, step)) : -1);
        }
        continue;
      }
      int handle = -1;
      const int peer = a.peer * per_stage + column;
      if (a.act == Act::send) {
        handle = s.comm->prepare(rank, point_to_point(rank, peer, true, buffer(a.ins[0])));
        sending[a.ins[0]] = handle;
      } else if (a.act == Act::recv) {
        handle = s.comm->prepare(rank, point_to_point(peer, rank, false, buffer(a.outs[0])));
      } else if (a.act == Act::wait) {
        handle = sending.at(a.ins[0]);
      }
      handles.push_back(handle);
    }
  }

  static Transfer point_to_point(int from, int to, bool sender, const Tensor& t) {
    Transfer x{.kind = CommKind::send, .dtype = t.dtype, .group = {from, to}, .me = sender ? 0 : 1};
    x.send.resize(2);
    x.recv.resize(2);
    (sender ? x.send[1] : x.recv[0]) = flat(t);
    return x;
  }

  Transfer collective(const Action& a, int action, const LoweredBody& body, const Step& step) {
    const Mesh& mesh = s.program.mesh;
    const Version &from = body.versions[step.ins[0]], &to = body.versions[step.outs[0]];
    const Value& v = (*body.graph)[from.value];
    Tensor src = bodies[a.body].versions[step.ins[0]], dst = bodies[a.body].versions[step.outs[0]];
    src.data = arena + plan.actions[action].versions[step.ins[0]];
    dst.data = arena + plan.actions[action].versions[step.outs[0]];
    Transfer x{
        .kind = comm_kind(step.what), .dtype = v.dtype, .group = mesh.group(step.atoms, rank)};
    std::sort(x.group.begin(),
              x.group.end());  // sums run in mesh order, whatever the order of the list
    if (is_routed_hidden(body, step.ins[0])) x.row_elements = src.size[src.dims - 1];
    x.me = static_cast<int>(std::find(x.group.begin(), x.group.end(), rank) - x.group.begin());
    if (step.what == MoveKind::reduce_scatter || step.what == MoveKind::all_reduce) {
      x.reduction = from.layout.max ? Reduction::max : Reduction::sum;
    }
    if (v.sparse()) return collective_of_rows(std::move(x), v, from.layout, to.layout, src, dst);
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

  // Parts are row lists, filled in when they are known, times boxes of the other dims.
  Transfer collective_of_rows(Transfer x, const Value& v, const Layout& before, const Layout& after,
                              const Tensor& src, const Tensor& dst) {
    const size_t n = x.group.size();
    while (send_rows.size() < n) {
      send_rows.emplace_back();
      recv_rows.emplace_back();
    }
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
      x.send = {part(src, src, send_rows[0].list)};
      x.recv = {part(dst, dst, recv_rows[0].list)};
      return x;
    }
    for (size_t j = 0; j < n; ++j) {
      const Tensor theirs_before = describe_rows(describe(s.program.mesh, v, before, x.group[j]));
      const Tensor theirs_after = describe_rows(describe(s.program.mesh, v, after, x.group[j]));
      x.send.push_back(part(src, theirs_after, send_rows[j].list));
      x.recv.push_back(part(dst, theirs_before, recv_rows[j].list));
    }
    return x;
  }

  // Fills the lists of the transfer that this rank is about to enter.
  void list_rows(const At& at, const Action& a, const LoweredBody& body, const Step& step) {
    const Version &from = body.versions[step.ins[0]], &to = body.versions[step.outs[0]];
    const Value& v = (*body.graph)[from.value];
    const BoxRows &mine = rows_of(a, at.action, step.ins[0]),
                  &after = rows_of(a, at.action, step.outs[0]);
    if (step.what == MoveKind::all_reduce) {
      send_rows[0].take_all(mine.set.n);
      recv_rows[0].take_all(mine.set.n);
      return;
    }
    std::vector<int> group = s.program.mesh.group(step.atoms, rank);
    std::sort(group.begin(), group.end());
    for (size_t j = 0; j < group.size(); ++j) {
      send_rows[j].take(mine, box_of_rows(describe(s.program.mesh, v, to.layout, group[j])));
      recv_rows[j].take(after, box_of_rows(describe(s.program.mesh, v, from.layout, group[j])));
    }
  }

  // Running.

  Progress resume() override {
    bool moved = false;
    for (;;) {
      const Progress p = s.timing ? stopwatch.advance(walker, *this) : walker.advance(*this);
      if (p == Progress::done) return p;
      if (p == Progress::blocked) return moved ? Progress::advanced : p;
      moved = true;
    }
  }

  Progress act(const At& at, const Action& a) override {
    switch (a.act) {
      case Act::feed:
        for (int b : a.outs) {
          const Tensor t = buffer(b);
          meter.touch(t);
          (*s.feed)(rank, s.program.value(s.program.buffers[b]), a.micro_batch, t);
        }
        return Progress::advanced;
      case Act::zero: {
        const Tensor t = state(a.states[0]);
        meter.touch(t);
        std::memset(t.data, 0, t.bytes());
        return Progress::advanced;
      }
      case Act::send:
        meter.touch(buffer(a.ins[0]));
        s.comm->start(rank, handles[at.flat]);
        return Progress::advanced;
      case Act::wait:
        return s.comm->wait(rank, handles[at.flat]);
      case Act::recv: {
        const Progress p = s.comm->run(rank, handles[at.flat]);
        if (p != Progress::blocked) meter.touch(buffer(a.outs[0]));
        return p == Progress::blocked ? p : Progress::advanced;
      }
      case Act::run:
        break;
    }
    CHECK(false, "not an action of its own");
  }

  Progress step(const At& at, const Action& a, const LoweredBody& body, const Step& step) override {
    switch (step.kind) {
      case StepKind::run:
        run_op(at, a, body, step);
        break;
      case StepKind::move:
        if (sends(step.what)) {
          if (bodies[a.body].table[step.ins[0]] >= 0 && !inside) list_rows(at, a, body, step);
          inside = true;
          if (s.comm->run(rank, handles[at.flat]) == Progress::blocked) return Progress::blocked;
          inside = false;
          meter.touch(version(a, at.action, step.ins[0]));
          meter.touch(version(a, at.action, step.outs[0]));
        } else {
          move_here(at, a, step);
        }
        break;
      case StepKind::emit: {
        const Tensor from = version(a, at.action, step.ins[0]), to = buffer(a.outs[step.state]);
        at.round == 0 ? copy(to, from, meter, &s.pool) : accumulate(to, from, meter, &s.pool);
        break;
      }
      case StepKind::read:
        break;
      case StepKind::write: {
        const Tensor from = version(a, at.action, step.ins[0]), to = state(a.states[step.state]);
        if (from.data != to.data) copy(to, from, meter, &s.pool);
        break;
      }
      case StepKind::accum: {
        const Tensor from = version(a, at.action, step.ins[0]), to = state(a.states[step.state]);
        a.first&& at.round == 0 ? copy(to, from, meter, &s.pool)
                                : accumulate(to, from, meter, &s.pool);
        break;
      }
    }
    return Progress::advanced;
  }

  int rounds(const At&, const Action& a, const LoweredBody& body) override {
    return *buffer(a.ins[body.rounds]).as<int32_t>();
  }

  void run_op(const At& at, const Action& a, const LoweredBody& body, const Step& step) {
    const PreparedBody::Run& run = bodies[a.body].steps[at.step];
    if (body.ops[step.op].row == Row::window) rows.clear();
    ins.clear();
    outs.clear();
    for (int v : step.ins) ins.push_back(version(a, at.action, v));
    for (int v : step.outs) outs.push_back(version(a, at.action, v));
    KernelCall call{.op = &body.ops[step.op],
                    .ins = ins,
                    .outs = outs,
                    .local = run.local,
                    .scratch = arena + plan.actions[at.action].scratch[at.step],
                    .scratch_bytes = run.scratch,
                    .meter = &meter,
                    .round = at.round,
                    .nodes = body.ops[step.op].attrs.nodes(rank),
                    .pool = &s.pool};
    if (run.rows >= 0) {
      const Box3& box = bodies[a.body].boxes[run.rows];
      call.rows = &rows_of(a, at.action, run.rows).set;
      if (run.leads >= 0) call.leads = &rows_of(a, at.action, run.leads).set;
      call.e = box.e;
      call.b = box.b;
      call.s = box.s;
    }
    if (run.choice) {
      run.choice->run(call);
    } else {
      call.op = run.collapsed.get();
      run_on_rows(call, body.graph->real, s.options.kernels);
    }
    ++ops[static_cast<int>(body.ops[step.op].row)];
    if (s.check_finite && bad.name.empty()) look(at, a, body, step);
  }

  void look(const At& at, const Action& a, const LoweredBody& body, const Step& step) {
    const Op& op = body.ops[step.op];
    for (size_t o = 0; o < outs.size(); ++o) {
      const bool may =
          op.row == Row::max_stop || (op.row == Row::attention && o == 1) || op.row == Row::clip;
      if (may || all_finite(outs[o])) continue;
      bad = {fmt::format("{} ({}, unit {}, micro-batch {})", show(op, *body.graph), body.name,
                         a.unit, a.micro_batch),
             rank, order(at, a, body)};
      return;
    }
  }

  static std::array<int, 4> order(const At& at, const Action& a, const LoweredBody& body) {
    if (is_optimizer(body.role)) return {2, 0, at.action, at.step};
    const bool backward = is_backward(body.role);
    return {backward, a.micro_batch, backward ? -a.unit : a.unit, at.step};
  }

  void move_here(const At& at, const Action& a, const Step& step) {
    const Tensor from = version(a, at.action, step.ins[0]),
                 to = version(a, at.action, step.outs[0]);
    const Mesh& mesh = s.program.mesh;
    meter.touch(to);
    const bool zero = step.what == MoveKind::first &&
                      std::any_of(step.atoms.begin(), step.atoms.end(),
                                  [&](Atom x) { return mesh.coordinate(rank, x) != 0; });
    if (zero) {
      std::memset(to.data, 0, to.bytes());
      return;
    }
    meter.touch(from);
    if (bodies[a.body].table[step.ins[0]] >= 0) {
      copy_rows(at, a, step, from, to);
    } else if (to.elements() > 0) {
      copy(Boxes({flat_box(to), box_of(from, to)}), to.dtype);
    }
  }

  // Rows of `from` that lie in the box of `to`.
  void copy_rows(const At& at, const Action& a, const Step& step, const Tensor& from,
                 const Tensor& to) {
    local_rows.take(rows_of(a, at.action, step.ins[0]), bodies[a.body].boxes[step.outs[0]]);
    Tensor from_row = from, to_row = to;
    from_row.size[0] = to_row.size[0] = 1;
    for (int64_t r = 0; r < local_rows.list.n; ++r) {
      from_row.data = from.data + static_cast<int64_t>(from_row.bytes()) * local_rows.list.index[r];
      to_row.data = to.data + static_cast<int64_t>(to_row.bytes()) * r;
      if (to_row.elements() > 0)
        copy(Boxes({flat_box(to_row), box_of(from_row, to_row)}), to.dtype);
    }
  }

  static View flat_box(const Tensor& t) { return box_of(t, t); }

  void ran(const At&, const Action& a) override {
    if (!s.tap) return;
    for (int b : a.outs) s.tap(rank, a, b, buffer(b));
  }

  Shared& s;
  const int rank;
  const MemoryPlan plan;
  std::byte* const arena;
  Walker walker;
  Stopwatch stopwatch;
  Meter meter;
  std::vector<PreparedBody> bodies;
  std::vector<int> handles;
  std::map<int, int> sending;  // buffer -> handle of its send
  std::vector<Tensor> ins, outs;
  RoundRows rows;
  std::deque<RowChoice> send_rows,
      recv_rows;  // by member of the running transfer's group; addresses stay
  RowChoice local_rows;
  bool inside = false;  // has entered the collective it waits in
  std::array<int64_t, kRows> ops{};
  BadTensor bad;
};

Executor::Executor(const Program& program, std::vector<MemoryPlan> plans, Arenas& arenas,
                   Pool& pool, ExecOptions options)
    : shared_(new Shared{program, arenas, pool, options,
                         make_threads_communicator(program.mesh.ranks(), program.ranks_per_node)}) {
  for (int r = 0; r < program.mesh.ranks(); ++r)
    ranks_.push_back(std::make_unique<Rank>(*shared_, r, std::move(plans[r])));
  shared_->comm->seal();
}

Executor::~Executor() = default;

Outcome Executor::step(const Feed& feed) {
  shared_->feed = &feed;
  shared_->comm->reset_traffic();
  std::vector<Task*> tasks;
  for (auto& r : ranks_) {
    r->walker.restart();
    if (shared_->timing) r->stopwatch.restart();
    r->inside = false;
    r->meter.flops = 0;
    r->meter.high = 0;
    r->ops.fill(0);
    r->bad = {};
    tasks.push_back(r.get());
  }
  Outcome outcome = shared_->pool.run(tasks, shared_->options.stall_seconds);
  if (!outcome.ok()) outcome.reason.append("\n").append(shared_->comm->waiting());
  return outcome;
}

StepProfile Executor::measured() const {
  StepProfile p;
  for (const auto& r : ranks_) {
    p.flops += r->meter.flops;
    p.peak_bytes.push_back(static_cast<int64_t>(r->meter.high));
    for (int i = 0; i < kRows; ++i) {
      if (r->ops[i]) p.ops[info(static_cast<Row>(i)).name] += r->ops[i];
    }
    const Traffic& t = shared_->comm->traffic(r->rank);
    p.order.push_back(t.order);
    for (int k = 0; k < kCommKinds; ++k) {
      if (!t.messages[k]) continue;
      Count& c = p.collectives[name_of(static_cast<CommKind>(k))];
      c.bytes += t.bytes[k];
      c.messages += t.messages[k];
      c.between_nodes_bytes += t.between_nodes_bytes[k];
      c.between_nodes_rows += t.between_nodes_rows[k];
    }
  }
  return p;
}

void Executor::set_tap(Tap tap) { shared_->tap = std::move(tap); }
void Executor::set_check_finite(bool on) { shared_->check_finite = on; }
void Executor::set_timing(bool on) { shared_->timing = on; }
const std::vector<Stroke>& Executor::strokes(int rank) const {
  return ranks_[rank]->stopwatch.strokes();
}

BadTensor Executor::first_bad() const {
  BadTensor first;
  for (const auto& r : ranks_) {
    if (!r->bad.name.empty() && (first.name.empty() || r->bad.order < first.order)) first = r->bad;
  }
  return first;
}

Tensor Executor::state(int rank, int index) const { return ranks_[rank]->state(index); }
const Program& Executor::program() const { return shared_->program; }

}  // namespace myriad
