#include "machine/simulate.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "machine/simulate_classes.h"

namespace myriad {

namespace {

// What a body costs a rank of one class, in the form of a walk: work up to the next point where
// others must have come.
struct Segment {
  double seconds = 0;
  int atoms = -1;  // index into Classes::atoms of the collective that ends it; -1: none
  MoveKind what = MoveKind::slice;
  double bytes = 0;
  double met = 0;  // seconds of that collective, once it has been
};

struct PricedRun {
  std::vector<Segment> segments;
  Costs costs{};                                       // but for collectives that end a segment
  std::map<std::pair<Cost, int>, double> collectives;  // by cost and atoms, likewise
  double flops = 0;
  double imbalance = 0;  // of its seconds: more than with even loads of experts
};

struct Message {
  double arrives, transfer;
  int by, action;  // walker and action
};

struct Cause {
  int walker = -1, action = -1;
};

struct Walk {
  int stage, colour, rank;
  int action = 0, segment = 0;
  double clock = 0, end = 0;
  bool waiting = false;  // in a collective
  Span current;
  Costs costs{}, run_costs{};
  double useful = 0, update = 0, flops = 0;
  double other = 0;  // work outside runs, where ranks share workers
  std::vector<Span> spans;
  std::map<int, double> imbalance;       // by unit
  std::vector<Cause> causes;             // by action: who was waited for
  std::vector<double> waits, transfers;  // by action
  std::map<int, double> in_flight;       // buffer -> arrival
};

// A collective that some have reached.
struct Meeting {
  int come = 0;
  double start = 0, bytes = 0;
  int last = -1;
  std::vector<int> walkers;
  std::vector<Segment*> segments;  // theirs
};

class Simulator {
 public:
  Simulator(const Program& program, const Cluster& cluster, const SimulateOptions& options)
      : p_(program),
        cluster_(cluster),
        o_(options),
        classes_(classes_of(program, cluster, most_colours(program, options))) {
    for (const GroupShape& shape : classes_.uniform) uniform_ = uniform_ && shape.ranks > 0;
    for (int s = 0; s < p_.stages; ++s) {
      for (int k = 0; k < classes_.colours(); ++k) {
        Walk w{.stage = s, .colour = k, .rank = classes_.rank(s, classes_.priced[k][0])};
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
    for (const Walk& w : walks_) {
      if (w.action < static_cast<int>(p_.actions[w.stage].size())) {
        throw Error(
            fmt::format("deadlock: stage {} waits for ever in action {}", w.stage, w.action),
            "simulate");
      }
    }
    return result();
  }

 private:
  // Prices.

  static int64_t most_colours(const Program& program, const SimulateOptions& options) {
    int64_t actions = 1;
    for (const auto& stage : program.actions) actions += static_cast<int64_t>(stage.size());
    return std::max<int64_t>(1, options.most_actions / actions);
  }

  double collective(MoveKind what, AtomList atoms, double bytes, int rank) const {
    return collective_seconds(cluster_, what, bytes, classes_.shape(classes_.index_of(atoms), rank),
                              p_.mesh.ranks())
        .seconds;
  }

  // Whether others than its own class must come.
  bool meets(int atoms, const Walk& w) const {
    return classes_.over_stages[atoms] ||
           classes_.kinds[atoms][classes_.kind(atoms, w.stage, w.colour)].size() > 1;
  }

  BodyPrice body_price(const LoweredBody& body, const Walk& w, bool first, const Pricing& pricing) {
    BodyPrice price;
    for (int column : classes_.priced[w.colour]) {
      BodyPrice other =
          price_body(cluster_.device, pricing, p_.mesh, body, classes_.rank(w.stage, column), first,
                     [this](MoveKind what, AtomList atoms, double bytes, int rank) {
                       return collective(what, atoms, bytes, rank);
                     });
      if (price.steps.empty()) {
        price = std::move(other);
        continue;
      }
      for (size_t t = 0; t < price.steps.size(); ++t) {
        price.steps[t].seconds = std::max(price.steps[t].seconds, other.steps[t].seconds);
        price.steps[t].bytes = std::max(price.steps[t].bytes, other.steps[t].bytes);
      }
      price.flops = std::max(price.flops, other.flops);
    }
    return price;
  }

  static double seconds_of(const BodyPrice& price) {
    double sum = 0;
    for (const StepPrice& s : price.steps) sum += s.seconds;
    return sum;
  }

  PricedRun& priced(const Walk& w, const Action& a) {
    const std::array<int, 4> key = {a.body, a.first, w.colour, uniform_ ? 0 : w.stage};
    const auto [at, fresh] = runs_.try_emplace(key);
    if (!fresh) return at->second;
    PricedRun& run = at->second;
    const LoweredBody& body = p_.bodies[a.body];
    BodyPrice price = body_price(body, w, a.first, o_.pricing);
    if (body.loop && !o_.pricing.load.even()) {
      Pricing even = o_.pricing;
      even.load = {};
      const BodyPrice mean = body_price(body, w, a.first, even);
      run.imbalance = seconds_of(price) - seconds_of(mean);
      price.flops = mean.flops;  // the busiest owner has the time, not all of them the work
    }
    double device = 0;
    Segment open;
    for (size_t t = 0; t < price.steps.size(); ++t) {
      const StepPrice& s = price.steps[t];
      device += s.seconds;
      const int atoms = communicates(s.cost) ? classes_.index_of(s.atoms) : -1;
      if (atoms >= 0 && meets(atoms, w)) {
        open.atoms = atoms;
        open.what = body.steps[t].what;
        open.bytes = s.bytes;
        run.segments.push_back(open);
        open = {};
        continue;
      }
      open.seconds += s.seconds;
      run.costs[static_cast<int>(s.cost)] += s.seconds;
      if (atoms >= 0) run.collectives[{s.cost, atoms}] += s.seconds;
    }
    const double host = cluster_.host.action_seconds + price.kernels * cluster_.host.issue_seconds;
    const double excess = cluster_.shared() ? host : std::max(0.0, host - device);
    open.seconds += excess;
    run.costs[static_cast<int>(Cost::host)] += excess;
    run.segments.push_back(open);
    run.flops = price.flops;
    return run;
  }

  // Walking.

  bool advance(int index) {
    Walk& w = walks_[index];
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
  static void work(Walk& w, double seconds) {
    w.clock += seconds;
    w.other += seconds;
    w.costs[static_cast<int>(Cost::host)] += seconds;
  }

  // Stands still up to `until`, of which `transfer` is the message's own time.
  void stand(Walk& w, double until, double transfer, Cause cause) {
    const double wait = until - w.clock;
    w.costs[static_cast<int>(Cost::send)] += transfer;
    w.costs[static_cast<int>(Cost::idle)] += wait - transfer;
    w.waits[w.action] += wait;
    w.transfers[w.action] += transfer;
    if (cause.walker >= 0) w.causes[w.action] = cause;
    w.clock = until;
  }

  void end_action(Walk& w) {
    w.current.end = w.clock;
    w.spans[w.action] = w.current;
    ++w.action;
    w.segment = 0;
  }

  void send(int index, const Action& a) {
    Walk& w = walks_[index];
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
    Walk& w = walks_[index];
    PricedRun& run = priced(w, a);
    Segment& s = run.segments[w.segment];
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

  // Reaches a collective; the last one lets all go on.
  void come(int index, Segment& s) {
    Walk& w = walks_[index];
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
    const double seconds = collective(s.what, classes_.atoms[s.atoms], m.bytes, w.rank);
    for (Segment* other : m.segments) other->met = seconds;
    for (int i : m.walkers) {
      Walk& x = walks_[i];
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

  // Results.

  Simulation result() {
    Simulation r;
    r.ranks = p_.mesh.ranks();
    r.classes = static_cast<int64_t>(walks_.size());
    for (const auto& actions : p_.actions) r.actions += static_cast<int64_t>(actions.size());
    int last = 0;
    for (size_t i = 0; i < walks_.size(); ++i) {
      if (walks_[i].clock > walks_[last].clock) last = static_cast<int>(i);
    }
    r.step_seconds = walks_[last].clock;
    double busy = 0, flops = 0;
    for (const Walk& w : walks_) {
      const double ranks = classes_.size[w.colour];
      busy += ranks * (w.useful + w.update + w.other);
      flops += ranks * w.flops;
    }
    for (int s = 0; s < p_.stages; ++s) r.stages.push_back(stage_result(s, r.step_seconds));
    for (int s = 0; s < p_.stages; ++s) {
      const StageResult &a = r.stages[s], &b = r.stages[r.slowest_stage];
      if (a.useful_seconds + a.update_seconds > b.useful_seconds + b.update_seconds)
        r.slowest_stage = s;
      r.bubble += a.useful_seconds > 0 ? a.idle_seconds / a.useful_seconds / p_.stages : 0;
    }
    for (int c = 0; c < kCosts; ++c) {
      const double seconds = r.stages[r.slowest_stage].seconds[c];
      if (communicates(static_cast<Cost>(c)) && seconds > 0)
        r.exposed_communication_seconds[name_of(static_cast<Cost>(c))] = seconds;
    }
    follow_critical_path(r, last);
    if (cluster_.shared()) {
      const double shared = shared_seconds(busy, r.step_seconds);
      r.critical[static_cast<int>(Cost::idle)] += shared - r.step_seconds;
      r.step_seconds = shared;
    }
    set_rates(r, flops);
    if (!classes_.exact)
      r.warnings.push_back(
          "cuts are too uneven to follow every kind of rank: the ranks of a stage are taken as one "
          "with the largest sizes");
    look_at_memory(r);
    return r;
  }

  // The step when ranks take turns on the workers: all work over the workers, and of what the
  // critical path is longer, the part that idle workers cannot help with.
  double shared_seconds(double busy, double critical) const {
    const double even = busy / cluster_.host.workers;
    return even + std::max(0.0, critical - even) * (1 - cluster_.host.parallel);
  }

  StageResult stage_result(int stage, double step_seconds) {
    const Walk* worst = nullptr;
    for (const Walk& w : walks_) {
      if (w.stage == stage && (!worst || w.clock > worst->clock)) worst = &w;
    }
    StageResult s{.rank = worst->rank,
                  .useful_seconds = worst->useful,
                  .update_seconds = worst->update,
                  .seconds = worst->costs,
                  .imbalance_seconds = worst->imbalance,
                  .actions = worst->spans};
    s.seconds[static_cast<int>(Cost::idle)] += step_seconds - worst->clock;
    s.idle_seconds = s.seconds[static_cast<int>(Cost::idle)];
    return s;
  }

  void set_rates(Simulation& r, double flops) const {
    const double devices =
        cluster_.shared() ? std::min<double>(cluster_.host.workers, static_cast<double>(r.ranks))
                          : static_cast<double>(r.ranks);
    const double able = r.step_seconds * devices * cluster_.device.peak_flops.at(o_.pricing.dtype);
    if (able <= 0) return;
    r.mfu = o_.work.model_flops / able;
    r.mfu_full_attention = o_.work.model_flops_full_attention / able;
    r.hfu = flops / able;
    r.tokens_per_second = o_.work.tokens / r.step_seconds;
  }

  // From the end back to the start: an action that had to wait leads to the one it waited for.
  void follow_critical_path(Simulation& r, int walker) const {
    std::map<std::pair<Cost, int>, double> used;
    const int messages = -1;
    int action = static_cast<int>(walks_[walker].spans.size()) - 1;
    while (action >= 0) {
      const Walk* w = &walks_[walker];
      const Action& a = p_.actions[w->stage][action];
      Cause cause = w->causes[action];
      if (a.act == Act::run &&
          cause.walker >= 0) {  // waited in a collective: the latest one's run counts
        walker = cause.walker;
        w = &walks_[walker];
        action = cause.action;
        cause = {};
      }
      if (a.act == Act::run) {
        count_run(*w, p_.actions[w->stage][action], r.critical, used);
      } else if (w->waits[action] > 0) {
        r.critical[static_cast<int>(Cost::send)] += w->transfers[action];
        used[{Cost::send, messages}] += w->transfers[action];
      }
      if (cause.walker >= 0) {
        walker = cause.walker;
        action = cause.action;
      }
      --action;
    }
    double sum = 0;
    for (double c : r.critical) sum += c;
    r.critical[static_cast<int>(Cost::idle)] += r.step_seconds - sum;
    for (const auto& [key, seconds] : used) {
      CommunicationUse use{.cost = key.first, .axes = "pp", .level = 0, .seconds = seconds};
      if (key.second >= 0) {
        use.axes = p_.mesh.show(classes_.atoms[key.second]);
        use.level = classes_.shape(key.second, 0).top();
      } else {
        for (int s = 0; s + 1 < p_.stages; ++s)
          use.level = std::max(
              use.level, level_between(cluster_, classes_.rank(s, 0), classes_.rank(s + 1, 0)));
      }
      r.critical_communication.push_back(use);
    }
    std::sort(r.critical_communication.begin(), r.critical_communication.end(),
              [](const auto& x, const auto& y) { return x.seconds > y.seconds; });
  }

  void count_run(const Walk& w, const Action& a, Costs& costs,
                 std::map<std::pair<Cost, int>, double>& used) const {
    const PricedRun& run = runs_.at({a.body, a.first, w.colour, uniform_ ? 0 : w.stage});
    for (int c = 0; c < kCosts; ++c) costs[c] += run.costs[c];
    for (const auto& [key, seconds] : run.collectives) used[key] += seconds;
    for (const Segment& s : run.segments) {
      if (s.atoms < 0) continue;
      costs[static_cast<int>(cost_of(s.what))] += s.met;
      used[{cost_of(s.what), s.atoms}] += s.met;
    }
  }

  // The columns that may hold most: all if there are few, else those with most in states and
  // bodies.
  std::vector<int> heaviest(int stage) const {
    constexpr size_t kMost = 16;
    std::vector<std::pair<int64_t, int>> weights;
    for (const auto& priced : classes_.priced) {
      for (int column : priced) weights.emplace_back(0, column);
    }
    if (weights.size() > kMost) {
      for (auto& [weight, column] : weights) {
        const int rank = classes_.rank(stage, column);
        for (const State& s : p_.states) {
          if (std::find(s.stages.begin(), s.stages.end(), stage) == s.stages.end()) continue;
          const StateUse& use = p_.bodies[s.body].states[s.use];
          const Value& v = (*p_.bodies[s.body].graph)[use.value];
          weight += local_elements(p_.mesh, use.layout, v.sizes, rank) *
                    o_.pricing.bytes.of(v, letter_of(use.name.kind));
        }
        for (const Action& a : p_.actions[stage]) {
          for (int b : a.outs) {
            if (a.act != Act::run || a.micro_batch != 0) continue;
            weight += local_elements(p_.mesh, p_.layout(p_.buffers[b]),
                                     p_.value(p_.buffers[b]).sizes, rank) *
                      o_.pricing.bytes.of(p_.value(p_.buffers[b]), 0);
          }
        }
      }
      std::sort(weights.rbegin(), weights.rend());
      weights.resize(kMost);
    }
    std::vector<int> columns;
    for (const auto& [weight, column] : weights) columns.push_back(column);
    return columns;
  }

  void look_at_memory(Simulation& r) const {
    r.memory_limit_bytes =
        static_cast<int64_t>(cluster_.device.memory_bytes - cluster_.device.reserved_bytes);
    if (!o_.memory) return;
    for (int s = 0; s < p_.stages; ++s) {
      for (int column : heaviest(s)) {
        const MemoryPlan plan = o_.memory(classes_.rank(s, column));
        if (plan.peak_bytes <= r.stages[s].peak_bytes) continue;
        r.stages[s].peak_bytes = plan.peak_bytes;
        r.stages[s].memory = plan.at_peak;
      }
    }
    for (const StageResult& s : r.stages) {
      r.memory_needed_bytes = cluster_.shared()
                                  ? r.memory_needed_bytes + s.peak_bytes * classes_.columns
                                  : std::max(r.memory_needed_bytes, s.peak_bytes);
    }
    r.fits = r.memory_needed_bytes <= r.memory_limit_bytes;
  }

  const Program& p_;
  const Cluster& cluster_;
  const SimulateOptions& o_;
  const Classes classes_;
  bool uniform_ = true;
  std::vector<Walk> walks_;
  std::map<std::array<int, 4>, PricedRun> runs_;                 // body, first, colour, stage
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
