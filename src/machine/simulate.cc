// The walk. Each class of ranks of each stage has a clock and goes through the actions of its
// stage: first, as far as it can; a receive without a message and a collective that others must
// join stop it until they have come.
//
// Why one rank of a class stands for all. Ranks of a stage run the same list of actions, so two of
// them differ only in the sizes they hold, in where their groups lie in the network, and in when
// the others of their groups come. Classes (simulate_classes.cc) split the ranks until those of one
// class agree in the first two and until, for every group, ranks of one class meet as many of each
// class. Then, by induction over the steps, they have the same clock: it is so at the start; work
// takes all of a class equally long; a collective begins when its last member comes, and for any
// rank of the class that is the largest clock over the same classes; a message comes from a rank of
// the same class in the stage before. Which groups are meant does not matter, only which classes
// are in them, so one meeting for each such set of classes (and stage) is enough.
#include "machine/simulate.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "machine/simulate_walk.h"

namespace myriad {

namespace {

struct Message {
  double arrives, transfer;
  int by, action;  // walker and action
};

// A collective that some of its members have reached.
struct Meeting {
  int come = 0;
  double start = 0, bytes = 0;
  int last = -1;
  std::vector<int> walkers;
  std::vector<RunSegment*> segments;  // theirs
};

class Simulator {
 public:
  Simulator(const Program& program, const Cluster& cluster, const SimulateOptions& options)
      : p_(program),
        cluster_(cluster),
        o_(options),
        classes_(classes_of(program, cluster, most_colours(program, options))),
        prices_(program, cluster, options, classes_) {
    for (int s = 0; s < p_.stages; ++s) {
      for (int k = 0; k < classes_.colours(); ++k) {
        ClassWalk w{.stage = s, .colour = k, .rank = classes_.rank(s, classes_.priced[k][0])};
        w.spans.resize(p_.actions[s].size());
        w.causes.resize(p_.actions[s].size());
        w.waits.resize(p_.actions[s].size());
        w.transfers.resize(p_.actions[s].size());
        walks_.push_back(std::move(w));
      }
    }
    meetings_.resize(classes_.atoms.size());
    for (size_t a = 0; a < meetings_.size(); ++a) {
      meetings_[a].resize(classes_.kinds[a].size() *
                          static_cast<size_t>(classes_.over_stages[a] ? 1 : p_.stages));
    }
  }

  Simulation run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < walks_.size(); ++i) {
        while (advance(static_cast<int>(i))) moved = true;
      }
    }
    for (const ClassWalk& w : walks_) {
      if (w.action < static_cast<int>(p_.actions[w.stage].size())) {
        throw Error(
            fmt::format("deadlock: stage {} waits for ever in action {}", w.stage, w.action),
            "simulate");
      }
    }
    return result_of({p_, cluster_, o_, classes_, walks_, prices_});
  }

 private:
  static int64_t most_colours(const Program& program, const SimulateOptions& options) {
    int64_t actions = 1;
    for (const auto& stage : program.actions) actions += static_cast<int64_t>(stage.size());
    return std::max<int64_t>(1, options.most_actions / actions);
  }

  // Walking.

  bool advance(int index) {
    ClassWalk& w = walks_[index];
    const auto& actions = p_.actions[w.stage];
    if (w.waiting || w.action >= static_cast<int>(actions.size())) return false;
    const Action& a = actions[w.action];
    if (w.segment == 0) w.current = {w.clock, w.clock};
    if (a.act == Act::recv && messages_[{a.channel, w.colour}].empty()) return false;
    if (cluster_.shared() && a.act != Act::run) work(w, cluster_.host.action_seconds);
    switch (a.act) {
      case Act::feed:
      case Act::zero:
        break;
      case Act::run:
        return step_run(index, a);
      case Act::send:
        send(index, a);
        break;
      case Act::wait: {
        const double arrives = w.in_flight.at(a.ins[0]);
        if (arrives > w.clock) stand(w, arrives, arrives - w.clock, {});
        w.in_flight.erase(a.ins[0]);
        break;
      }
      case Act::recv: {
        auto& queue = messages_[{a.channel, w.colour}];
        const Message m = queue.front();
        queue.pop_front();
        if (cluster_.shared()) w.other += m.transfer;  // it copies
        if (m.arrives > w.clock)
          stand(w, m.arrives, std::min(m.arrives - w.clock, m.transfer), {m.by, m.action});
        break;
      }
    }
    end_action(w);
    return true;
  }

  // Outside a run.
  static void work(ClassWalk& w, double seconds) {
    w.clock += seconds;
    w.other += seconds;
    w.costs[static_cast<int>(Cost::host)] += seconds;
  }

  // Waits up to `until`; `transfer` is the part of that wait in which the message itself travels.
  void stand(ClassWalk& w, double until, double transfer, WaitCause cause) {
    const double wait = until - w.clock;
    w.costs[static_cast<int>(Cost::send)] += transfer;
    w.costs[static_cast<int>(Cost::idle)] += wait - transfer;
    w.waits[w.action] += wait;
    w.transfers[w.action] += transfer;
    if (cause.walker >= 0) w.causes[w.action] = cause;
    w.clock = until;
  }

  void end_action(ClassWalk& w) {
    w.current.end = w.clock;
    w.spans[w.action] = w.current;
    ++w.action;
    w.segment = 0;
  }

  void send(int index, const Action& a) {
    ClassWalk& w = walks_[index];
    const Buffer& b = p_.buffers[a.ins[0]];
    const Value& v = p_.value(b);
    double bytes = 0;
    for (int column : classes_.priced[w.colour]) {
      bytes = std::max(bytes, static_cast<double>(local_elements(p_.mesh, p_.layout(b), v.sizes,
                                                                 classes_.rank(w.stage, column)) *
                                                  o_.pricing.bytes.of(v, 0)));
    }
    const int peer = classes_.rank(a.peer, w.rank - classes_.rank(w.stage, 0));
    const double transfer = send_seconds(cluster_, bytes, w.rank, peer, p_.mesh.ranks());
    double& free = channel_free_[{a.channel, w.colour}];
    const double start = std::max(free, w.clock);
    free = start + transfer;
    messages_[{a.channel, w.colour}].push_back({free, transfer, index, w.action});
    w.in_flight[a.ins[0]] = free;
  }

  bool step_run(int index, const Action& a) {
    ClassWalk& w = walks_[index];
    PricedRun& run = prices_.of(w, a);
    RunSegment& s = run.segments[w.segment];
    if (s.atoms >= 0) {
      come(index, s);
      return true;
    }
    w.clock += s.seconds;
    for (int c = 0; c < kCosts; ++c) w.run_costs[c] += run.costs[c];
    const double worked = w.clock - w.current.start - w.waits[w.action];
    (is_optimizer(p_.bodies[a.body].role) ? w.update : w.useful) += worked;
    for (int c = 0; c < kCosts; ++c) w.costs[c] += w.run_costs[c];
    w.run_costs = {};
    w.flops += run.flops;
    if (p_.bodies[a.body].loop) w.imbalance[a.unit] += run.imbalance;
    end_action(w);
    return true;
  }

  // Reaches a collective. The last member to come lets all of them resume.
  void come(int index, RunSegment& s) {
    ClassWalk& w = walks_[index];
    w.clock += s.seconds;
    w.waiting = true;
    const int kind = classes_.kind(s.atoms, w.stage, w.colour);
    const size_t place =
        static_cast<size_t>(classes_.over_stages[s.atoms] ? kind : kind * p_.stages + w.stage);
    Meeting& m = meetings_[s.atoms][place];
    m.walkers.push_back(index);
    m.segments.push_back(&s);
    if (m.last < 0 || w.clock > m.start) m.last = index;
    m.start = std::max(m.start, w.clock);
    m.bytes = std::max(m.bytes, s.bytes);
    const size_t all = classes_.kinds[s.atoms][kind].size() *
                       static_cast<size_t>(classes_.over_stages[s.atoms] ? p_.stages : 1);
    if (m.walkers.size() < all) return;
    const double seconds = prices_.collective(s.what, classes_.atoms[s.atoms], m.bytes, w.rank);
    for (RunSegment* other : m.segments) other->met = seconds;
    for (int i : m.walkers) {
      ClassWalk& x = walks_[i];
      const double wait = m.start - x.clock;
      x.costs[static_cast<int>(Cost::idle)] += wait;
      x.waits[x.action] += wait;
      if (i != m.last && wait > 0) x.causes[x.action] = {m.last, walks_[m.last].action};
      x.run_costs[static_cast<int>(cost_of(s.what))] += seconds;
      x.clock = m.start + seconds;
      x.waiting = false;
      ++x.segment;
    }
    m = {};
  }

  const Program& p_;
  const Cluster& cluster_;
  const SimulateOptions& o_;
  const Classes classes_;
  RunPrices prices_;
  std::vector<ClassWalk> walks_;
  std::map<std::pair<int, int>, std::deque<Message>> messages_;  // channel, colour
  std::map<std::pair<int, int>, double> channel_free_;
  std::vector<std::vector<Meeting>> meetings_;  // by atoms, then kind of group (and stage)
};

}  // namespace

Simulation simulate(const Program& program, const Cluster& cluster,
                    const SimulateOptions& options) {
  check_ranks(cluster, program.mesh.ranks());
  return Simulator(program, cluster, options).run();
}

}  // namespace myriad
