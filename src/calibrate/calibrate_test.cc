// That the machine can be measured at all; how well is told by the figures that `calibrate` prints.
#include "calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "calibrate/timed.h"
#include "cluster/write.h"

namespace myriad {
namespace {

TEST(Calibrate, WritesAClusterThatPricesItsOwnSteps) {
  const Calibration c = calibrate({.seconds = 0.2, .workers = 3});
  EXPECT_EQ(c.cluster.host.workers, 3);
  EXPECT_GT(c.steps, 500);
  EXPECT_GT(c.error, 0);  // how far off is for the figures to tell: others may use this machine
  EXPECT_TRUE(std::isfinite(c.error));
  const Cluster again = parse_cluster(write_cluster(c.cluster), "laptop");  // at most 25 fitted
  EXPECT_TRUE(again.shared());
  EXPECT_GT(again.device.peak_flops.at("fp32"), 1e9);
  EXPECT_GT(again.device.memory_bytes, 1e8);
  EXPECT_GE(again.fitted.size(), 10u);
}

TEST(Timed, EveryStepIsSeen) {
  Pool pool(1);
  for (const TimedProgram& t : time_programs(pool, DType::f64, 0)) {
    const Program& p = t.job->train().program;
    std::vector<int> runs(static_cast<size_t>(p.mesh.ranks()));
    for (const TimedBody& b : t.bodies) {
      runs[b.rank] += b.runs;
      EXPECT_EQ(b.seconds.size(), p.bodies[b.body].steps.size());
    }
    for (int s = 0; s < p.stages; ++s) {
      const auto& actions = p.actions[s];
      EXPECT_EQ(runs[s * p.mesh.ranks() / p.stages],
                std::count_if(actions.begin(), actions.end(),
                              [](const Action& a) { return a.act == Act::run; }));
    }
  }
}

}  // namespace
}  // namespace myriad
