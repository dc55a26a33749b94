#include "machine/exec.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ir/rows.h"
#include "machine/exec_rank.h"

namespace myriad {

Arenas::Arenas(const std::vector<int64_t>& bytes) : bytes_(bytes) {
  for (int64_t n : bytes) {
    const size_t size = (static_cast<size_t>(std::max<int64_t>(n, 1)) + 4095) / 4096 * 4096;
    auto* p = static_cast<std::byte*>(std::aligned_alloc(4096, size));
    if (!p) throw Error(fmt::format("no memory for an arena of {} bytes", size), "executor");
    std::memset(p, 0, size);
    memory_.emplace_back(p);
  }
}

Executor::Executor(const Program& program, std::vector<MemoryPlan> plans, Arenas& arenas,
                   Pool& pool, ExecOptions options)
    : shared_(new Shared{program, arenas, pool, options,
                         (options.communicator ? options.communicator : make_threads_communicator)(
                             program.mesh.ranks(), program.ranks_per_node)}) {
  for (int r = 0; r < program.mesh.ranks(); ++r) {
    CHECK(plans[r].peak_bytes <= arenas.bytes(r), "arena of rank {} is too small", r);
    ranks_.push_back(std::make_unique<Rank>(*shared_, r, std::move(plans[r])));
  }
  shared_->comm->seal();
}

Executor::~Executor() = default;

Outcome Executor::step(const Feed& feed) {
  const auto failure = [this]() -> Outcome {  // the lowest rank's, if several failed at once
    for (const auto& r : ranks_) {
      if (!r->failure.empty()) return {r->failure};
    }
    return {};
  };
  if (Outcome before = failure(); !before.ok()) return before;
  shared_->feed = &feed;
  shared_->comm->reset_traffic();
  std::vector<Task*> tasks;
  for (auto& r : ranks_) {
    r->restart();
    tasks.push_back(r.get());
  }
  Outcome outcome = shared_->pool.run(tasks, shared_->options.stall_seconds);
  if (Outcome failed = failure(); !failed.ok()) return failed;
  if (!outcome.ok()) outcome.reason.append("\n").append(shared_->comm->waiting());
  return outcome;
}

StepProfile Executor::measured() const {
  StepProfile p;
  for (const auto& r : ranks_) {
    p.flops += r->meter.flops;
    p.peak_bytes.push_back(static_cast<int64_t>(r->meter.high));
    for (int i = 0; i < kRows; ++i) {
      if (r->ops[i]) p.ops[info(static_cast<Row>(i)).name] += r->ops[i];
    }
    const Traffic& t = shared_->comm->traffic(r->rank);
    p.order.push_back(t.order);
    for (int k = 0; k < kCommKinds; ++k) {
      if (!t.messages[k]) continue;
      Count& c = p.collectives[name_of(static_cast<CommKind>(k))];
      c.bytes += t.bytes[k];
      c.messages += t.messages[k];
      c.between_nodes_bytes += t.between_nodes_bytes[k];
      c.between_nodes_rows += t.between_nodes_rows[k];
    }
  }
  return p;
}

void Executor::set_tap(Tap tap) { shared_->tap = std::move(tap); }
void Executor::set_check_finite(bool on) { shared_->check_finite = on; }
void Executor::set_timing(bool on) { shared_->timing = on; }
const std::vector<Stroke>& Executor::strokes(int rank) const {
  return ranks_[rank]->stopwatch.strokes();
}

BadTensor Executor::first_bad() const {
  BadTensor first;
  for (const auto& r : ranks_) {
    if (!r->bad.name.empty() && (first.name.empty() || r->bad.order < first.order)) first = r->bad;
  }
  return first;
}

Tensor Executor::state(int rank, int index) const { return ranks_[rank]->memory.state(index); }
const Program& Executor::program() const { return shared_->program; }

}  // namespace myriad
