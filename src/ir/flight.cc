#include "ir/flight.h"

#include <map>

#include "base/error.h"

namespace myriad {

std::vector<int> sources_in_flight(const LoweredBody& body) {
  std::vector<int> sources(body.versions.size(), -1);
  for (const Step& step : body.steps) {
    if (step.kind == StepKind::start) sources[step.outs[0]] = step.ins[0];
  }
  return sources;
}

std::vector<int> starts_of(const Program& program, int stage) {
  std::vector<int> starts;
  std::map<int, int> of_buffer;  // in flight between actions: position of the start
  for (const Action& a : program.actions[stage]) {
    if (a.act != Act::run) {
      starts.push_back(-1);
      continue;
    }
    const LoweredBody& body = program.bodies[a.body];
    std::map<int, int> of_version;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      if (const auto at = of_buffer.find(a.ins[i]); at != of_buffer.end())
        of_version[body.inputs[i]] = at->second;
    }
    for (const Step& step : body.steps) {
      if (step.kind == StepKind::start) of_version[step.outs[0]] = static_cast<int>(starts.size());
      int start = -1;
      if (step.kind == StepKind::finish) {
        const auto at = of_version.find(step.ins[0]);
        CHECK(at != of_version.end(), "{}: v{} was not started", body.name, step.ins[0]);
        start = at->second;
      }
      starts.push_back(start);
    }
    for (size_t i = 0; i < body.outputs.size(); ++i) {
      if (!body.versions[body.outputs[i]].in_flight) continue;
      if (const auto at = of_version.find(body.outputs[i]); at != of_version.end())
        of_buffer[a.outs[i]] = at->second;
    }
  }
  return starts;
}

}  // namespace myriad
