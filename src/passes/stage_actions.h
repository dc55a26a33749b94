// The actions of one pipeline stage in the making, and the few ways to append to them. What is
// appended when stands in pipeline_actions.cc (forward and backward passes) and
// optimizer_actions.cc (the rest of a step).
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "passes/bodies.h"

namespace myriad {

// Shared by all stages.
struct ActionContext {
  const LoweredPieces& lowered;
  const Plan& plan;
  int64_t rows;  // of a step
  Program& program;
  std::map<std::pair<int, StateName>, int> states;  // by owning unit and name: program states

  const Pieces& pieces() const { return lowered.first().pieces; }
  int head() const { return static_cast<int>(pieces().units.size()) - 1; }
  int virtual_stages() const { return plan.pp * plan.vpp; }
  int stage_of(int virtual_stage) const { return virtual_stage % plan.pp; }
  const LoweredVariant& variant(int micro_batch) const;
  std::vector<int> units_of_virtual_stage(int k) const;  // in model order
  std::vector<int> units_of_stage(int stage) const;
  const Value& value(int body, int version) const;
};

// Whose value a buffer holds.
enum class BufferScope : uint8_t {
  unit,           // of unit `index`
  virtual_stage,  // handed in by the caller for the units of virtual stage `index`
  tied,           // of the weight that embedding and head share
  step,           // a scalar of the step
};

struct BufferKey {
  BufferScope scope;
  int index;
  int micro_batch;  // -1: of the step
  std::string value;
  auto operator<=>(const BufferKey&) const = default;
};

BufferKey unit_key(int unit, int micro_batch, std::string value);
BufferKey step_key(std::string value);
BufferKey tied_key(std::string value);

// One stage.
struct StageActions {
  ActionContext& all;
  int number;
  std::map<BufferKey, int> buffers;  // program buffers
  struct Sending {
    int buffer, peer;
  };
  std::map<int, Sending> sending = {};  // by channel
};

using WantedInputs = std::vector<std::pair<int, int>>;  // body and version
// Which buffer holds the input of a body.
using InputOf = std::function<int(const Value&)>;

Action& append(StageActions& s, Act act);
int add_buffer(StageActions& s, const BufferKey& key, int unit, int body, int version);
int find_buffer(const StageActions& s, const BufferKey& key);  // CHECKs that it is there
bool has_buffer(const StageActions& s, const BufferKey& key);

// The program state behind a body's, which the stage holds from now on.
int state_of(StageActions& s, int body, int use, int unit);

// Runs a body. Its outputs become buffers of `scope` (of unit `unit` where that is the scope).
Action& run_body(StageActions& s, int body, int unit, int micro_batch, const InputOf& input,
                 BufferScope scope = BufferScope::unit);

// The caller hands in what the stage does not have yet.
void feed(StageActions& s, BufferScope scope, int index, int micro_batch,
          const WantedInputs& wanted);

// Waits for the send before it on its channel, then starts.
void send(StageActions& s, int buffer, int peer, int channel);
void receive(StageActions& s, int buffer, int micro_batch, int peer, int channel);
void wait_for_all_sends(StageActions& s);

// passes/pipeline_actions.cc: what virtual stage k of this stage does for one micro-batch.
void forward_pass(StageActions& s, int k, int micro_batch);
void backward_pass(StageActions& s, int k, int micro_batch);

// passes/optimizer_actions.cc: before all passes of a step and after them.
void begin_step(StageActions& s);
void optimize(StageActions& s);
void finish_step(StageActions& s);  // norm, factor and losses: all that a forward-only step needs

}  // namespace myriad
