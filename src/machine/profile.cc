// Counts what a step will compute, send and hold, without computing it. `Counter` is a machine that
// the common walker (machine/walker.h) leads through the same actions, rounds and steps as the
// executor, so only amounts can differ: an op counts the FLOPs of its local sizes, a collective the
// elements in which what a rank holds before it meets what each other member holds after it
// (`sent_in`).
//
// Routed rows are known only from the recorded choices of experts. They decide how many rounds a
// body takes and how many rows each round has; all ranks of a stage take as many rounds as the one
// that needs most. Then the peak is the end of the highest memory that the true numbers touch;
// without routed rows it is that of the memory plan. Read Counter::step first, then `sent_in`.
#include "machine/profile.h"

#include <algorithm>
#include <tuple>

#include "base/digest.h"
#include "base/error.h"
#include "ir/flight.h"
#include "ir/local.h"
#include "ir/rows.h"
#include "machine/walker.h"

namespace myriad {

namespace {

Range meet(Range a, Range b) {
  return {std::max(a.lo, b.lo), std::max(std::max(a.lo, b.lo), std::min(a.hi, b.hi))};
}

// How many elements of the value both rank_a has in layout `a` and rank_b has in layout `b`.
int64_t overlap(const Mesh& mesh, const Value& v, const Layout& a, int rank_a, const Layout& b,
                int rank_b, const CountRows& rows) {
  const auto range = [&](int d) {
    return meet(local_range(mesh, a, v.sizes, d, rank_a), local_range(mesh, b, v.sizes, d, rank_b));
  };
  int64_t n = v.sparse() ? rows(v, range(0), range(1), range(2)) : 1;
  for (int d = v.sparse() ? 3 : 0; d < a.dims; ++d) n *= range(d).size();
  return n;
}

int64_t elements(const Mesh& mesh, const Value& v, const Layout& layout, int rank,
                 const CountRows& rows) {
  return overlap(mesh, v, layout, rank, layout, rank, rows);
}

class Counter : public Machine {
 public:
  Counter(const Program& program, const std::vector<MemoryPlan>& memory, const Routing* routing,
          const Scratch& scratch)
      : program_(program),
        memory_(memory),
        routing_(routing),
        scratch_(scratch),
        high_(memory.size(), 0) {
    result.order.assign(static_cast<size_t>(program.mesh.ranks()), 0);
    for (const LoweredBody& body : program.bodies) has_loops_ |= body.loop;
  }

  Progress act(const At& at, const Action& a) override {
    if (a.act == Act::send) {
      const Buffer& b = program_.buffers[a.ins[0]];
      Count& c = result.collectives["send"];
      const int64_t bytes = bytes_of(b, at.rank);
      c.bytes += bytes;
      ++c.messages;
      if (!same_node(at.rank, a.peer * per_stage() + at.rank % per_stage()))
        c.between_nodes_bytes += bytes;
      note(at.rank, "send", {at.rank, a.peer * per_stage() + at.rank % per_stage()}, bytes);
      ++in_flight_[{a.channel, at.rank % per_stage()}];
    } else if (a.act == Act::recv) {
      int& n = in_flight_[{a.channel, at.rank % per_stage()}];
      if (n == 0) return Progress::blocked;
      --n;
    }
    if (has_loops_ && !memory_.empty()) touch_buffers(at, a);
    return Progress::advanced;
  }

  int rounds(const At& at, const Action& a, const LoweredBody& body) override {
    int most = 1;  // over all ranks of the stage, as the ranks agree when they run
    for (int r = 0; r < per_stage(); ++r)
      most = std::max(most, rounds_of(at.stage * per_stage() + r, a, body).rounds());
    return most;
  }

  Progress step(const At& at, const Action& action, const LoweredBody& body,
                const Step& step) override {
    const CountRows rows =
        body.loop ? CountRows([&, this](const Value& v, Range e, Range b, Range s) {
          return rounds_of(at.rank, action, body).count(at.round, of_leads(body, v), e, b, s);
        })
                  : CountRows{};
    const auto n = [&](int version) {
      const Version& v = body.versions[version];
      return elements(program_.mesh, (*body.graph)[v.value], v.layout, at.rank, rows);
    };
    if (step.kind == StepKind::run) {
      const Op& op = body.ops[step.op];
      const LabelSizes box = local_labels(program_.mesh, op, step, at.rank);
      const int routed = routed_version(body, step);
      const LabelSizes local =
          routed < 0 ? box : labels_on_rows(program_.mesh, body, routed, box, n(routed), at.rank);
      result.flops += info(op.row).work(
          op, op.row == Row::combine || op.row == Row::collapse || works_on_rows(op) ? local : box);
      ++result.ops[info(op.row).name];
      if (has_loops_ && scratch_ && !memory_.empty()) {
        touch(
            at, memory_[at.rank].actions[at.action].scratch[at.step],
            static_cast<int64_t>(scratch_(op, works_on_rows(op) ? local : box, body.graph->real)));
      }
    } else if ((step.kind == StepKind::accum && !(action.first && at.round == 0)) ||
               (step.kind == StepKind::emit && at.round > 0)) {
      result.flops += static_cast<double>(n(step.ins[0]));
    } else if (begins_collective(step)) {
      const Count sent = sent_in(program_.mesh, body, step, at.rank, rows, program_.ranks_per_node);
      Count& c = result.collectives[name_of(step.what)];
      c.bytes += sent.bytes;
      c.messages += sent.messages;
      c.between_nodes_bytes += sent.between_nodes_bytes;
      c.between_nodes_rows += sent.between_nodes_rows;
      std::vector<int> group = program_.mesh.group(step.atoms, at.rank);
      std::sort(group.begin(), group.end());
      note(at.rank, name_of(step.what), group, sent.bytes);
    }
    if (has_loops_ && !memory_.empty()) touch_versions(at, action, body, step, n);
    return Progress::advanced;
  }

  int64_t high(int rank) const { return has_loops_ ? high_[rank] : memory_[rank].peak_bytes; }

  StepProfile result;

 private:
  int64_t bytes_of(const Buffer& b, int rank) const {
    return local_bytes(program_.mesh, program_.value(b), program_.layout(b), rank);
  }

  void note(int rank, const char* kind, const std::vector<int>& group, int64_t bytes) {
    uint64_t& order = result.order[static_cast<size_t>(rank)];
    order = digest_transfer(order, kind, group, bytes);
  }

  bool same_node(int a, int b) const {
    return node_of_rank(a, program_.ranks_per_node) == node_of_rank(b, program_.ranks_per_node);
  }

  // Whether a sparse value has one row for each token and node, not for each choice.
  static bool of_leads(const LoweredBody& body, const Value& v) {
    return std::any_of(body.ops.begin(), body.ops.end(), [&](const Op& op) {
      return op.row == Row::leads && op.outs[0] == v.routing;
    });
  }

  int per_stage() const { return program_.mesh.ranks() / program_.stages; }

  // The rounds that the part of the rows on this rank needs in a run of the body.
  const RoundsOf& rounds_of(int rank, const Action& a, const LoweredBody& body) {
    const Op* window = nullptr;
    const Step* step = nullptr;
    for (const Step& s : body.steps) {
      if (s.kind == StepKind::run && body.ops[s.op].row == Row::window) {
        step = &s;
        window = &body.ops[s.op];
      }
    }
    CHECK(window && routing_, "{} needs recorded choices", body.name);
    const auto range = [&](char label) {
      return program_.mesh.range(window->size.at(label), step->cuts[window->size.find(label)],
                                 rank);
    };
    const Range b = range('b'), s = range('s');
    const OwnerNodes nodes = window->attrs.nodes(rank);
    const auto key =
        std::array<int64_t, 7>{a.unit, a.micro_batch, b.lo, b.hi, s.lo, s.hi, nodes.first};
    auto at = rounds_.find(key);
    if (at == rounds_.end()) {
      const Choices& choices = routing_->at({a.unit, a.micro_batch});
      at = rounds_.emplace(key, RoundsOf(choices, window->attrs.experts, nodes, body.bound, b, s))
               .first;
    }
    return at->second;
  }

  void touch(const At& at, int64_t offset, int64_t bytes) {
    if (bytes > 0) high_[at.rank] = std::max(high_[at.rank], (offset + bytes + 63) / 64 * 64);
  }

  void touch_buffers(const At& at, const Action& a) {
    const auto buffer = [&](int i) {
      touch(at, memory_[at.rank].buffers[i], bytes_of(program_.buffers[i], at.rank));
    };
    if (a.act == Act::feed || a.act == Act::recv)
      std::for_each(a.outs.begin(), a.outs.end(), buffer);
    if (a.act == Act::send) std::for_each(a.ins.begin(), a.ins.end(), buffer);
    for (int i : a.states) touch_state(at, i);
  }

  void touch_state(const At& at, int i) {
    const State& s = program_.states[i];
    const LoweredBody& body = program_.bodies[s.body];
    const Value& v = (*body.graph)[body.states[s.use].value];
    touch(at, memory_[at.rank].states[i],
          local_bytes(program_.mesh, v, body.states[s.use].layout, at.rank));
  }

  template <class N>
  void touch_versions(const At& at, const Action& a, const LoweredBody& body, const Step& step,
                      const N& n) {
    if (step.kind == StepKind::read) return;
    const auto& versions = memory_[at.rank].actions[at.action].versions;
    for (const auto* list : {&step.ins, &step.outs}) {
      for (int v : *list)
        touch(at, versions[v],
              n(v) * static_cast<int64_t>(size_of((*body.graph)[body.versions[v].value].dtype)));
    }
    if (step.kind == StepKind::accum || step.kind == StepKind::write)
      touch_state(at, a.states[step.state]);
    if (step.kind == StepKind::emit) {
      touch(at, memory_[at.rank].buffers[a.outs[step.state]],
            n(step.ins[0]) * static_cast<int64_t>(
                                 size_of((*body.graph)[body.versions[step.ins[0]].value].dtype)));
    }
  }

  const Program& program_;
  const std::vector<MemoryPlan>& memory_;
  const Routing* routing_;
  const Scratch& scratch_;
  bool has_loops_ = false;
  std::vector<int64_t> high_;
  std::map<std::array<int64_t, 7>, RoundsOf> rounds_;
  std::map<std::pair<int, int>, int> in_flight_;  // channel, column -> messages
};

}  // namespace

Count sent_in(const Mesh& mesh, const LoweredBody& body, const Step& step, int rank,
              const CountRows& rows, int ranks_per_node) {
  const Version &from = body.versions[step.ins[0]], &to = body.versions[step.outs[0]];
  const Value& v = (*body.graph)[from.value];
  const int64_t width = static_cast<int64_t>(size_of(v.dtype));
  const int64_t held = elements(mesh, v, from.layout, rank, rows);
  const auto range_size = [&](int d) {
    return local_range(mesh, from.layout, v.sizes, d, rank).size();
  };
  std::vector<int> group = mesh.group(step.atoms, rank);
  std::sort(group.begin(), group.end());
  const auto n = static_cast<int64_t>(group.size());
  const int64_t piece =  // an all_reduce cuts the flat value anywhere, routed rows only between two
      v.sparse() ? row_elements(mesh, v, from.layout, rank) : 1;
  const auto part = [&](int64_t i) {
    const int64_t pieces = piece > 0 ? held / piece : 0;
    return ((i + 1) * pieces / n - i * pieces / n) * piece;
  };
  const auto to_peer = [&](int64_t i) -> int64_t {
    switch (step.what) {
      case MoveKind::all_gather:
        return held;
      case MoveKind::reduce_scatter:
      case MoveKind::all_to_all:
        return overlap(mesh, v, from.layout, rank, to.layout, group[static_cast<size_t>(i)], rows);
      case MoveKind::all_reduce:
        return part(i);
      default:
        CHECK(false, "{} sends nothing", name_of(step.what));
    }
  };
  const int64_t me = std::find(group.begin(), group.end(), rank) - group.begin();
  const bool reduces_all = step.what == MoveKind::all_reduce;
  Count count{.messages = (reduces_all ? 2 : 1) * (n - 1)};
  // The others get all that is held except the rank's own part. This is cheaper to count than what
  // each of them gets.
  const int64_t kept = step.what == MoveKind::all_gather ? held : to_peer(me);
  const int64_t all = step.what == MoveKind::all_gather ? n * held : held;
  count.bytes = (all - kept + (reduces_all ? (n - 1) * part(me) : 0)) * width;
  if (ranks_per_node == 0) return count;
  const bool hidden = is_routed_hidden(body, step.ins[0]);
  const int64_t row = hidden ? range_size(from.layout.dims - 1) : 0;
  for (int64_t i = 0; i < n; ++i) {
    if (node_of_rank(group[static_cast<size_t>(i)], ranks_per_node) ==
        node_of_rank(rank, ranks_per_node))
      continue;
    for (const int64_t sent : {to_peer(i), reduces_all ? part(me) : 0}) {
      count.between_nodes_bytes += sent * width;
      if (row > 0) count.between_nodes_rows += sent / row;
    }
  }
  return count;
}

StepProfile profile(const Program& program, const std::vector<MemoryPlan>& memory,
                    const Routing* routing, const Scratch& scratch) {
  Counter counter(program, memory, routing, scratch);
  walk_all(program, counter);
  for (size_t r = 0; r < memory.size(); ++r)
    counter.result.peak_bytes.push_back(counter.high(static_cast<int>(r)));
  return std::move(counter.result);
}

}  // namespace myriad
