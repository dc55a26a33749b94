// A simulation for people and machines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "machine/simulate.h"

namespace myriad {

// The keys of docs/simulator.md. token_budget 0: no device-hours.
nlohmann::json to_json(const Simulation& simulation, double token_budget = 0);
std::string to_text(const Simulation& simulation, const Program& program, const Cluster& cluster,
                    double token_budget = 0);

// The predicted timeline as Chrome-trace JSON (chrome://tracing, Perfetto): a row a stage, its last
// class of ranks.
std::string chrome_trace(const Simulation& simulation, const Program& program);

std::string show_bytes(double bytes);      // "63.42 GB"
std::string show_seconds(double seconds);  // "4.217 s", "38.2 ms"

}  // namespace myriad
