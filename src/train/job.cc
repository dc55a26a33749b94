// Compiles the programs of a model under a plan, lays out their memory, and steps them.
//
// A job can have several programs (training, evaluation, logits, decoding, prefilling) that share
// one arena on each rank. The parameters come first in it, at the same offsets for all programs.
// move_behind shifts everything else of a further program behind the states of the first, so that
// its steps destroy neither parameters nor moments; only working memory is shared. Prefilling is
// put behind the states of the decoding program for the same reason, as the key/value cache is one
// of them. The results of a step leave the executor through taps (see and record), which several
// workers may call at once. Read train/job.h, then the constructor and add_forward_only, then
// Job::run.
#include "train/job.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "ir/sequence.h"
#include "train/model_folder.h"

namespace myriad {

int64_t Batch::valid() const {
  return std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
}

std::vector<int64_t> Compiled::peaks() const {
  std::vector<int64_t> p;
  for (const MemoryPlan& m : memory) p.push_back(m.peak_bytes);
  return p;
}

namespace {

// The plan of a forward-only program of `rows` rows on the same mesh and stages.
Plan forward_plan(Plan plan, int64_t rows) {
  plan.micro_batches = static_cast<int>(
      std::clamp<int64_t>((rows + plan.dp - 1) / plan.dp, 1, std::max(plan.pp, 1)));
  return plan;
}

// Copies the part of a batch that an input tensor holds. `order` is the order of tokens within a
// sequence, see sequence_order.
void feed_rows(const Batch& batch, const std::vector<int32_t>& from,
               const std::vector<int32_t>& order, int64_t first_row, const Tensor& to) {
  for (int64_t i = 0; i < to.size[0]; ++i) {
    const int64_t row = first_row + to.lo[0] + i;
    for (int64_t j = 0; j < to.size[1]; ++j) {
      to.as<int32_t>()[i * to.size[1] + j] = from[static_cast<size_t>(
          row * batch.sequence + order[static_cast<size_t>(to.lo[1] + j)])];
    }
  }
}

// Programs share the parameters, which lie first in the arena of a rank. Moves everything else of
// `c` behind the states of another program, so that they survive the steps of `c`.
void move_behind(Compiled& c, const Compiled& other, int rank) {
  MemoryPlan& m = c.memory[rank];
  const MemoryPlan& kept = other.memory[rank];
  for (size_t i = 0; c.program.states[i].name.kind == StateKind::parameter; ++i) {
    const State &a = c.program.states[i], &b = other.program.states[i];
    CHECK(a.name == b.name && a.unit == b.unit && m.states[i] == kept.states[i],
          "state {} of unit {} lies elsewhere", a.name, a.unit);
  }
  const int64_t own = m.parameter_bytes, shift = kept.state_bytes - own;
  const auto move = [&](std::vector<int64_t>& offsets) {
    for (int64_t& o : offsets) o += o >= own ? shift : 0;
  };
  move(m.states);
  move(m.buffers);
  for (MemoryPlan::Run& run : m.actions) {
    move(run.versions);
    move(run.scratch);
  }
  m.state_bytes += shift;
  m.peak_bytes += shift;
}

StepShape step_shape(const JobConfig& c, int64_t sequence) {
  return {.rows = c.rows, .sequence = sequence, .dtype = c.real, .optimizer = c.optimizer};
}

int64_t elements_of(const Param& p) {
  int64_t n = 1;
  for (int64_t s : p.sizes) n *= s;
  return n;
}

void feed_scalar(const Tensor& to, double x) {
  if (to.dtype == DType::f32) {
    *to.as<float>() = static_cast<float>(x);
  } else {
    *to.as<double>() = x;
  }
}

}  // namespace

Job::Job(JobConfig config, Pool& pool, Options options)
    : config_(std::move(config)),
      pool_(pool),
      options_(std::move(options)),
      pieces_(make_pieces(config_.model, step_shape(config_, config_.sequence))) {
  std::vector<int64_t> bytes;
  if (options_.train) {
    train_ = compile({.rows = config_.rows, .keep = options_.keep, .wanted = options_.wanted},
                     config_.plan, config_.sequence);
    for (const LoweredBody& body : train_.program.bodies) has_loops_ |= body.loop;
    if (!has_loops_) predicted_ = profile(train_.program, train_.memory);
    if (options_.rewrite) {
      untouched_ = std::make_unique<Program>(train_.program);
      options_.rewrite(train_.program);
    }
    programs_ = {&train_};
    bytes = train_.peaks();
  }
  add_forward_only(bytes);
  arenas_ = std::make_unique<Arenas>(bytes);
  for (Compiled* c : programs_) {
    c->executor = std::make_unique<Executor>(c->program, c->memory, *arenas_, pool_,
                                             ExecOptions{.kernels = config_.kernels});
    c->executor->set_tap([this, c](int rank, const Action& a, int buffer, const Tensor& t) {
      see(*c, rank, a, buffer, t);
    });
  }
}

// The cache of the decoding program must survive the prompts that are read between its steps, so
// prefilling lies behind its states. All other programs share the memory behind the states of the
// first program.
void Job::add_forward_only(std::vector<int64_t>& arena_bytes) {
  const auto add = [&](Compiled& c, const LowerOptions& options, const Plan& plan, int64_t sequence,
                       const CacheShape& cache = {}) {
    c = compile(options, plan, sequence, cache);
    arena_bytes.resize(c.memory.size(), 0);
    for (size_t r = 0; r < c.memory.size(); ++r) {
      const Compiled* other = &c == &prefilling_  ? &decoding_
                              : programs_.empty() ? nullptr
                                                  : programs_[0];
      if (other) move_behind(c, *other, static_cast<int>(r));
      arena_bytes[r] = std::max(arena_bytes[r], c.memory[r].peak_bytes);
    }
    programs_.push_back(&c);
  };
  const auto options = [&](int64_t rows, std::vector<std::string> keep) {
    return LowerOptions{
        .rows = rows, .forward_only = true, .keep = std::move(keep), .wanted = options_.wanted};
  };
  if (const int64_t n = options_.evaluation_rows; n > 0)
    add(evaluation_, options(n, {}), forward_plan(config_.plan, n), config_.sequence);
  if (const int64_t n = options_.logits_rows; n > 0)
    add(logits_, options(n, {"logits"}), forward_plan(config_.plan, n), config_.sequence);
  if (const Generation& g = options_.generation; g.rows > 0) {
    Plan plan = config_.plan;
    plan.micro_batches = 1;  // all rows share the cache of a layer
    const CacheShape cache{.tokens = g.tokens, .context = config_.sequence};
    add(decoding_, options(g.rows, {"logits"}), plan, 1, cache);
    add(prefilling_, options(1, {}), plan, std::min(kPrefill, config_.sequence), cache);
  }
  CHECK(!programs_.empty(), "a job without a program");
}

// Keeps the scalars of the step as rank 0 has them; they are equal on all ranks.
void Job::see(Compiled& c, int rank, const Action& action, int buffer, const Tensor& value) {
  if (rank == 0 && c.program.bodies[action.body].role == BodyRole::finish) {
    const Port port = c.program.value(c.program.buffers[buffer]).port;
    if (port == Port::loss) loss_sum_ = *value.as<double>();
    if (port == Port::norm) norm_ = *value.as<double>();
    if (port == Port::aux) aux_ = *value.as<double>();
    if (port == Port::zloss) zloss_ = *value.as<double>();
  }
  if (has_loops_ && &c == &train_) record(c, rank, action, buffer, value);
  if (tap_) tap_(rank, action, buffer, value);
}

Compiled Job::compile(const LowerOptions& options, const Plan& plan, int64_t sequence,
                      const CacheShape& cache) {
  Compiled c;
  c.program =
      make_program(config_.model, plan, step_shape(config_, sequence),
                   {.lower = options, .cache = cache, .rewrite_pieces = options_.rewrite_pieces});
  if (options_.rewrite_lowered) options_.rewrite_lowered(c.program);
  const ScratchBytes scratch = [&](const Op& op, const LabelSizes& local, DType real) {
    return kernel_scratch(config_.kernels, op, local, real);
  };
  c.memory = plan_memory_of_ranks(c.program, scratch);
  return c;
}

void Job::record(Compiled& c, int rank, const Action& action, int buffer, const Tensor& value) {
  const Port port = c.program.value(c.program.buffers[buffer]).port;
  if (port != Port::choices && port != Port::fits) return;
  const std::lock_guard lock(recorded_mutex_);
  recorded_.try_emplace(buffer, c.program, buffer).first->second.add(rank, value);
  places_[buffer] = {action.unit, action.micro_batch};
}

const StepProfile& Job::predicted() {
  if (!predicted_fresh_) {
    const Scratch scratch = [&](const Op& op, const LabelSizes& local, DType real) {
      return kernel_scratch(config_.kernels, op, local, real);
    };
    predicted_ =
        profile(untouched_ ? *untouched_ : train_.program, train_.memory, &routing_, scratch);
    predicted_fresh_ = true;
  }
  return predicted_;
}

// Counts what the routers chose, from the recorded choices of all micro-batches. A forward pass
// that is recomputed records the same choices again, so each unit and micro-batch counts once.
void Job::report_experts(StepResult& result) {
  routing_.clear();
  std::set<std::pair<int, int>> counted;
  for (const auto& [buffer, collected] : recorded_) {
    const Buffer& b = train_.program.buffers[buffer];
    const Value& v = train_.program.value(b);
    const auto place = places_.at(buffer);
    const std::vector<double> whole = collected.whole(b.name);
    if (v.port == Port::fits) {
      if (counted.insert(place).second)
        result.dropped[place.first] += std::count(whole.begin(), whole.end(), 0.0);
    } else {
      routing_[place] = {.rows = v.sizes[0],
                         .sequence = v.sizes[1],
                         .k = v.sizes[2],
                         .expert = {whole.begin(), whole.end()}};
    }
  }
  for (const auto& [place, choices] : routing_) {
    auto& counts = result.tokens_per_expert[place.first];
    counts.resize(static_cast<size_t>(config_.model.moe.experts));
    for (int32_t e : choices.expert) ++counts[static_cast<size_t>(e)];
  }
  recorded_.clear();
  predicted_fresh_ = false;
}

std::vector<std::string> Job::published(int unit, const std::string& param) const {
  const Piece& piece = pieces_.pieces[pieces_.units[unit]];
  const int i = piece.find(param);
  CHECK(i >= 0, "no parameter {} in unit {}", param, unit);
  std::string text = piece.params[i].published;
  if (const size_t at = text.find("{}"); at != std::string::npos)
    text.replace(at, 2, std::to_string(unit - 1));
  const size_t at = text.find("{e}");
  if (at == std::string::npos) return {text};
  std::vector<std::string> names;
  for (int64_t e = 0; e < piece.params[i].sizes[0]; ++e)
    names.push_back(std::string(text).replace(at, 3, std::to_string(e)));
  return names;
}

void Job::for_each_parameter(
    const std::function<void(const std::vector<std::string>&, const Param&, int)>& f) const {
  for (size_t i = 0; i < base().program.states.size(); ++i) {
    const State& s = base().program.states[i];
    if (s.name.kind != StateKind::parameter) continue;
    const Piece& piece = pieces_.pieces[pieces_.units[s.unit]];
    f(published(s.unit, s.name.of), piece.params[piece.find(s.name.of)], static_cast<int>(i));
  }
}

void Job::initialise(uint64_t seed) {
  for_each_parameter([&](const std::vector<std::string>& names, const Param& p, int index) {
    std::vector<uint64_t> streams;
    for (const std::string& name : names) streams.push_back(stream_of(name));
    const int64_t part = elements_of(p) / static_cast<int64_t>(names.size());
    set_state(*base().executor, index, [&](int64_t i) {
      if (p.init == Init::normal)
        return p.std * normal(seed, streams[static_cast<size_t>(i / part)],
                              static_cast<uint64_t>(i % part));
      return p.init == Init::ones ? 1.0 : 0.0;
    });
  });
  initialise_moments();
}

void Job::initialise_moments() {
  for (size_t i = 0; i < base().program.states.size(); ++i) {
    const StateKind kind = base().program.states[i].name.kind;
    if (kind == StateKind::exp_avg || kind == StateKind::exp_avg_sq)
      set_state(*base().executor, static_cast<int>(i), [](int64_t) { return 0.0; });
  }
}

void Job::load(const std::vector<SafeTensors>& files) {
  std::set<std::string> used;
  if (config_.model.tied) used.insert("lm_head.weight");  // if a file has it, it is a copy
  for_each_parameter([&](const std::vector<std::string>& names, const Param& p, int index) {
    const std::vector<double> data = read_published(files, names, p, used);
    set_state(*base().executor, index, [&](int64_t i) { return data[static_cast<size_t>(i)]; });
  });
  refuse_unused(files, used);
}

std::vector<std::string> Job::parameters() const {
  std::vector<std::string> names;
  for_each_parameter([&](const std::vector<std::string>& of, const Param&, int) {
    names.insert(names.end(), of.begin(), of.end());
  });
  return names;
}

std::vector<double> Job::parameter(const std::string& name) const {
  int found = -1;
  size_t place = 0, parts = 1;
  for_each_parameter([&](const std::vector<std::string>& names, const Param&, int index) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) return;
    found = index;
    place = static_cast<size_t>(at - names.begin());
    parts = names.size();
  });
  if (found < 0) throw Error(fmt::format("no parameter {}", name));
  const std::vector<double> whole = get_state(*base().executor, found);
  const auto part = static_cast<std::ptrdiff_t>(whole.size() / parts);
  return {whole.begin() + static_cast<std::ptrdiff_t>(place) * part,
          whole.begin() + static_cast<std::ptrdiff_t>(place + 1) * part};
}

int Job::micro_batches(const Compiled& c, const Batch& batch) const {
  return &c == &train_ ? config_.plan.micro_batches
                       : forward_plan(config_.plan, batch.rows).micro_batches;
}

// `batch` must outlive the feed that is returned.
Feed Job::feed_of(const Compiled& c, const Batch& batch, const StepScalars& scalars,
                  bool live) const {
  const int64_t tokens = batch.valid();
  const double inv_n = tokens ? 1.0 / static_cast<double>(tokens) : 0;
  return [this, &batch, scalars, live, inv_n, micro_batches = micro_batches(c, batch),
          order = sequence_order(batch.sequence, config_.plan.cp)](int, const Value& input, int mb,
                                                                   const Tensor& to) {
    const OptimizerConfig& o = config_.optimizer;
    const int64_t first = mb < 0 ? 0 : micro_batch_rows(batch.rows, micro_batches, mb).lo;
    if (input.port == Port::ids) return feed_rows(batch, batch.ids, order, first, to);
    if (input.port == Port::targets) return feed_rows(batch, batch.targets, order, first, to);
    if (input.port == Port::positions) return feed_rows(batch, batch.positions, order, first, to);
    if (input.port == Port::documents) return feed_rows(batch, batch.documents, order, first, to);
    if (input.port == Port::inv_n) return feed_scalar(to, inv_n);
    if (input.port == Port::balance_coef)
      return feed_scalar(to, config_.model.moe.routing.load_balance / micro_batches);
    if (input.port == Port::z_coef)
      return feed_scalar(to, config_.model.moe.routing.z / micro_batches);
    if (input.port == Port::live) return feed_scalar(to, live);
    if (input.port == Port::lr) return feed_scalar(to, scalars.lr);
    if (input.port == Port::bias_correction1)
      return feed_scalar(to, 1 - std::pow(o.beta1, static_cast<double>(scalars.step)));
    if (input.port == Port::bias_correction2)
      return feed_scalar(to, 1 - std::pow(o.beta2, static_cast<double>(scalars.step)));
    CHECK(false, "no input {}", input.name);
  };
}

StepResult Job::run(Compiled& c, const Batch& batch, const StepScalars& scalars, bool live) {
  StepResult result{.tokens = batch.valid()};
  live = live && result.tokens > 0;
  const Outcome outcome = c.executor->step(feed_of(c, batch, scalars, live));
  if (!outcome.ok()) throw Failure(outcome.reason);
  result.loss_sum = loss_sum_;
  result.norm = norm_;
  result.auxiliary =
      (config_.model.moe.routing.load_balance * aux_ + config_.model.moe.routing.z * zloss_) /
      micro_batches(c, batch);
  if (has_loops_ && &c == &train_) report_experts(result);
  result.updated = live && std::isfinite(result.norm);
  return result;
}

StepResult Job::step(const Batch& batch, const StepScalars& scalars) {
  return run(train_, batch, scalars, true);
}

StepResult Job::evaluate(const Batch& batch) { return run(evaluation_, batch, {}, false); }

std::vector<double> Job::logits(const Batch& batch) {
  return in_row_order(run(logits_, feed_of(logits_, batch, {}, false), "logits"), batch.rows,
                      batch.sequence, config_.plan.cp);
}

std::vector<double> Job::run(Compiled& c, const Feed& feed, const std::string& value) {
  std::mutex mutex;
  std::map<int, Collected> collected;  // by micro-batch
  const Tap before = tap_;
  tap_ = [&](int rank, const Action& action, int buffer, const Tensor& t) {
    if (c.program.value(c.program.buffers[buffer]).name != value) return;
    const std::lock_guard lock(mutex);
    collected.try_emplace(action.micro_batch, c.program, buffer).first->second.add(rank, t);
  };
  const Outcome outcome = c.executor->step(feed);
  tap_ = before;
  if (!outcome.ok()) throw Failure(outcome.reason);
  std::vector<double> whole;
  for (const auto& [mb, part] : collected) {
    const std::vector<double> rows = part.whole(value);
    whole.insert(whole.end(), rows.begin(), rows.end());
  }
  return whole;
}

BadTensor Job::hunt(const Batch& batch) {
  train_.executor->set_check_finite(true);
  run(train_, batch, {}, false);
  train_.executor->set_check_finite(false);
  return train_.executor->first_bad();
}

}  // namespace myriad
