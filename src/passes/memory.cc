// Plans the memory of one rank by going through its actions once. States come first and stay. Then
// every buffer and every version of a body takes memory when it is made and frees it after its last
// use; an arena gives each the first gap that is large enough. The result depends on sizes and
// order alone, so the same plan is made before anything runs, and its peak is what a run will need.
//
// Two things take no memory of their own (shown_states): what a body reads from a state is the
// state itself, and what it writes to a state at once is made in it.
#include "passes/memory.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "ir/flight.h"
#include "ir/rows.h"

namespace myriad {

namespace {

constexpr int64_t kAlign = 64;
int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// First fit over the free gaps below the top.
class Arena {
 public:
  int64_t take(int64_t bytes) {
    bytes = aligned(bytes);
    if (bytes == 0) return 0;
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->second < bytes) continue;
      const int64_t offset = gap->first, left = gap->second - bytes;
      gaps_.erase(gap);
      if (left > 0) gaps_[offset + bytes] = left;
      return offset;
    }
    int64_t offset = top_;
    if (!gaps_.empty()) {  // grow the last gap if it touches the top
      const auto last = std::prev(gaps_.end());
      if (last->first + last->second == top_) {
        offset = last->first;
        gaps_.erase(last);
      }
    }
    top_ = offset + bytes;
    peak_ = std::max(peak_, top_);
    return offset;
  }

  void give(int64_t offset, int64_t bytes) {
    bytes = aligned(bytes);
    if (bytes == 0) return;
    const auto at = gaps_.emplace(offset, bytes).first;
    const auto next = std::next(at);
    if (next != gaps_.end() && at->first + at->second == next->first) {
      at->second += next->second;
      gaps_.erase(next);
    }
    if (at != gaps_.begin()) {
      const auto before = std::prev(at);
      if (before->first + before->second == at->first) {
        before->second += at->second;
        gaps_.erase(at);
      }
    }
  }

  int64_t peak() const { return peak_; }

 private:
  std::map<int64_t, int64_t> gaps_;  // offset -> bytes
  int64_t top_ = 0, peak_ = 0;
};

// What of a body does not depend on the action that runs it.
struct BodySizes {
  std::vector<int64_t> versions;         // bytes
  std::vector<int64_t> scratch;          // bytes by step
  std::vector<int> shown;                // shown_states
  std::vector<int> last_use;             // step by version; -1: never read
  std::vector<int> input_of, output_of;  // by version: place in inputs or outputs, -1
  std::vector<int> finished_as;          // by version in flight: what a finish here makes of it, -1
  std::vector<int> source;               // by version in flight: what its start sends from, -1
  std::vector<bool> moved;               // by version: a collective sends or makes it
  std::vector<int> kept;                 // versions that a loop makes in its first round for all
};

using Kind = int64_t MemoryPlan::Kinds::*;

Kind kind_of(StateKind state) {
  switch (state) {
    case StateKind::parameter:
      return &MemoryPlan::Kinds::parameters;
    case StateKind::exp_avg:
    case StateKind::exp_avg_sq:
      return &MemoryPlan::Kinds::moments;
    case StateKind::gradient_sum:
      return &MemoryPlan::Kinds::gradients;
    case StateKind::cache:
      return &MemoryPlan::Kinds::activations;
    case StateKind::scalar:
    case StateKind::counter:
      break;
  }
  return &MemoryPlan::Kinds::workspace;
}

class Planner {
 public:
  Planner(const Program& program, int rank, const ScratchBytes& scratch,
          const ElementBytes& element_bytes)
      : program_(program),
        rank_(rank),
        scratch_(scratch),
        element_bytes_(element_bytes),
        stage_(program.stage_of(rank)),
        sizes_(program.bodies.size()),
        known_(program.bodies.size(), false) {}

  MemoryPlan run() {
    const auto& actions = program_.actions[stage_];
    plan_.buffers.assign(program_.buffers.size(), -1);
    place_states();
    last_action_.assign(program_.buffers.size(), -1);
    for (size_t i = 0; i < actions.size(); ++i) {
      for (int b : actions[i].ins) last_action_[b] = static_cast<int>(i);
      if (actions[i].act == Act::send) sent_.insert(actions[i].ins[0]);
    }
    plan_.actions.resize(actions.size());
    kept_sources_.resize(actions.size());
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      if (a.act == Act::run) {
        run_action(static_cast<int>(i), a);
        continue;
      }
      for (int b : a.outs)
        take(b, a.act == Act::recv ? &MemoryPlan::Kinds::communication : kind_of_buffer(b, a));
      release(static_cast<int>(i), a.ins);
      release(static_cast<int>(i), a.outs);
    }
    plan_.peak_bytes = arena_.peak();
    MemoryPlan::Kinds& k = plan_.at_peak;
    k.workspace += plan_.peak_bytes - (k.parameters + k.gradients + k.moments + k.activations +
                                       k.communication + k.workspace);
    return std::move(plan_);
  }

 private:
  void place_states() {
    plan_.states.assign(program_.states.size(), -1);
    for (size_t i = 0; i < program_.states.size(); ++i) {
      const State& s = program_.states[i];
      if (std::find(s.stages.begin(), s.stages.end(), stage_) == s.stages.end()) continue;
      const LoweredBody& body = program_.bodies[s.body];
      const StateUse& use = body.states[s.use];
      const int64_t bytes =
          bytes_of((*body.graph)[use.value], use.layout, letter_of(use.name.kind));
      plan_.states[i] = hold(bytes, kind_of(use.name.kind));
      plan_.state_bytes += aligned(bytes);
      if (use.name.kind == StateKind::parameter) plan_.parameter_bytes += aligned(bytes);
    }
    bytes_.assign(program_.buffers.size(), 0);
    kinds_.assign(program_.buffers.size(), &MemoryPlan::Kinds::activations);
  }

  const BodySizes& sizes_of(int index) {
    if (known_[index]) return sizes_[index];
    known_[index] = true;
    BodySizes& s = sizes_[index];
    const LoweredBody& body = program_.bodies[index];
    const size_t n = body.versions.size();
    for (size_t v = 0; v < n; ++v) {
      const Value& value = (*body.graph)[body.versions[v].value];
      const int64_t width =
          element_bytes_ ? element_bytes_(value, 0) : static_cast<int64_t>(size_of(value.dtype));
      s.versions.push_back(version_elements(program_.mesh, body, static_cast<int>(v), rank_) *
                           width);
    }
    s.shown = shown_states(body);
    s.moved.assign(n, false);
    s.finished_as.assign(n, -1);
    s.source = sources_in_flight(body);
    s.last_use.assign(n, -1);
    s.input_of.assign(n, -1);
    s.output_of.assign(n, -1);
    for (size_t i = 0; i < body.inputs.size(); ++i)
      s.input_of[body.inputs[i]] = static_cast<int>(i);
    for (size_t i = 0; i < body.outputs.size() && !body.loop; ++i)
      s.output_of[body.outputs[i]] = static_cast<int>(i);
    std::map<int, int> made;  // by value: the version that an op made
    for (size_t i = 0; i < body.steps.size(); ++i) {
      const Step& step = body.steps[i];
      for (int v : step.ins) s.last_use[v] = static_cast<int>(i);
      if (step.once && step.kind != StepKind::finish)
        s.kept.insert(s.kept.end(), step.outs.begin(), step.outs.end());
      // The choices that a window made say which routed rows there are for as long as there are
      // any.
      if (step.kind == StepKind::run) {
        for (int v : step.outs) made.try_emplace(body.versions[v].value, v);
      }
      for (const auto* versions : {&step.ins, &step.outs}) {
        for (int v : *versions) {
          const Value& value = (*body.graph)[body.versions[v].value];
          if (value.sparse()) s.last_use[made.at(value.routing)] = static_cast<int>(i);
        }
      }
      if (begins_collective(step) || ends_collective(step))
        s.moved[step.ins[0]] = s.moved[step.outs[0]] = true;
      if (step.kind == StepKind::finish) finish(s, step, static_cast<int>(i));
      int64_t bytes = 0;
      if (step.kind == StepKind::run && scratch_) {
        const Op& op = body.ops[step.op];
        bytes = static_cast<int64_t>(
            scratch_(op, planned_labels(program_.mesh, body, step, rank_), body.graph->real));
      }
      s.scratch.push_back(bytes);
    }
    for (int v : body.outputs) {  // sent from for longer than the body runs
      if (s.source[v] >= 0) s.last_use[s.source[v]] = static_cast<int>(body.steps.size());
    }
    return s;
  }

  // A finish reads what its start sends from, and makes its result where the version in flight
  // lies.
  static void finish(BodySizes& s, const Step& step, int at) {
    const int from = step.ins[0], to = step.outs[0];
    s.finished_as[from] = to;
    if (s.source[from] >= 0) s.last_use[s.source[from]] = at;
    if (s.input_of[from] >= 0) s.input_of[to] = std::exchange(s.input_of[from], -1);
  }

  int64_t bytes_of(const Value& v, const Layout& layout, char state) const {
    if (!element_bytes_) return local_bytes(program_.mesh, v, layout, rank_);
    return local_elements(program_.mesh, layout, v.sizes, rank_) * element_bytes_(v, state);
  }

  // Takes memory and counts it to a kind; keeps what each kind holds whenever the peak rises.
  int64_t hold(int64_t bytes, Kind kind) {
    const int64_t before = arena_.peak(), offset = arena_.take(bytes);
    held_.*kind += aligned(bytes);
    if (arena_.peak() > before) plan_.at_peak = held_;
    return offset;
  }

  void drop(int64_t offset, int64_t bytes, Kind kind) {
    arena_.give(offset, bytes);
    held_.*kind -= aligned(bytes);
  }

  Kind kind_of_buffer(int buffer, const Action& maker) const {
    const Buffer& b = program_.buffers[buffer];
    if (sent_.count(buffer) || program_.bodies[b.body].versions[b.version].in_flight)
      return &MemoryPlan::Kinds::communication;
    return maker.act == Act::run && is_optimizer(program_.bodies[maker.body].role)
               ? &MemoryPlan::Kinds::gradients
               : &MemoryPlan::Kinds::activations;
  }

  void take(int buffer, Kind kind) {
    const Buffer& b = program_.buffers[buffer];
    bytes_[buffer] = sizes_of(b.body).versions[b.version];
    plan_.buffers[buffer] = hold(bytes_[buffer], kind);
    kinds_[buffer] = kind;
  }

  void give(int buffer) {
    if (bytes_[buffer] > 0) drop(plan_.buffers[buffer], bytes_[buffer], kinds_[buffer]);
    bytes_[buffer] = 0;
  }

  void release(int action, const std::vector<int>& buffers) {
    for (int b : buffers) {
      if (last_action_[b] <= action) give(b);
    }
  }

  static Kind inner(const BodySizes& s, int version) {
    return s.moved[version] ? &MemoryPlan::Kinds::communication : &MemoryPlan::Kinds::workspace;
  }

  void run_action(int index, const Action& a) {
    const LoweredBody& body = program_.bodies[a.body];
    const BodySizes& s = sizes_of(a.body);
    MemoryPlan::Run& run = plan_.actions[index];
    run.versions.assign(body.versions.size(), -1);
    run.scratch.assign(body.steps.size(), 0);
    std::vector<bool> own(body.versions.size(), false);
    for (size_t i = 0; i < body.inputs.size(); ++i)
      run.versions[body.inputs[i]] = plan_.buffers[a.ins[i]];
    if (body.loop) {  // what it hands on is summed over rounds beside the round's own
      for (int b : a.outs) take(b, kind_of_buffer(b, a));
      for (int v : s.kept) run.versions[v] = hold(s.versions[v], inner(s, v));
    }
    for (size_t t = 0; t < body.steps.size(); ++t) {
      const Step& step = body.steps[t];
      if (step.kind == StepKind::finish) {
        finish_in_place(a, s, run, step);
      } else {
        for (int v : step.outs) {
          if (step.once) continue;
          const int as = s.finished_as[v] >= 0 ? s.finished_as[v] : v;
          place(a, s, run, own, as);
          run.versions[v] = run.versions[as];
        }
      }
      run.scratch[t] = hold(s.scratch[t], &MemoryPlan::Kinds::workspace);
      drop(run.scratch[t], s.scratch[t], &MemoryPlan::Kinds::workspace);
      const auto end = [&](int v) {
        if (s.last_use[v] > static_cast<int>(t)) return;
        if (own[v]) drop(run.versions[v], s.versions[v], inner(s, v));
        own[v] = false;
        if (!body.loop && s.input_of[v] >= 0 && last_action_[a.ins[s.input_of[v]]] == index)
          give(a.ins[s.input_of[v]]);
      };
      if (step.kind == StepKind::finish && s.source[step.ins[0]] >= 0) end(s.source[step.ins[0]]);
      for (int v : step.ins) end(v);
      for (int v : step.outs) end(v);
    }
    for (int v : s.kept) drop(run.versions[v], s.versions[v], inner(s, v));
    for (size_t i = 0; i < body.outputs.size(); ++i) {
      const int source = s.source[body.outputs[i]];
      if (source >= 0) keep_source(a, s, run, own, source, a.outs[i]);
    }
    release(index, a.ins);
    release(index, a.outs);
    for (const auto& give_back : kept_sources_[index]) give_back();
  }

  // Takes memory for a version: in the state that shows it, in the buffer that it becomes, or of
  // its own.
  void place(const Action& a, const BodySizes& s, MemoryPlan::Run& run, std::vector<bool>& own,
             int v) {
    if (s.shown[v] >= 0) {
      run.versions[v] = plan_.states[a.states[s.shown[v]]];
    } else if (s.output_of[v] >= 0) {
      take(a.outs[s.output_of[v]], kind_of_buffer(a.outs[s.output_of[v]], a));
      run.versions[v] = plan_.buffers[a.outs[s.output_of[v]]];
    } else {
      run.versions[v] = hold(s.versions[v], inner(s, v));
      own[v] = s.versions[v] > 0;
    }
    if (s.shown[v] >= 0 && s.output_of[v] >= 0)
      plan_.buffers[a.outs[s.output_of[v]]] = run.versions[v];
  }

  // What a start of this body made has its place already. A buffer in flight that is finished here
  // lends its memory to the result, or becomes the buffer of the result.
  void finish_in_place(const Action& a, const BodySizes& s, MemoryPlan::Run& run,
                       const Step& step) {
    const int from = step.ins[0], to = step.outs[0];
    run.versions[to] = run.versions[from];
    if (s.input_of[to] < 0 || s.output_of[to] < 0) return;
    const int old = a.ins[s.input_of[to]], now = a.outs[s.output_of[to]];
    plan_.buffers[now] = plan_.buffers[old];
    bytes_[now] = std::exchange(bytes_[old], 0);
    kinds_[now] = kinds_[old];
  }

  // The source of what leaves this action in flight keeps its memory until the end of the action
  // that finishes it.
  void keep_source(const Action& a, const BodySizes& s, const MemoryPlan::Run& run,
                   const std::vector<bool>& own, int source, int buffer) {
    const int end = last_action_[buffer];
    CHECK(end >= 0, "{} is never finished", program_.buffers[buffer].name);
    const int in = s.input_of[source], out = s.output_of[source];
    if (own[source]) {
      const int64_t offset = run.versions[source], bytes = s.versions[source];
      const Kind kind = inner(s, source);
      kept_sources_[end].push_back([this, offset, bytes, kind] { drop(offset, bytes, kind); });
    } else if (out >= 0 || in >= 0) {
      const int b = out >= 0 ? a.outs[out] : a.ins[in];
      last_action_[b] = std::max(last_action_[b], end);
      kept_sources_[end].push_back([this, b, end] { release(end, {b}); });
    }
  }

  const Program& program_;
  const int rank_;
  const ScratchBytes& scratch_;
  const ElementBytes& element_bytes_;
  const int stage_;
  std::vector<BodySizes> sizes_;
  std::vector<bool> known_;
  std::vector<int> last_action_;  // by buffer
  std::vector<std::vector<std::function<void()>>>
      kept_sources_;            // by action: what to give back at its end
  std::vector<int64_t> bytes_;  // of buffers that hold memory now
  std::vector<Kind> kinds_;     // of buffers
  std::set<int> sent_;          // buffers
  MemoryPlan::Kinds held_;      // now
  Arena arena_;
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan plan_memory(const Program& program, int rank, const ScratchBytes& scratch,
                       const ElementBytes& element_bytes) {
  return Planner(program, rank, scratch, element_bytes).run();
}

int64_t version_elements(const Mesh& mesh, const LoweredBody& body, int version, int rank) {
  const Version& v = body.versions[version];
  const Value& value = (*body.graph)[v.value];
  const int64_t whole = local_elements(mesh, v.layout, value.sizes, rank);
  if (!value.sparse() || whole == 0) return whole;
  const auto range = [&](int dim) { return local_range(mesh, v.layout, value.sizes, dim, rank); };
  const Range e = range(0);
  const int64_t tokens = range(1).size() * range(2).size(), experts = value.sizes[0];
  const int64_t most = tokens * std::min(e.size(), (*body.graph)[value.routing].sizes[2]);
  int64_t owners = 0;
  for (int64_t p = 0; p < body.parts; ++p) {
    owners += p * experts / body.parts < e.hi && (p + 1) * experts / body.parts > e.lo;
  }
  return whole / (e.size() * tokens) * std::min(most, owners * body.bound);
}

LabelSizes planned_labels(const Mesh& mesh, const LoweredBody& body, const Step& step, int rank) {
  const Op& op = body.ops[step.op];
  LabelSizes local = local_labels(mesh, op, step, rank);
  if (!works_on_rows(op)) return local;
  const int routed = routed_version(body, step);
  if (routed < 0) return local;
  return labels_on_rows(mesh, body, routed, std::move(local),
                        version_elements(mesh, body, routed, rank), rank);
}

std::vector<int> shown_states(const LoweredBody& body) {
  // A transfer makes its destination from its start on, and reads its source until its finish.
  const std::vector<int> sources = sources_in_flight(body);
  std::vector<int> shown(body.versions.size(), -1), made(body.versions.size(), -1);
  for (size_t t = 0; t < body.steps.size(); ++t) {
    const Step& step = body.steps[t];
    for (int v : step.outs)
      made[v] = step.kind == StepKind::finish ? made[step.ins[0]] : static_cast<int>(t);
    if (step.kind == StepKind::read) shown[step.outs[0]] = step.state;
  }
  for (const Step& store : body.steps) {
    if (store.kind != StepKind::write) continue;
    const int v = store.ins[0], t = made[v];
    if (t < 0 || shown[v] >= 0 ||
        std::find(body.outputs.begin(), body.outputs.end(), v) != body.outputs.end())
      continue;
    bool free = true;  // nobody reads the old state once v is made
    for (size_t i = static_cast<size_t>(t); i < body.steps.size() && free; ++i) {
      const Step& step = body.steps[i];
      for (int in : step.ins) {
        if (step.kind == StepKind::finish && sources[in] >= 0) in = sources[in];
        const bool old = in != v && shown[in] == store.state;
        if (!old) continue;
        const bool in_place = static_cast<int>(i) == t && step.kind == StepKind::run &&
                              info(body.ops[step.op].row).elementwise;
        free &= in_place;
      }
      if (step.kind == StepKind::read && step.state == store.state) free = false;
    }
    if (free) shown[v] = store.state;
  }
  return shown;
}

}  // namespace myriad
