// The parts of the simulator: prices of runs, the walk over them (simulate.cc), and what its end
// says (simulate_result.cc).
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "machine/simulate.h"
#include "machine/simulate_classes.h"

namespace myriad {

// What a body costs a rank of one class, in the form of a walk: work up to the next point where
// others must have come.
struct RunSegment {
  double seconds = 0;
  int atoms = -1;  // index into Classes::atoms of the collective that ends it; -1: none
  MoveKind what = MoveKind::slice;
  double bytes = 0;
  double met = 0;  // seconds of that collective, once it has been
};

struct PricedRun {
  std::vector<RunSegment> segments;
  Costs costs{};                                       // but for collectives that end a segment
  std::map<std::pair<Cost, int>, double> collectives;  // by cost and atoms, likewise
  double flops = 0;
  double imbalance = 0;  // of its seconds: more than with even loads of experts
};

struct WaitCause {
  int walker = -1, action = -1;
};

// How far the ranks of one class in one stage have come.
struct ClassWalk {
  int stage, colour, rank;
  int action = 0, segment = 0;
  double clock = 0, end = 0;
  bool waiting = false;  // in a collective
  Span current;
  Costs costs{}, run_costs{};
  double useful = 0, update = 0, flops = 0;
  double other = 0;  // work outside runs, where ranks share workers
  std::vector<Span> spans;
  std::map<int, double> imbalance;       // by unit
  std::vector<WaitCause> causes;         // by action: who was waited for
  std::vector<double> waits, transfers;  // by action
  std::map<int, double> in_flight;       // buffer -> arrival
};

// Prices each body once for the ranks of a class that run it alike.
class RunPrices {
 public:
  RunPrices(const Program& program, const Cluster& cluster, const SimulateOptions& options,
            const Classes& classes);

  PricedRun& of(const ClassWalk& w, const Action& a);
  const PricedRun& known(const ClassWalk& w, const Action& a) const {
    return runs_.at(key_of(w, a));
  }
  double collective(MoveKind what, AtomList atoms, double bytes, int rank) const;

 private:
  using Key = std::array<int, 4>;  // body, first, colour, stage
  Key key_of(const ClassWalk& w, const Action& a) const {
    return {a.body, a.first, w.colour, uniform_ ? 0 : w.stage};
  }
  bool meets(int atoms, const ClassWalk& w) const;
  BodyPrice body_price(const LoweredBody& body, const ClassWalk& w, bool first,
                       const Pricing& pricing) const;

  const Program& p_;
  const Cluster& cluster_;
  const SimulateOptions& o_;
  const Classes& classes_;
  bool uniform_ = true;
  std::map<Key, PricedRun> runs_;
};

// All walks at their end.
struct Walked {
  const Program& program;
  const Cluster& cluster;
  const SimulateOptions& options;
  const Classes& classes;
  const std::vector<ClassWalk>& walks;
  const RunPrices& prices;
};
Simulation result_of(const Walked& walked);

}  // namespace myriad
