// What the passes of passes/lower.cc work on: the pieces of a model for every number of rows that a
// micro-batch has, first as graphs, then as laid-out bodies of the program.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "passes/lower.h"
#include "passes/sharder.h"

namespace myriad {

// A part of a piece that runs by itself.
struct BodyPart {
  Body body;
  BodyRole role;
  bool loop;  // runs once a round
};

// All pieces for one number of rows in a micro-batch.
struct LoweredVariant {
  Pieces pieces;
  // By piece. parts: in the order they run, made by split_bodies. graphs: made by shard_bodies from
  // those of the pieces.
  std::vector<std::vector<BodyPart>> parts;
  std::vector<std::shared_ptr<Graph>> graphs;
  // By piece: indices into Program::bodies in the order they run. recompute: the forward parts
  // without what they count, run before the backward ones (of pieces with a loop; other pieces
  // clone ops into the backward body instead).
  std::vector<std::vector<int>> forward, recompute, backward;
};

struct OptimizerBodies {
  std::vector<int> reduce, square, update;  // by piece, -1: nothing to do
  int reduce_other = -1, sum = -1;          // of the tied piece
};

struct LoweredPieces {
  std::map<int64_t, LoweredVariant> variants;  // by rows
  OptimizerBodies optimizer;
  int finish = -1;
  const LoweredVariant& first() const { return variants.begin()->second; }
  LoweredVariant& first() { return variants.begin()->second; }
};

// A program in the making.
struct Lowering {
  Lowering(const Plan& of, const LowerOptions& with) : plan(of), options(with) {}
  Lowering(const Lowering&) = delete;  // rules and sharders point into it

  const Plan& plan;
  const LowerOptions& options;
  LoweredPieces pieces;
  Program program;
  // What places values: wanted layouts, and what sharders share.
  Wanted wanted;
  LayoutMemory memory;
  std::map<int64_t, std::vector<std::unique_ptr<Sharder>>> sharders;  // by rows and piece
  std::map<int, std::map<StateName, Layout>> states;  // at rest, by piece; -1: of the finish piece
  AtomSet stage_atoms = 0;                            // all but pp

  int add_body(LoweredBody body, BodyRole role);  // to the program
};

// The passes, in the order of passes/lower.cc; each says in its file what it does.
void emit_pieces(Lowering& l, const Emit& emit);  // and the mesh
void bound_rounds(Lowering& l);
void relay_rows(Lowering& l);
void differentiate_pieces(Lowering& l);
void split_bodies(Lowering& l);
void shard_bodies(Lowering& l);
void shard_optimizer(Lowering& l);

// Sees the program in the making after each pass.
using AfterPass = std::function<void(const char* pass, const Lowering& l)>;
// All of lower() but the check. Fills `l`, which then must stay where it is: rules and sharders
// point into it.
void run_passes(Lowering& l, const Emit& emit, const AfterPass& after = {});

}  // namespace myriad
