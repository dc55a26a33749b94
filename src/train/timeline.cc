// Replays a timed step as if every rank had its own device, and writes it as a Chrome trace.
//
// Replay is a Machine (machine/walker.h), as is the one that executes the program: the same walk
// over the program drives it, but a step only moves its rank's clock by the time that was measured.
// A rank waits in two places: a receive waits for its message, and a collective waits until the
// last rank of its group has arrived. Ranks agree on which collective they meet in because all
// ranks of a group begin their collectives over the same axes in the same order, so group and count
// identify one. As a rank advances only once all that it waits for is known, the result does not
// depend on the order in which the walk visits ranks. Read train/timeline.h first, then
// Replay::step.
#include "train/timeline.h"

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ir/flight.h"
#include "ir/print.h"

namespace myriad {

const char* name_of(BarKind kind) {
  static constexpr const char* kNames[kBarKinds] = {"feed",     "forward", "backward", "optimizer",
                                                    "exchange", "send",    "recv",     "wait"};
  return kNames[static_cast<int>(kind)];
}

double Timeline::bubble() const {
  double sum = 0;
  for (size_t s = 0; s < useful.size(); ++s) sum += useful[s] > 0 ? idle[s] / useful[s] : 0;
  return useful.empty() ? 0 : sum / static_cast<double>(useful.size());
}

namespace {

const Action& action_of(const Program& p, int rank, int index) {
  return p.actions[p.stage_of(rank)][index];
}

BarKind kind_of(const Program& p, const Action& a) {
  switch (a.act) {
    case Act::run:
      if (is_optimizer(p.bodies[a.body].role)) return BarKind::optimizer;
      return is_backward(p.bodies[a.body].role) ? BarKind::backward : BarKind::forward;
    case Act::send:
      return BarKind::send;
    case Act::recv:
      return BarKind::recv;
    case Act::wait:
      return BarKind::wait;
    default:
      return BarKind::feed;
  }
}

using MeetingKey = std::pair<std::vector<int>, int>;  // the group, and how many it began before

// One rank on its own device.
struct Device {
  const std::vector<Stroke>* strokes;
  size_t next = 0;   // the next stroke
  size_t first = 0;  // the first stroke of the open run
  double clock = 0, useful = 0, idle = 0;
  std::map<AtomSet, int> begun;    // number of collectives started, by axes
  std::map<int, MeetingKey> open;  // not yet finished, by flat position of the start
  std::vector<Bar> bars, inner;    // inner: within the open run
  double run_start = -1, run_idle = 0;
};

struct Meeting {
  int come = 0;
  double start = 0;
};

// Follows the program with one clock for each rank, which advances by the measured times.
class Replay : public Machine {
 public:
  Replay(const Program& program, const std::vector<std::vector<Stroke>>& strokes)
      : p_(program), devices_(strokes.size()) {
    for (size_t r = 0; r < strokes.size(); ++r) devices_[r].strokes = &strokes[r];
    for (int s = 0; s < program.stages; ++s) starts_.push_back(starts_of(program, s));
  }

  Progress act(const At& at, const Action& a) override {
    Device& d = devices_[at.rank];
    const int per_stage = p_.mesh.ranks() / p_.stages;
    if (a.act == Act::recv) {
      auto& queue = sent_[{a.channel, at.rank % per_stage}];
      if (queue.empty()) return Progress::blocked;
      stand(d, at.action, queue.front(), d.bars);
      queue.pop_front();
    }
    spend(d, at.action, kind_of(p_, a), d.bars);
    if (a.act == Act::send) sent_[{a.channel, at.rank % per_stage}].push_back(d.clock);
    return Progress::advanced;
  }

  int rounds(const At& at, const Action&, const LoweredBody& body) override {
    const Device& d = devices_[at.rank];
    size_t n = 0;
    while (d.next + n < d.strokes->size() && (*d.strokes)[d.next + n].action == at.action) ++n;
    return static_cast<int>(n / std::max<size_t>(1, body.steps.size()));
  }

  Progress step(const At& at, const Action&, const LoweredBody& body, const Step& step) override {
    Device& d = devices_[at.rank];
    if (d.run_start < 0) {
      d.run_start = d.clock;
      d.first = d.next;
    }
    // Steps that later rounds skip have strokes too, so the position follows from round and step.
    d.next =
        d.first + static_cast<size_t>(at.round) * body.steps.size() + static_cast<size_t>(at.step);
    if (step.kind == StepKind::start) {
      spend(d, at.action, BarKind::exchange, d.inner);
      begin(d, at, step);
      return Progress::advanced;
    }
    if (!ends_collective(step)) {
      d.clock += take(d);
      return Progress::advanced;
    }
    const int start =
        step.kind == StepKind::finish ? starts_[static_cast<size_t>(at.stage)][at.flat] : at.flat;
    if (!d.open.contains(start)) begin(d, at, step);  // a collective that is a single step
    const MeetingKey& key = d.open.at(start);
    const Meeting& m = meetings_[key];
    if (m.come < static_cast<int>(key.first.size())) return Progress::blocked;
    stand(d, at.action, m.start, d.inner);
    spend(d, at.action, BarKind::exchange, d.inner);
    d.open.erase(start);
    return Progress::advanced;
  }

  void ran(const At& at, const Action& a) override {
    Device& d = devices_[at.rank];
    if (p_.bodies[a.body].steps.empty()) take(d);
    while (d.next < d.strokes->size() && (*d.strokes)[d.next].action == at.action) ++d.next;
    if (d.run_start < 0) d.run_start = d.clock;
    d.bars.push_back({kind_of(p_, a), at.action, d.run_start, d.clock});
    d.bars.insert(d.bars.end(), d.inner.begin(), d.inner.end());
    if (a.micro_batch >= 0) d.useful += d.clock - d.run_start - d.run_idle;
    d.inner.clear();
    d.run_start = -1;
    d.run_idle = 0;
  }

  Timeline result() {
    Timeline t;
    for (const Device& d : devices_) t.seconds = std::max(t.seconds, d.clock);
    t.useful.assign(p_.stages, 0);
    t.idle.assign(p_.stages, 0);
    const double per_stage = static_cast<double>(p_.mesh.ranks() / p_.stages);
    for (int r = 0; r < p_.mesh.ranks(); ++r) {
      Device& d = devices_[r];
      t.useful[p_.stage_of(r)] += d.useful / per_stage;
      t.idle[p_.stage_of(r)] += (d.idle + t.seconds - d.clock) / per_stage;
      t.ranks.push_back(std::move(d.bars));
    }
    return t;
  }

 private:
  // Records that the rank has arrived at a collective.
  void begin(Device& d, const At& at, const Step& step) {
    std::vector<int> group = p_.mesh.group(step.atoms, at.rank);
    std::sort(group.begin(), group.end());
    const MeetingKey key{std::move(group), d.begun[step.atoms.set()]++};
    Meeting& m = meetings_[key];
    m.start = std::max(m.start, d.clock);
    ++m.come;
    d.open[at.flat] = key;
  }

  double take(Device& d) {
    CHECK(d.next < d.strokes->size(), "the replay goes further than the step that was timed");
    return (*d.strokes)[d.next++].busy;
  }

  void spend(Device& d, int action, BarKind kind, std::vector<Bar>& to) {
    const double start = d.clock;
    d.clock += take(d);
    to.push_back({kind, action, start, d.clock});
  }

  void stand(Device& d, int action, double until, std::vector<Bar>& to) {
    if (until <= d.clock) return;
    to.push_back({BarKind::wait, action, d.clock, until});
    d.idle += until - d.clock;
    if (&to == &d.inner) d.run_idle += until - d.clock;
    d.clock = until;
  }

  const Program& p_;
  std::vector<Device> devices_;
  std::map<std::pair<int, int>, std::deque<double>> sent_;  // by channel and column: times sent
  std::map<MeetingKey, Meeting> meetings_;
  std::vector<std::vector<int>> starts_;  // by stage, as starts_of gives them
};

bool timed(const Executor& executor) {
  for (int r = 0; r < executor.program().mesh.ranks(); ++r) {
    if (executor.strokes(r).empty()) return false;
  }
  return true;
}

void add_events(std::string& out, const Program& p, const Timeline& t, int process,
                const char* name) {
  using nlohmann::json;
  const auto meta = [&](const char* what, int row, const std::string& value) {
    out += json({{"name", what},
                 {"ph", "M"},
                 {"pid", process},
                 {"tid", row},
                 {"args", {{"name", value}}}})
               .dump() +
           ",\n";
  };
  meta("process_name", 0, name);
  for (size_t r = 0; r < t.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    meta("thread_name", rank, fmt::format("rank {} (stage {})", rank, p.stage_of(rank)));
    for (const Bar& b : t.ranks[r]) {
      if (b.end <= b.start) continue;
      const Action& a = action_of(p, rank, b.action);
      const bool run = a.act == Act::run && b.kind != BarKind::exchange && b.kind != BarKind::wait;
      out += fmt::format(
          "{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:"
          ".3f},"
          "\"args\":{{\"unit\":{},\"micro_batch\":{}}}}},\n",
          json(run ? p.bodies[a.body].name : name_of(b.kind)).dump(), name_of(b.kind), process, r,
          b.start * 1e6, (b.end - b.start) * 1e6, a.unit, a.micro_batch);
    }
  }
}

}  // namespace

Timeline replay(const Executor& executor) {
  if (!timed(executor)) return {};
  std::vector<std::vector<Stroke>> strokes;
  for (int r = 0; r < executor.program().mesh.ranks(); ++r) strokes.push_back(executor.strokes(r));
  return replay(executor.program(), strokes);
}

Timeline replay(const Program& program, const std::vector<std::vector<Stroke>>& strokes) {
  Replay machine(program, strokes);
  walk_all(program, machine);
  return machine.result();
}

Timeline as_run(const Executor& executor) {
  Timeline t;
  if (!timed(executor)) return t;
  const Program& p = executor.program();
  double first = executor.strokes(0).front().begin;
  for (int r = 0; r < p.mesh.ranks(); ++r)
    first = std::min(first, executor.strokes(r).front().begin);
  for (int r = 0; r < p.mesh.ranks(); ++r) {
    std::vector<Bar>& bars = t.ranks.emplace_back();
    int open = -1;
    for (const Stroke& k : executor.strokes(r)) {
      if (k.action != open) {
        open = k.action;
        bars.push_back({kind_of(p, action_of(p, r, open)), open, k.begin - first, 0});
      }
      bars.back().end = k.end - first;
      t.seconds = std::max(t.seconds, bars.back().end);
    }
  }
  return t;
}

std::string chrome_trace(const Executor& executor) {
  const Program& p = executor.program();
  const Timeline replayed = replay(executor);
  std::string out = "{\"traceEvents\":[\n";
  add_events(out, p, replayed, 0, "replayed on devices of their own");
  add_events(out, p, as_run(executor), 1, "as it ran, ranks sharing the workers");
  out += "{\"name\":\"end\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{}}\n],\n";
  return out +
         nlohmann::json({{"stages", p.stages},
                         {"seconds", replayed.seconds},
                         {"bubble", replayed.bubble()},
                         {"useful_seconds", replayed.useful},
                         {"idle_seconds", replayed.idle}})
             .dump()
             .substr(1) +
         "\n";
}

}  // namespace myriad
