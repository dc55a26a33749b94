// For tests: a rank as a list of steps.
#pragma once

#include <functional>
#include <vector>

#include "base/pool.h"

namespace myriad {

using Step = std::function<Progress()>;

struct RankTask : Task {
  std::vector<Step> steps;
  size_t at = 0;
  Progress resume() override {
    for (; at < steps.size(); ++at) {
      if (steps[at]() == Progress::blocked) return Progress::blocked;
    }
    return Progress::done;
  }
};

inline Outcome run_all(Pool& pool, std::vector<RankTask>& tasks, double stall_seconds = 20) {
  std::vector<Task*> list;
  for (auto& task : tasks) {
    task.at = 0;
    list.push_back(&task);
  }
  return pool.run(list, stall_seconds);
}

}  // namespace myriad
