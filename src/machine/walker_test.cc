// The one walk: order, numbering, and that it can stop and resume anywhere.
#include "machine/walker.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace myriad {
namespace {

LoweredBody body_of(int steps) {
  LoweredBody b;
  for (int i = 0; i < steps; ++i) b.steps.push_back({.kind = StepKind::run, .op = i});
  return b;
}

Action run(int body) { return {.act = Act::run, .body = body}; }
Action other(Act act, int peer = -1, int channel = -1) {
  return {.act = act, .peer = peer, .channel = channel};
}

// Two stages of two ranks: the first feeds, runs three steps and sends; the second receives and
// runs two bodies, one of them empty.
Program two_stages() {
  Program p;
  p.mesh = Mesh({{"pp", 2}, {"dp", 2}});
  p.stages = 2;
  p.bodies = {body_of(3), body_of(2), body_of(0)};
  p.actions = {{other(Act::feed), run(0), other(Act::send, 1, 0), other(Act::wait, 1, 0)},
               {other(Act::recv, 0, 0), run(2), run(1), other(Act::zero)}};
  return p;
}

// Records where it is. Blocks where the test asks for it, and receives only what was sent.
class Recorder : public Machine {
 public:
  explicit Recorder(const Program& p) : lines(p.mesh.ranks()), ranks_(p.mesh.ranks()) {}

  Progress act(const At& at, const Action& a) override {
    if (block && block()) return Progress::blocked;
    if (a.act == Act::send) sent_.insert(at.rank % (ranks_ / 2));
    if (a.act == Act::recv && !sent_.count(at.rank % (ranks_ / 2))) return Progress::blocked;
    note(at, fmt::format("act {}", at.action));
    EXPECT_EQ(at.step, -1);
    return Progress::advanced;
  }
  Progress step(const At& at, const Action&, const LoweredBody& body, const Step& step) override {
    if (block && block()) return Progress::blocked;
    EXPECT_EQ(&body.steps[at.step], &step);
    note(at, fmt::format("step {}.{}", at.action, at.step));
    return Progress::advanced;
  }
  void ran(const At& at, const Action&) override {
    lines[at.rank].push_back(fmt::format("ran {}", at.action));
  }

  std::function<bool()> block;
  std::vector<std::vector<std::string>> lines;  // by rank

 private:
  void note(const At& at, const std::string& what) {
    lines[at.rank].push_back(fmt::format("{} {}", at.flat, what));
  }
  int ranks_;
  std::set<int> sent_;
};

using Lines = std::vector<std::string>;
const Lines kFirst = {"0 act 0", "1 step 1.0", "2 step 1.1", "3 step 1.2",
                      "ran 1",   "4 act 2",    "5 act 3"};
const Lines kSecond = {"0 act 0", "ran 1", "1 step 2.0", "2 step 2.1", "ran 2", "3 act 3"};

TEST(Walker, VisitsActionsAndStepsInOrder) {
  const Program p = two_stages();
  Recorder r(p);
  walk_all(p, r);
  EXPECT_EQ(r.lines, (std::vector<Lines>{kFirst, kFirst, kSecond, kSecond}));
}

TEST(Walker, OneAdvanceIsOneActionOrStep) {
  const Program p = two_stages();
  Recorder r(p);
  Walker w(p, 0);
  int n = 0;
  while (w.advance(r) == Progress::advanced) {
    ++n;
    EXPECT_EQ(w.at().flat, n);
  }
  EXPECT_EQ(n, 6);
  EXPECT_EQ(w.advance(r), Progress::done) << "done stays done";
  EXPECT_EQ(r.lines[0], kFirst);
}

TEST(Walker, BlockedIsAskedAgainAndNothingIsSkipped) {
  const Program p = two_stages();
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Recorder r(p);
    r.block = [&] { return random() % 3 == 0; };
    std::vector<Walker> walkers;
    for (int rank = 0; rank < p.mesh.ranks(); ++rank) walkers.emplace_back(p, rank);
    for (int done = 0, turns = 0; done < p.mesh.ranks();
         ++turns) {  // in any order, one advance at a time
      ASSERT_LT(turns, 10000);
      done = 0;
      walkers[random() % walkers.size()].advance(r);
      for (const Walker& w : walkers)
        done += w.at().action == static_cast<int>(p.actions[w.at().stage].size());
    }
    EXPECT_EQ(r.lines, (std::vector<Lines>{kFirst, kFirst, kSecond, kSecond})) << "seed " << seed;
  }
}

TEST(Walker, RestartBeginsAnew) {
  const Program p = two_stages();
  Recorder r(p);
  Walker w(p, 1);
  for (int i = 0; i < 3; ++i) w.advance(r);
  w.restart();
  r.lines[1].clear();
  while (w.advance(r) == Progress::advanced) {
  }
  EXPECT_EQ(r.lines[1], kFirst);
}

TEST(Walker, RanksKnowTheirStage) {
  const Program p = two_stages();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(Walker(p, rank).at().stage, rank / 2);
}

TEST(Walker, AProgramThatCannotGoOnIsAnError) {
  Program p = two_stages();
  p.actions[0].erase(p.actions[0].begin() + 2);  // nobody sends
  Recorder r(p);
  EXPECT_THROW(walk_all(p, r), Error);
}

}  // namespace
}  // namespace myriad
