// What a rank does with each action and step. The walker (machine/walker.h) says what comes next;
// here it is done, or said to be blocked, and then asked for again. Everything is in the rank's
// arena where the memory plan says. A collective is entered by `start` and waited for by `finish`;
// both use the transfer that was prepared for the start, which finds its memory by the same plan.
// Read machine/exec_rank.h first, then machine/exec_prepare.h.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ir/flight.h"
#include "ir/print.h"
#include "kernels/move.h"
#include "machine/exec_finite.h"
#include "machine/exec_rank.h"
#include "machine/exec_transfers.h"

namespace myriad {

Executor::Rank::Rank(Shared& shared, int number, MemoryPlan plan)
    : s(shared),
      rank(number),
      memory(shared.program, number, std::move(plan), shared.arenas.of(number),
             shared.options.kernels),
      walker(shared.program, number),
      handles(prepare_transfers(shared.program, number, memory, *shared.comm)) {
  meter.arena = shared.arenas.of(number);
}

void Executor::Rank::restart() {
  walker.restart();
  if (s.timing) stopwatch.restart();
  inside = false;
  meter.flops = 0;
  meter.high = 0;
  ops.fill(0);
  bad = {};
}

Progress Executor::Rank::resume() {
  bool moved = false;
  for (;;) {
    const Progress p = s.timing ? stopwatch.advance(walker, *this) : walker.advance(*this);
    if (p == Progress::done || p == Progress::failed) return p;
    if (p == Progress::blocked) return moved ? Progress::advanced : p;
    moved = true;
  }
}

Progress Executor::Rank::act(const At& at, const Action& a) {
  switch (a.act) {
    case Act::feed:
      for (int b : a.outs) {
        const Tensor t = memory.buffer(b);
        meter.touch(t);
        (*s.feed)(rank, s.program.value(s.program.buffers[b]), a.micro_batch, t);
      }
      return Progress::advanced;
    case Act::zero: {
      const Tensor t = memory.state(a.states[0]);
      meter.touch(t);
      std::memset(t.data, 0, t.bytes());
      return Progress::advanced;
    }
    case Act::send:
      meter.touch(memory.buffer(a.ins[0]));
      return going_on(s.comm->start(rank, handles[at.flat]), a);
    case Act::wait:
      return going_on(s.comm->finish(rank, handles[at.flat]), a);
    case Act::recv: {
      const Progress p = going_on(s.comm->run(rank, handles[at.flat]), a);
      if (p == Progress::advanced) meter.touch(memory.buffer(a.outs[0]));
      return p;
    }
    case Act::run:
      break;
  }
  CHECK(false, "not an action of its own");
}

Progress Executor::Rank::step(const At& at, const Action& a, const LoweredBody& body,
                              const Step& step) {
  switch (step.kind) {
    case StepKind::run:
      return run_op(at, a, body, step);
    case StepKind::move:
      if (sends(step.what)) return move_and_wait(at, a, body, step);
      move_here(at, a, step);
      break;
    case StepKind::start:
      return start(at, a, body, step);
    case StepKind::finish:
      return going_on(s.comm->finish(rank, handles[at.flat]), a);
    case StepKind::emit: {
      const Tensor from = memory.version(a, at.action, step.ins[0]),
                   to = memory.buffer(a.outs[step.state]);
      at.round == 0 ? copy(to, from, meter, &s.pool) : accumulate(to, from, meter, &s.pool);
      break;
    }
    case StepKind::read:
      break;
    case StepKind::write: {
      const Tensor from = memory.version(a, at.action, step.ins[0]),
                   to = memory.state(a.states[step.state]);
      if (from.data != to.data) copy(to, from, meter, &s.pool);
      break;
    }
    case StepKind::accum: {
      const Tensor from = memory.version(a, at.action, step.ins[0]),
                   to = memory.state(a.states[step.state]);
      a.first&& at.round == 0 ? copy(to, from, meter, &s.pool)
                              : accumulate(to, from, meter, &s.pool);
      break;
    }
  }
  return Progress::advanced;
}

Progress Executor::Rank::start(const At& at, const Action& a, const LoweredBody& body,
                               const Step& step) {
  PreparedBody& p = memory.body(a);
  if (p.table[step.ins[0]] >= 0) {
    list_rows(s.program.mesh, body, step, rank, memory.rows_of(a, at.action, step.ins[0]),
              memory.rows_of(a, at.action, step.outs[0]), p.rows[at.step]);
  }
  meter.touch(memory.version(a, at.action, step.ins[0]));
  meter.touch(memory.version(a, at.action, step.outs[0]));
  return going_on(s.comm->start(rank, handles[at.flat]), a);
}

Progress Executor::Rank::move_and_wait(const At& at, const Action& a, const LoweredBody& body,
                                       const Step& step) {
  if (!inside && start(at, a, body, step) == Progress::failed) return Progress::failed;
  const Progress p = going_on(s.comm->finish(rank, handles[at.flat]), a);
  inside = p == Progress::blocked;
  return p;
}

// What a call of the communicator means for the walk.
Progress Executor::Rank::going_on(Progress p, const Action& a) {
  if (p == Progress::failed)
    return fail(fmt::format("rank {} in {}: {}", rank, show(a, s.program), s.comm->failure()));
  return p == Progress::done ? Progress::advanced : p;
}

int Executor::Rank::rounds(const At&, const Action& a, const LoweredBody& body) {
  return *memory.buffer(a.ins[body.rounds]).as<int32_t>();
}

Progress Executor::Rank::run_op(const At& at, const Action& a, const LoweredBody& body,
                                const Step& step) {
  const PreparedBody::Run& run = memory.body(a).steps[at.step];
  if (body.ops[step.op].row == Row::window) memory.begin_round();
  ins.clear();
  outs.clear();
  for (int v : step.ins) ins.push_back(memory.version(a, at.action, v));
  for (int v : step.outs) outs.push_back(memory.version(a, at.action, v));
  KernelCall call{.op = &body.ops[step.op],
                  .ins = ins,
                  .outs = outs,
                  .local = run.local,
                  .scratch = memory.scratch(at),
                  .scratch_bytes = run.scratch,
                  .meter = &meter,
                  .round = at.round,
                  .nodes = body.ops[step.op].attrs.nodes(rank),
                  .pool = &s.pool};
  if (run.rows >= 0) {
    const Box3& box = memory.body(a).boxes[run.rows];
    call.rows = &memory.rows_of(a, at.action, run.rows).set;
    if (run.leads >= 0) call.leads = &memory.rows_of(a, at.action, run.leads).set;
    call.e = box.e;
    call.b = box.b;
    call.s = box.s;
  }
  KernelStatus status;
  if (run.choice) {
    status = run.choice->run(call);
  } else {
    call.op = run.collapsed.get();
    status = run_on_rows(call, body.graph->real, s.options.kernels);
  }
  if (status != KernelStatus::ok) {
    return fail(fmt::format("{} on rank {} in {} (unit {}, micro-batch {}): {}", name_of(status),
                            rank, body.name, a.unit, a.micro_batch,
                            show(body.ops[step.op], *body.graph)));
  }
  ++ops[static_cast<int>(body.ops[step.op].row)];
  if (s.check_finite && bad.name.empty()) bad = not_finite(at, a, body, body.ops[step.op], outs);
  return Progress::advanced;
}

// The pool then stops the other ranks.
Progress Executor::Rank::fail(std::string reason) {
  failure = std::move(reason);
  return Progress::failed;
}

void Executor::Rank::move_here(const At& at, const Action& a, const Step& step) {
  const Tensor from = memory.version(a, at.action, step.ins[0]),
               to = memory.version(a, at.action, step.outs[0]);
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
  const PreparedBody& p = memory.body(a);
  if (p.table[step.ins[0]] < 0) return copy_part(from, to);
  local_rows.take(memory.rows_of(a, at.action, step.ins[0]), p.boxes[step.outs[0]]);
  copy_rows(from, to, local_rows.list);
}

void Executor::Rank::ran(const At&, const Action& a) {
  if (!s.tap) return;
  for (int b : a.outs) {
    const Buffer& out = s.program.buffers[b];
    if (!s.program.bodies[out.body].versions[out.version].in_flight)
      s.tap(rank, a, b, memory.buffer(b));
  }
}

}  // namespace myriad
