// The one program: lowered bodies and, for each pipeline stage, an ordered list of actions over
// them. The executor computes it, the profile sizes and counts it, the printer prints it; all walk
// it by machine/walker.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/layout.h"
#include "ir/pieces.h"

namespace myriad {

// A value in one layout. Versions of a body are numbered; each is made by one step or is an input.
struct Version {
  int value;
  Layout layout;
  // A collective is on its way to this layout: nothing may read the version, and only a `finish`
  // takes it.
  bool in_flight = false;
};

// move: a whole change of layout, done when the step is done. start, finish: the two halves of a
// move that sends (see ir/flight.h). emit: of a loop body: output `state` takes (first round) or
// adds ins[0].
enum class StepKind : uint8_t { run, move, start, finish, read, write, accum, emit };

struct Step {
  StepKind kind;
  int op = -1;  // run: index into LoweredBody::ops
  // Versions. move, start, finish: one each; read: outs; write, accum: ins.
  std::vector<int> ins, outs;
  std::vector<AtomList> cuts;       // run: by label of op.size
  MoveKind what = MoveKind::slice;  // move, start, finish
  AtomList atoms;                   // move, start, finish
  // Move, start or finish of a loop body: in the first round only; the rest find what it made.
  bool once = false;
  int state = -1;  // read, write, accum: index into LoweredBody::states
};

// A state at rest as a body names it.
struct StateUse {
  StateName name;
  int value;  // a value with its labels and sizes
  Layout layout;
};

// What a body is for. recompute: the forward parts of a piece once more, before its backward ones.
// The optimizer's, once a step: reduce brings gradient sums to where the optimizer keeps them (and
// adds those of a tied weight), square adds their squares to the norm, update moves parameters;
// finish makes the norm, the clipping factor and the losses.
enum class BodyRole : uint8_t { forward, recompute, backward, reduce, square, update, finish };
const char* name_of(BodyRole role);
constexpr bool is_backward(BodyRole role) { return role == BodyRole::backward; }
// Whether it runs once a step, after all micro-batches.
constexpr bool is_optimizer(BodyRole role) { return role >= BodyRole::reduce; }

struct LoweredBody {
  std::string name;
  int piece = -1;
  std::shared_ptr<Graph> graph;  // shared by all bodies of a piece
  std::vector<Op> ops;
  std::vector<Version> versions;
  std::vector<Step> steps;
  std::vector<StateUse> states;
  std::vector<int> inputs, outputs;  // versions; an action's buffers stand in the same order
  // A loop body runs once a round over the next window of routed rows; inputs[rounds] says how many
  // rounds. Each of `parts` owners of the experts has at most `bound` rows a round.
  bool loop = false;
  int rounds = -1;
  int64_t parts = 1, bound = 0;
  BodyRole role = BodyRole::forward;
};

// Whether a version is hidden rows on their way between tokens and experts: what crosses nodes for
// the sake of experts.
bool is_routed_hidden(const LoweredBody& body, int version);

// What lies between actions: a version of a value with a life of its own.
struct Buffer {
  std::string name;  // "y/L3.mb0"
  int body = -1;     // a body whose graph and versions type it
  int version = -1;
};

// A state of the whole program: parameter, moment or gradient sum of one unit, or a scalar
// ("s:norm") of the run (unit -1).
struct State {
  int unit;
  StateName name;
  int body, use;            // typed by bodies[body].states[use]
  std::vector<int> stages;  // that hold it, in order
};

enum class Act : uint8_t { feed, run, send, wait, recv, zero };

// feed: the caller's arrays come in (outs). run: a body. send starts, wait ends the sending of
// ins[0] to the same mesh coordinates of `peer`; recv takes outs[0]. zero: state becomes zero.
struct Action {
  Act act;
  int body = -1;
  int unit = -1;
  int micro_batch = -1;        // 0 also says: accum writes instead of adding (first of the step)
  std::vector<int> ins, outs;  // buffers
  std::vector<int> states;     // run: program states, as bodies[body].states; zero: one
  int peer = -1;               // stage
  int channel = -1;    // send, wait, recv: equal on both sides; one per boundary and direction
  bool first = false;  // run: a backward one of the unit's first micro-batch of the step
};

struct Program {
  Mesh mesh;  // atom "pp" is the slowest; its coordinate is the stage
  int stages = 1;
  int ranks_per_node = 0;  // node of rank r: r / ranks_per_node; 0: one node holds all
  std::vector<LoweredBody> bodies;
  std::vector<Buffer> buffers;
  std::vector<State> states;
  std::vector<std::vector<Action>> actions;  // by stage
  int stage_of(int rank) const { return rank / (mesh.ranks() / stages); }
  const Value& value(const Buffer& b) const;
  const Layout& layout(const Buffer& b) const;
};

// Where everything a rank holds lies, in bytes from the start of its arena, for the whole step
// (made by passes/memory.h).
struct MemoryPlan {
  std::vector<int64_t> states;   // offset by program state; -1: not on this rank
  std::vector<int64_t> buffers;  // offset by buffer; -1: not on this rank
  struct Run {
    std::vector<int64_t> versions;  // offset by version of the body
    std::vector<int64_t> scratch;   // offset by step
  };
  std::vector<Run> actions;  // by action; empty but for runs
  // What holds memory when the arena first reaches its peak; adds up to peak_bytes.
  struct Kinds {
    int64_t parameters = 0, gradients = 0, moments = 0;
    int64_t activations = 0;    // between actions, not sent or received; key/value caches
    int64_t communication = 0;  // sent or received, by actions or inside a body
    int64_t workspace = 0;      // the rest of what a body makes, scratch, scalars, and gaps between
    bool operator==(const Kinds&) const = default;
  };
  Kinds at_peak;
  int64_t parameter_bytes = 0;  // they lie first of all
  int64_t state_bytes = 0;      // parameters, moments, gradient sums, scalars; they lie first
  int64_t peak_bytes = 0;       // highest end of anything, rounded up to 64
};

}  // namespace myriad
