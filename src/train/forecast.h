// What the simulator says of a run before it begins (machine/simulate.h), on any cluster: the
// program is the one that will be run.
#pragma once

#include <string>

#include "plan/predict.h"
#include "train/run_config.h"

namespace myriad {

// The training program of a run file, as it runs.
Program program_of(const RunConfig& config);
StepShape step_shape(const RunConfig& config);

// dtype: see PlannedRun; "": of the run file where the cluster has it.
PlannedRun planned_run(const RunConfig& config, const Cluster& cluster, std::string dtype = "");

struct Forecast {
  double step_seconds = 0;
  double bubble = 0;     // were every rank on a device of its own
  std::string timeline;  // Chrome trace
};

// machine: this one; its workers are as many as share the ranks now.
Forecast forecast(const RunConfig& config, const Program& program, Cluster machine, int workers);

}  // namespace myriad
