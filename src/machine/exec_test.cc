// The executor on programs written as text: transfers that start and finish apart, in one run and
// across runs, and a communicator that loses a peer.
#include "machine/exec.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>

#include "ir/print.h"
#include "ir/program.h"

namespace myriad {
namespace {

// `begin` doubles x and starts to sum the doubles over dp; `other` squares x meanwhile; `end`
// finishes the sum and adds the squares of its own half, gathered apart in one run.
constexpr const char* kProgram = R"(program stages 1
mesh dp 2
graph 0 f32
  value x "bd" 2,3 f32
  value twice "bd" 2,3 f32
  value square "bd" 2,3 f32
  value y "bd" 2,3 f32
body begin piece 0 graph 0
  inputs v0 x [sum:dp]
  op 0 twice = add "bd,bd->bd" (x, x) [b=2 d=3]
  v1 twice [sum:dp] = run 0 (v0, v0)
  v2 twice [whole] in_flight = start all_reduce [dp] (v1)
  outputs v2
body other piece 0 graph 0
  inputs v0 x [b:dp]
  op 0 square = contract "bd,bd->bd" (x, x) [b=2 d=3]
  v1 square [b:dp] = run 0 (v0, v0) cut [b:dp]
  outputs v1
body end piece 0 graph 0
  inputs v0 twice [whole] in_flight, v1 square [b:dp]
  v2 square [whole] in_flight = start all_gather [dp] (v1)
  v3 twice [whole] = finish all_reduce [dp] (v0)
  v4 square [whole] = finish all_gather [dp] (v2)
  op 0 y = add "bd,bd->bd" (twice, square) [b=2 d=3]
  v5 y [whole] = run 0 (v3, v4)
  outputs v5
buffer part of begin v0
buffer x of other v0
buffer twice of begin v2
buffer square of other v1
buffer y of end v5
stage 0
  feed -> (part, x)
  run begin (part) -> (twice)
  run other (x) -> (square)
  run end (twice, square) -> (y)
)";

// Every version and buffer in memory of its own; a finish makes its result in place.
MemoryPlan roomy_plan(const Program& p) {
  MemoryPlan plan;
  const auto room = [&] { return std::exchange(plan.peak_bytes, plan.peak_bytes + 64); };
  for (size_t b = 0; b < p.buffers.size(); ++b) plan.buffers.push_back(room());
  for (const Action& a : p.actions[0]) {
    MemoryPlan::Run run;
    if (a.act == Act::run) {
      const LoweredBody& body = p.bodies[a.body];
      for (size_t v = 0; v < body.versions.size(); ++v) run.versions.push_back(room());
      for (size_t i = 0; i < a.ins.size(); ++i)
        run.versions[body.inputs[i]] = plan.buffers[a.ins[i]];
      for (size_t i = 0; i < a.outs.size(); ++i)
        run.versions[body.outputs[i]] = plan.buffers[a.outs[i]];
      for (const Step& s : body.steps) {
        if (s.kind == StepKind::finish) run.versions[s.outs[0]] = run.versions[s.ins[0]];
      }
      run.scratch.assign(body.steps.size(), 0);
    }
    plan.actions.push_back(std::move(run));
  }
  return plan;
}

// x is 10 r + i on row r and place i of it; of the partial sums rank 1 has all, rank 0 none.
void feed(int rank, const Value&, int, const Tensor& to) {
  const bool part = to.size[0] == 2;
  for (int64_t r = 0; r < to.size[0]; ++r) {
    for (int64_t i = 0; i < 3; ++i)
      to.as<float>()[r * 3 + i] =
          part && rank == 0 ? 0 : static_cast<float>(10 * (to.lo[0] + r) + i);
  }
}

struct Ran {
  Outcome outcome;
  std::vector<std::vector<float>> y{2};  // by rank
  std::vector<std::string> seen;         // by a tap on rank 0
  StepProfile measured, counted;
};

Ran run(const std::string& text, Pool& pool, ExecOptions options = {}, int steps = 2) {
  const Program p = parse_program(text);
  const MemoryPlan plan = roomy_plan(p);
  Arenas arenas({plan.peak_bytes, plan.peak_bytes});
  Executor executor(p, {plan, plan}, arenas, pool, options);
  Ran ran;
  std::mutex mutex;
  executor.set_tap([&](int rank, const Action&, int buffer, const Tensor& t) {
    const std::lock_guard lock(mutex);
    if (rank == 0) ran.seen.push_back(p.buffers[buffer].name);
    if (p.buffers[buffer].name == "y")
      ran.y[rank].assign(t.as<float>(), t.as<float>() + t.elements());
  });
  for (int step = 0; step < steps; ++step) {
    ran.seen.clear();
    ran.outcome = executor.step(feed);
  }
  ran.measured = executor.measured();
  ran.counted = profile(p, {plan, plan});
  ran.measured.peak_bytes = ran.counted.peak_bytes = {};  // no plan to hold
  return ran;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

const std::vector<float> kSums = {0, 3, 8, 120, 143, 168};  // 2 x + x^2

TEST(Exec, TransfersFinishInLaterRuns) {
  for (int workers : {1, 2}) {
    Pool pool(workers);
    const Ran ran = run(kProgram, pool);
    EXPECT_TRUE(ran.outcome.ok()) << ran.outcome.reason;
    EXPECT_EQ(ran.y[0], kSums);
    EXPECT_EQ(ran.y[1], kSums);
    EXPECT_TRUE(ran.measured == ran.counted);
    EXPECT_EQ(ran.measured.collectives.at("all_reduce").messages, 4);
    EXPECT_EQ(ran.measured.collectives.at("all_gather").bytes, 24);
    EXPECT_EQ(ran.seen, (std::vector<std::string>{"square", "y"}))
        << "a tap does not see what is in flight";
  }
}

// What starts first need not finish first.
TEST(Exec, FinishesInAnyOrder) {
  Pool pool(2);
  const std::string first = "  v3 twice [whole] = finish all_reduce [dp] (v0)\n",
                    second = "  v4 square [whole] = finish all_gather [dp] (v2)\n";
  const Ran ran = run(replaced(kProgram, first + second, second + first), pool);
  EXPECT_TRUE(ran.outcome.ok()) << ran.outcome.reason;
  EXPECT_EQ(ran.y[1], kSums);
}

TEST(Exec, AMoveInOneStepIsTheSame) {
  Pool pool(2);
  std::string text = kProgram;
  for (const auto& [from, to] :
       {std::pair{"  v2 square [whole] in_flight = start all_gather [dp] (v1)\n", ""},
        {"v4 square [whole] = finish all_gather [dp] (v2)",
         "v2 square [whole] = move all_gather [dp] (v1)"},
        {"v5 y", "v4 y"},
        {"run 0 (v3, v4)", "run 0 (v3, v2)"},
        {"outputs v5", "outputs v4"},
        {"of end v5", "of end v4"}})
    text = replaced(text, from, to);
  const Ran ran = run(text, pool);
  EXPECT_TRUE(ran.outcome.ok()) << ran.outcome.reason;
  EXPECT_EQ(ran.y[0], kSums);
  EXPECT_TRUE(ran.measured == ran.counted);
}

// Loses rank 0, as rank 1 finds at its n-th call.
class Lossy : public Communicator {
 public:
  Lossy(int ranks, int node, int n) : inner_(make_threads_communicator(ranks, node)), left_(n) {}
  int prepare(int rank, Transfer t) override { return inner_->prepare(rank, std::move(t)); }
  void seal() override { inner_->seal(); }
  Progress start(int rank, int handle) override {
    return lost(rank) ? Progress::failed : inner_->start(rank, handle);
  }
  Progress finish(int rank, int handle) override {
    return lost(rank) ? Progress::failed : inner_->finish(rank, handle);
  }
  Progress run(int rank, int handle) override {
    return lost(rank) ? Progress::failed : inner_->run(rank, handle);
  }
  std::string failure() const override { return "rank 0 is lost"; }
  const Traffic& traffic(int rank) const override { return inner_->traffic(rank); }
  void reset_traffic() override { inner_->reset_traffic(); }
  std::string waiting() const override { return inner_->waiting(); }

 private:
  bool lost(int rank) { return rank == 1 && --left_ < 0; }
  std::unique_ptr<Communicator> inner_;
  int left_;  // calls of rank 1, which one worker at a time runs
};

// At whatever call the peer is lost, the step returns and says so; it neither hangs nor aborts.
TEST(Exec, ALostPeerEndsTheStep) {
  for (int n = 0; n < 4; ++n) {
    for (int workers : {1, 2}) {
      Pool pool(workers);
      ExecOptions options;
      options.communicator = [n](int ranks, int node) {
        return std::make_unique<Lossy>(ranks, node, n);
      };
      const auto from = std::chrono::steady_clock::now();
      for (int steps : {1, 2}) {  // every later step fails likewise
        const Ran ran = run(kProgram, pool, options, steps);
        EXPECT_TRUE(ran.outcome.reason.starts_with("rank 1 in run ")) << ran.outcome.reason;
        EXPECT_TRUE(ran.outcome.reason.ends_with(": rank 0 is lost")) << ran.outcome.reason;
      }
      EXPECT_LT(std::chrono::steady_clock::now() - from, std::chrono::seconds(20));
    }
  }
}

}  // namespace
}  // namespace myriad
