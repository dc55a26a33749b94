// Lays out tiny models by random constraints instead of the rules of a plan, trains them and
// compares them with one rank. Any constraint is legal, so every combination of moves and partial
// sums that the sharder can make may come up.
//
// What is asked of a value is drawn from the seed and the name of the value alone. So it does not
// matter in which order or how often the sharder asks, a value is asked for alike in all bodies,
// and a failure is repeated by its seed. Choices of experts are the one exception: all ranks have
// to know them. Read `random_wanted` first.
#include "verify/random_layouts.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/random.h"

namespace myriad {

namespace {

// A sequence of draws that depends on seed and name alone.
class Draw {
 public:
  Draw(uint64_t seed, std::string_view name) : seed_(seed), stream_(stream_of(name)) {}
  double real() { return uniform(seed_, stream_, next_++); }
  int below(int n) { return static_cast<int>(real() * n); }

 private:
  uint64_t seed_, stream_, next_ = 0;
};

}  // namespace

std::function<Want(const Value&)> random_wanted(uint64_t seed, const Mesh& mesh) {
  std::vector<Atom> atoms;
  for (int a = 0; a < mesh.atoms(); ++a) {
    if (mesh.axis(static_cast<Atom>(a)).name != "pp") atoms.push_back(static_cast<Atom>(a));
  }
  return [seed, atoms](const Value& value) {
    Want want;
    // All ranks must know which expert each token chose; the rows of these choices may lie
    // anywhere.
    if (value.name == "idx" || value.name == "idr" || value.name == "rounds") {
      want.asked = want.settle = true;
      return want;
    }
    Draw draw(seed, value.name);
    if (value.name.find_first_of("%@") != std::string::npos || draw.real() < 0.3) return want;
    want.asked = true;
    want.settle = draw.real() < 0.5;
    std::vector<Atom> order = atoms;
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(draw.below(static_cast<int>(i)))]);
    const int dims = static_cast<int>(value.sizes.size());
    for (Atom a : order) {
      if (dims > 0 && draw.real() < 0.6) want.cuts[static_cast<size_t>(draw.below(dims))].push(a);
    }
    return want;
  };
}

namespace {

Plan random_plan(uint64_t seed, const Variant& v, int max_ranks) {
  Draw draw(seed, "plan");
  Plan p;
  do {
    p = {.dp = 1 + draw.below(4),
         .cp = 1 + draw.below(3),
         .tp = 1 + draw.below(6),
         .pp = 1 + draw.below(3)};
  } while (p.ranks() < 2 || p.ranks() > max_ranks || p.dp * p.cp * p.tp == 1);
  p.micro_batches = 1 + draw.below(static_cast<int>(std::min<int64_t>(3, v.rows)));
  if (draw.real() < 0.3 && p.pp * 2 <= v.model.layers && p.micro_batches >= p.pp) p.vpp = 2;
  if (p.vpp == 1 && draw.real() < 0.3) p.schedule = "gpipe";
  p.recompute = static_cast<Recompute>(draw.below(3));
  return resolve(p, static_cast<int>(v.model.layers), v.rows);
}

RandomLayout try_seed(uint64_t seed, const Variant& v, const Plan& plan, const Record& reference,
                      Pool& pool) {
  RandomLayout out{.seed = seed, .name = fmt::format("seed {}, {}: {}", seed, v.name, show(plan))};
  try {
    const Record record =
        run_trial(v, plan, pool, [&](const Mesh& mesh) { return random_wanted(seed, mesh); });
    const Deviation worst = compare(record, reference).front();
    out.tensor = record.faults.empty() ? worst.tensor : record.faults[0];
    out.error = worst.error;
    out.ok = record.faults.empty() && worst.error <= kRandomLayoutBound;
  } catch (const std::exception& e) {
    out.tensor = e.what();
    out.error = 1;
  }
  return out;
}

}  // namespace

std::vector<RandomLayout> verify_random_layouts(uint64_t first, int count, int max_ranks,
                                                int workers) {
  std::vector<Variant> variants = all_variants();
  std::erase_if(variants, [](const Variant& v) { return v.real != DType::f64; });
  struct Trial {
    const Variant* variant;
    Plan plan;
    const Record* reference;
  };
  std::map<std::pair<const Variant*, int>, Record> references;  // one rank; by micro-batches too
  std::vector<Trial> trials;
  Pool pool(1);
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    const Variant& v = variants[seed % variants.size()];
    Plan plan = random_plan(seed, v, max_ranks);
    const int micro_batches = v.by_micro_batch() ? plan.micro_batches : 1;
    const auto [at, fresh] = references.try_emplace({&v, micro_batches});
    if (fresh)
      at->second = run_trial(
          v, resolve({.micro_batches = micro_batches}, static_cast<int>(v.model.layers), v.rows),
          pool);
    trials.push_back({&v, std::move(plan), &at->second});
  }
  std::vector<RandomLayout> out(static_cast<size_t>(count));
  std::atomic<int> next{0};
  const auto work = [&] {
    Pool own(1);
    for (int i; (i = next++) < count;) {
      const Trial& t = trials[static_cast<size_t>(i)];
      out[static_cast<size_t>(i)] =
          try_seed(first + static_cast<uint64_t>(i), *t.variant, t.plan, *t.reference, own);
    }
  };
  std::vector<std::thread> threads;
  if (workers <= 0) workers = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  return out;
}

}  // namespace myriad
