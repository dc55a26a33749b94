// Lowering as one list of passes, from single-device pieces of a model to the program of all ranks.
// Each pass is a free function on the program in the making (passes/bodies.h). The first five work
// on graphs, which know no mesh; the next two lay their bodies out; then each collective is parted
// into its start and its finish; the last orders the bodies into the actions of every stage.
// `myriad show passes` prints what each of them leaves.
#include "passes/lower.h"

#include "passes/actions.h"
#include "passes/bodies.h"
#include "passes/check.h"
#include "passes/differentiate.h"
#include "passes/relay.h"
#include "passes/split_moves.h"

namespace myriad {

Range micro_batch_rows(int64_t rows, int micro_batches, int j) {
  return {j * rows / micro_batches, (j + 1) * rows / micro_batches};
}

Schedule schedule_of(const Plan& plan, const LowerOptions& options) {
  const ScheduleKind kind =
      options.forward_only ? ScheduleKind::forward_only : schedule_named(plan.schedule);
  return make_schedule(kind, plan.pp, plan.vpp, plan.micro_batches);
}

int Lowering::add_body(LoweredBody body, BodyRole role) {
  body.role = role;
  program.bodies.push_back(std::move(body));
  return static_cast<int>(program.bodies.size()) - 1;
}

// Micro-batches differ by one row at most, so there are one or two variants of every piece.
void emit_pieces(Lowering& l, const Emit& emit) {
  auto& variants = l.pieces.variants;
  for (int j = 0; j < l.plan.micro_batches; ++j) {
    const int64_t n = micro_batch_rows(l.options.rows, l.plan.micro_batches, j).size();
    if (!variants.count(n)) variants[n].pieces = emit(n);
  }
  Program& program = l.program;
  program.mesh = mesh_of(l.plan, l.pieces.first().pieces);
  program.stages = l.plan.pp;
  if (l.plan.ranks_per_node < l.plan.ranks()) program.ranks_per_node = l.plan.ranks_per_node;
  const int pp = program.mesh.find("pp");
  l.stage_atoms = static_cast<AtomSet>(program.mesh.all() & ~(pp < 0 ? 0 : 1u << pp));
  // The rules point to the mesh, so to that of the program, which stays where it is.
  l.wanted = l.options.wanted
                 ? l.options.wanted
                 : Wanted(Rules(rules_of(l.plan), program.mesh, aliases_of(l.plan, program.mesh)));
  for (auto& [rows, variant] : variants) {
    for (Piece& piece : variant.pieces.pieces) {
      for (Op& op : piece.forward.ops) {
        if (op.row == Row::fits) op.attrs.cp = l.plan.cp;
      }
    }
  }
}

namespace {

template <class F>
void for_each_piece(Lowering& l, const F& f) {
  for (auto& [rows, variant] : l.pieces.variants) {
    for (Piece& piece : variant.pieces.pieces) f(piece);
  }
}

}  // namespace

void relay_rows(Lowering& l) {
  if (l.plan.dispatch != Dispatch::node_relay) return;
  for_each_piece(l, [&](Piece& piece) {
    if (piece.loop_part >= 0) relay(piece, l.plan);
  });
}

void differentiate_pieces(Lowering& l) {
  for_each_piece(l, [](Piece& piece) { differentiate(piece); });
}

namespace {

void schedule_actions(Lowering& l) {
  make_actions(l.pieces, l.plan, l.options, schedule_of(l.plan, l.options), l.program);
}

}  // namespace

void run_passes(Lowering& l, const Emit& emit, const AfterPass& after) {
  const auto done = [&](const char* pass) {
    if (after) after(pass, l);
  };
  emit_pieces(l, emit);
  done("emit");
  bound_rounds(l);
  done("bound_rounds");
  relay_rows(l);
  done("relay");
  differentiate_pieces(l);
  done("differentiate");
  split_bodies(l);
  done("split_bodies");
  shard_bodies(l);
  done("shard");
  shard_optimizer(l);
  done("shard_optimizer");
  split_moves(l.program);
  done("split_moves");
  schedule_actions(l);
  done("actions");
}

Program lower(const Emit& emit, const Plan& plan, const LowerOptions& options) {
  Lowering l(plan, options);
  run_passes(l, emit);
  if (options.check) check_program(l.program);
  return std::move(l.program);
}

}  // namespace myriad
