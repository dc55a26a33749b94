// Runs small programs on this machine and reports how long each of their steps took.
//
// One worker runs all ranks, so the time of a step is all of its work: no idle worker helps with
// it. Each program is stepped alternately with the stopwatch and without it. The timed steps give a
// median for every step of every body, less what the stopwatch itself costs, which is the time of
// steps that do nothing but read. The untimed steps give the time of a whole step; what the timed
// parts do not explain is divided among collectives and receives as the cost of waiting. Read
// calibrate/timed.h, then time_programs at the end; Notes holds the figures and Notes::fill
// evaluates them.
#include "calibrate/timed.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "ir/flight.h"
#include "kernels/fast/matrix.h"

namespace myriad {

namespace {

struct Widths {
  int64_t hidden, ffn, vocabulary;
};

JobConfig job(DType real, const Widths& w, const Plan& plan, int64_t rows, int64_t sequence) {
  ModelConfig m;
  m.hidden = w.hidden;
  m.layers = 2;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = w.hidden / 4;
  m.ffn = w.ffn;
  m.vocabulary = w.vocabulary;
  m.norm_eps = 1e-5;
  return {.model = m,
          .plan = resolve(plan, static_cast<int>(m.layers), rows),
          .rows = rows,
          .sequence = sequence,
          .real = real,
          .optimizer = {},
          .kernels = KernelSet::fast};
}

// The widths go from 64 to 512, so that products, norms and exchanges of several sizes occur.
std::vector<JobConfig> programs(DType real) {
  std::vector<JobConfig> all = {job(real, {64, 176, 1024},
                                    {.dp = 2, .tp = 2, .micro_batches = 2, .zero = 1, .sp = true},
                                    4, 128)};
  if (real == DType::f64) return all;
  all.push_back(job(real, {192, 512, 3072}, {.tp = 2, .pp = 2, .micro_batches = 2}, 2, 256));
  all.push_back(job(real, {512, 1376, 2048}, {}, 1, 192));
  return all;
}

Batch made_up(const JobConfig& c) {
  Batch b{.rows = c.rows, .sequence = c.sequence};
  const uint64_t vocabulary = static_cast<uint64_t>(c.model.vocabulary);
  for (int64_t i = 0; i < c.rows * c.sequence; ++i) {
    const auto token = [&](uint64_t stream) {
      return static_cast<int32_t>(random_bits(1, stream, static_cast<uint64_t>(i)) % vocabulary);
    };
    b.ids.push_back(token(0));
    b.targets.push_back(token(1));
    b.positions.push_back(static_cast<int32_t>(i % c.sequence));
    b.documents.push_back(0);
  }
  return b;
}

double median(std::vector<double> x) {
  if (x.empty()) return 0;
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

// The times of all steps of one program so far.
struct Notes {
  std::map<std::array<int, 3>, std::vector<std::vector<double>>>
      bodies;  // key: body, first rank of the stage, `first`; value: all times of each step
  std::map<std::pair<int, int>, std::vector<double>> received;  // key: rank, action
  std::vector<double> others, whole_steps;
  int steps = 0;

  void add(const Executor& executor) {
    const Program& p = executor.program();
    ++steps;
    const int per_stage = p.mesh.ranks() / p.stages;
    for (int rank = 0; rank < p.mesh.ranks(); ++rank) {
      const std::vector<Stroke>& strokes = executor.strokes(rank);
      const auto& actions = p.actions[p.stage_of(rank)];
      size_t at = 0;
      for (size_t i = 0; i < actions.size(); ++i) {
        const Action& a = actions[i];
        if (a.act != Act::run) {
          (a.act == Act::recv ? received[{rank, static_cast<int>(i)}] : others)
              .push_back(strokes[at++].busy);
          continue;
        }
        const size_t n = p.bodies[a.body].steps.size();
        auto& seconds = bodies[{a.body, rank / per_stage * per_stage, a.first}];
        seconds.resize(n);
        for (size_t t = 0; t < n; ++t) seconds[t].push_back(strokes[at++].busy);
      }
      CHECK(at == strokes.size(), "rank {}: {} strokes of {}", rank, at, strokes.size());
    }
  }

  void fill(TimedProgram& to) const {
    const Program& p = to.job->train().program;
    const double look = stopwatch_seconds(p);
    const int all_runs = steps * p.mesh.ranks() / p.stages;
    for (const auto& [key, seconds] : bodies) {
      TimedBody b{.body = key[0],
                  .rank = key[1],
                  .first = key[2] != 0,
                  .runs = static_cast<int>(seconds.empty() ? 0 : seconds[0].size()) / all_runs,
                  .seconds = {}};
      for (const auto& all : seconds) b.seconds.push_back(std::max(0.0, median(all) - look));
      add_to_starts(p.bodies[b.body], b.seconds);
      to.bodies.push_back(std::move(b));
    }
    for (const auto& [key, seconds] : received) {
      const Buffer& b = p.buffers[p.actions[p.stage_of(key.first)][key.second].outs[0]];
      const double elements =
          static_cast<double>(local_elements(p.mesh, p.layout(b), p.value(b).sizes, key.first));
      to.messages.push_back(
          {elements * static_cast<double>(size_of(p.value(b).dtype)), median(seconds) - look});
    }
    to.action_seconds = std::max(0.0, median(others) - look);
    to.step_seconds = median(whole_steps);
    fill_waits(to);
  }

  // A collective is priced at its start, so the time of its finish is added to that of the start.
  static void add_to_starts(const LoweredBody& body, std::vector<double>& seconds) {
    std::map<int, size_t> started;  // key: version in flight
    for (size_t t = 0; t < seconds.size(); ++t) {
      const Step& s = body.steps[t];
      if (s.kind == StepKind::start) started[s.outs[0]] = t;
      if (s.kind != StepKind::finish || !started.contains(s.ins[0])) continue;
      seconds[started[s.ins[0]]] += std::exchange(seconds[t], 0);
    }
  }

  void fill_waits(TimedProgram& to) const {
    const Program& p = to.job->train().program;
    const int per_stage = p.mesh.ranks() / p.stages;
    double known = 0, waits = 0;
    for (const TimedMessage& m : to.messages) known += m.seconds, ++waits;
    for (const TimedBody& b : to.bodies) {
      for (size_t t = 0; t < b.seconds.size(); ++t) {
        const Step& s = p.bodies[b.body].steps[t];
        known += b.runs * per_stage * b.seconds[t];
        if (begins_collective(s))
          waits += b.runs * per_stage * (s.what == MoveKind::all_reduce ? 2 : 1);
      }
    }
    known += to.action_seconds * static_cast<double>(others.size()) / steps;
    if (waits > 0) to.wait_seconds = std::max(0.0, to.step_seconds - known) / waits;
  }

  // The time that the stopwatch itself takes: that of steps which only look up where a state lies.
  double stopwatch_seconds(const Program& p) const {
    std::vector<double> reads;
    for (const auto& [key, seconds] : bodies) {
      for (size_t t = 0; t < seconds.size(); ++t) {
        if (p.bodies[key[0]].steps[t].kind == StepKind::read)
          reads.insert(reads.end(), seconds[t].begin(), seconds[t].end());
      }
    }
    return median(reads);
  }
};

// Processor time that this thread has used, in seconds.
double worked() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::vector<TimedProgram> time_programs(Pool& pool, DType real, double seconds) {
  std::vector<TimedProgram> out;
  std::vector<Notes> notes;
  std::vector<Batch> batches;
  for (const JobConfig& config : programs(real)) {
    out.push_back({.job = std::make_unique<Job>(config, pool), .bodies = {}, .messages = {}});
    out.back().job->initialise(1);
    batches.push_back(made_up(config));
  }
  notes.resize(out.size());
  const double end = now() + seconds;
  constexpr int kWarmUp = 1, kLeast = 3;
  for (int step = 1; step <= kWarmUp + kLeast || now() < end; ++step) {
    for (size_t i = 0; i < out.size(); ++i) {
      Job& job = *out[i].job;
      for (const bool timing : {true, false}) {
        job.train().executor->set_timing(timing);
        const double from = worked();
        job.step(batches[i], {.lr = 1e-4, .step = 2 * step - timing});
        if (step <= kWarmUp) continue;
        timing ? notes[i].add(*job.train().executor)
               : notes[i].whole_steps.push_back(worked() - from);
      }
    }
  }
  for (size_t i = 0; i < out.size(); ++i) notes[i].fill(out[i]);
  return out;
}

double matrix_rate(double seconds) {
  constexpr int64_t n = 1024;
  const std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f);
  std::vector<float> c(n * n);
  double best = 0;
  const double end = now() + seconds;
  for (int i = 0; i < 4 || now() < end; ++i) {
    const double from = worked();
    matrix_product(nullptr, false, false, n, n, n, 1, a.data(), n, b.data(), n, 0, c.data(), n);
    best = std::max(best, 2.0 * n * n * n / (worked() - from));
  }
  return best;
}

double parallel_share(int workers, double seconds) {
  if (workers < 2) return 0;
  const JobConfig config = job(DType::f32, {256, 704, 2048}, {}, 1, 128);
  const Batch batch = made_up(config);
  Pool one(1), all(workers);
  Job alone(config, one), helped(config, all);
  double least[2] = {1e9, 1e9};
  const double end = now() + seconds;
  for (int step = 1; step <= 16 || now() < end; ++step) {
    for (Job* job : {&alone, &helped}) {
      Executor& executor = *job->train().executor;
      if (step == 1) job->initialise(1);
      executor.set_timing(true);
      job->step(batch, {.lr = 1e-4, .step = step});
      double busy = 0;
      for (const Stroke& s : executor.strokes(0)) busy += s.busy;
      double& best = least[job == &helped];
      best = std::min(best, busy);
    }
  }
  const double share = (1 - least[1] / least[0]) / (1 - 1.0 / workers);
  return std::clamp(share, 0.0, 1.0);
}

}  // namespace myriad
