// One variant trained for its steps under one layout, and how far that is from another run of it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "verify/variants.h"

namespace myriad {

// What a run leaves. Names: "loss 1", "norm 1", "gradient 1 PARAMETER" by step from 1, of experts
// also "router losses 1", "tokens per expert 1 layer 2", "dropped 1 layer 2"; "weight PARAMETER",
// "moment m PARAMETER" at the end. Gradients are raw: settled, not clipped, divided by the global
// number of targets.
struct Record {
  std::map<std::string, std::vector<double>> tensors;
  std::vector<std::string> faults;  // copies that differ, counts that were not predicted, changes
                                    // in a step without targets
};

// `wanted` as in LowerOptions: given the mesh, the layout of every value; empty: the plan's rules.
using WantedOn = std::function<std::function<Want(const Value&)>(const Mesh&)>;

// Throws Error or Failure where the layout cannot be lowered or a step does not end. options:
// rewrites, to plant faults.
Record run_trial(const Variant& variant, const Plan& plan, Pool& pool,
                 const WantedOn& wanted = nullptr, Job::Options options = {});

// One step of a job, and what it computes: "loss", "norm", "gradient" and of experts their routing,
// of this step.
StepResult record_step(Job& job, const Batch& batch, int step, Record& record);
// "weight" and "moment" as they are now.
std::map<std::string, std::vector<double>> states_of(Job& job);

struct Deviation {
  std::string tensor;
  double error = 0;  // not finite where either run's tensor is not, or is missing
};

// Of each tensor but moments: the largest difference over the largest reference value of that
// tensor; of gradients over at least `floor` of the largest gradient entry of the model in that
// step. The worst first.
std::vector<Deviation> compare(const Record& run, const Record& reference, double floor = 1e-6);

// First tensor, by name, whose bits differ; empty: none.
std::string first_difference(const Record& a, const Record& b);

}  // namespace myriad
