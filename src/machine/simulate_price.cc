// What one run of a body takes a class of ranks. Its steps are priced one after another; only a
// collective that must meet other classes ends a segment, since when it begins is known in the walk
// alone. A collective whose group is all of one class begins when this class comes to it, so it is
// work like any other. Of a class whose ranks are taken together the dearest of each step counts.
#include <algorithm>

#include "machine/simulate_walk.h"

namespace myriad {

namespace {

double seconds_of(const BodyPrice& price) {
  double sum = 0;
  for (const StepPrice& s : price.steps) sum += s.seconds;
  return sum;
}

}  // namespace

RunPrices::RunPrices(const Program& program, const Cluster& cluster, const SimulateOptions& options,
                     const Classes& classes)
    : p_(program), cluster_(cluster), o_(options), classes_(classes) {
  for (const GroupShape& shape : classes.uniform) uniform_ = uniform_ && shape.ranks > 0;
}

double RunPrices::collective(MoveKind what, AtomList atoms, double bytes, int rank) const {
  return collective_seconds(cluster_, what, bytes, classes_.shape(classes_.index_of(atoms), rank),
                            p_.mesh.ranks())
      .seconds;
}

// Whether others than its own class must come.
bool RunPrices::meets(int atoms, const ClassWalk& w) const {
  return classes_.over_stages[atoms] ||
         classes_.kinds[atoms][classes_.kind(atoms, w.stage, w.colour)].size() > 1;
}

BodyPrice RunPrices::body_price(const LoweredBody& body, const ClassWalk& w, bool first,
                                const Pricing& pricing) const {
  BodyPrice price;
  for (int column : classes_.priced[w.colour]) {
    BodyPrice other =
        price_body(cluster_.device, pricing, p_.mesh, body, classes_.rank(w.stage, column), first,
                   [this](MoveKind what, AtomList atoms, double bytes, int rank) {
                     return collective(what, atoms, bytes, rank);
                   });
    if (price.steps.empty()) {
      price = std::move(other);
      continue;
    }
    for (size_t t = 0; t < price.steps.size(); ++t) {
      price.steps[t].seconds = std::max(price.steps[t].seconds, other.steps[t].seconds);
      price.steps[t].bytes = std::max(price.steps[t].bytes, other.steps[t].bytes);
    }
    price.flops = std::max(price.flops, other.flops);
  }
  return price;
}

PricedRun& RunPrices::of(const ClassWalk& w, const Action& a) {
  const auto [at, fresh] = runs_.try_emplace(key_of(w, a));
  if (!fresh) return at->second;
  PricedRun& run = at->second;
  const LoweredBody& body = p_.bodies[a.body];
  BodyPrice price = body_price(body, w, a.first, o_.pricing);
  if (body.loop && !o_.pricing.load.even()) {
    Pricing even = o_.pricing;
    even.load = {};
    const BodyPrice mean = body_price(body, w, a.first, even);
    run.imbalance = seconds_of(price) - seconds_of(mean);
    price.flops = mean.flops;  // the busiest owner has the time, not all of them the work
  }
  double device = 0;
  RunSegment open;
  for (size_t t = 0; t < price.steps.size(); ++t) {
    const StepPrice& s = price.steps[t];
    device += s.seconds;
    const int atoms = communicates(s.cost) ? classes_.index_of(s.atoms) : -1;
    if (atoms >= 0 && meets(atoms, w)) {
      open.atoms = atoms;
      open.what = body.steps[t].what;
      open.bytes = s.bytes;
      run.segments.push_back(open);
      open = {};
      continue;
    }
    open.seconds += s.seconds;
    run.costs[static_cast<int>(s.cost)] += s.seconds;
    if (atoms >= 0) run.collectives[{s.cost, atoms}] += s.seconds;
  }
  const double host = cluster_.host.action_seconds + price.kernels * cluster_.host.issue_seconds;
  const double excess = cluster_.shared() ? host : std::max(0.0, host - device);
  open.seconds += excess;
  run.costs[static_cast<int>(Cost::host)] += excess;
  run.segments.push_back(open);
  run.flops = price.flops;
  return run;
}

}  // namespace myriad
