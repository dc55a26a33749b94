// Moves as the executor makes them: random pairs of layouts on random meshes, sizes uneven and
// parts empty, against a gather-everything oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "ir/testing.h"
#include "machine/exec.h"
#include "passes/memory.h"
#include "passes/split_moves.h"

namespace myriad {
namespace {

Mesh random_mesh(Random& random) {
  std::vector<Mesh::Axis> axes;
  int ranks = 1;
  for (int i = 0; i < 5; ++i) {
    const int size = (i == 0 ? 2 : 1) + below(random, 4);
    if (ranks * size > 24) continue;
    ranks *= size;
    axes.push_back({std::string(1, static_cast<char>('a' + i)), size});
  }
  return Mesh(axes);
}

// A value that is fed in one layout and handed out in another.
struct Case {
  Sizes sizes;
  Layout from, to;
  bool max;
};

Case random_case(Random& random, const Mesh& mesh) {
  Case c;
  const int dims = below(random, 5);
  for (int d = 0; d < dims; ++d) c.sizes.push_back(1 + below(random, 7));
  c.max = random() % 3 == 0;
  c.from = random_layout(random, mesh, dims, mesh.all(), c.max);
  c.to = random_layout(random, mesh, dims, c.max ? c.from.pending : mesh.all(), c.max);
  return c;
}

// A body a case: feed, the steps of reshard, out.
void add_case(Program& p, const Case& c, DType dtype) {
  const int index = static_cast<int>(p.bodies.size());
  LoweredBody body{
      .name = fmt::format("case{}", index), .piece = index, .graph = std::make_shared<Graph>()};
  const int value = body.graph->add({.name = fmt::format("x{}", index),
                                     .labels = std::string("bsgh").substr(0, c.sizes.size()),
                                     .sizes = c.sizes,
                                     .dtype = dtype});
  body.versions.push_back({value, c.from});
  for (const MoveStep& m : reshard(c.from, c.to)) {
    const int last = static_cast<int>(body.versions.size()) - 1;
    body.versions.push_back({value, m.after});
    body.steps.push_back({.kind = StepKind::move,
                          .ins = {last},
                          .outs = {last + 1},
                          .what = m.what,
                          .atoms = m.atoms});
  }
  const int last = static_cast<int>(body.versions.size()) - 1;
  body.inputs = {0};
  body.outputs = {last};
  p.bodies.push_back(std::move(body));
  const int in = static_cast<int>(p.buffers.size());
  p.buffers.push_back({fmt::format("in{}", index), index, 0});
  p.buffers.push_back({fmt::format("out{}", index), index, last});
  p.actions[0].push_back({.act = Act::feed, .outs = {in}});
  p.actions[0].push_back({.act = Act::run, .body = index, .ins = {in}, .outs = {in + 1}});
}

std::vector<int> coordinates(const Mesh& mesh, AtomSet atoms, int rank) {
  std::vector<int> key;
  for (Atom a = 0; a < mesh.atoms(); ++a) {
    if (atoms >> a & 1) key.push_back(mesh.coordinate(rank, a));
  }
  return key;
}

// Small whole numbers, so that sums are exact in any order. Maxima are below zero.
double term(const Case& c, int index, const std::vector<int>& pending, int64_t element) {
  uint64_t h = static_cast<uint64_t>(index) * 1000003 + static_cast<uint64_t>(element);
  for (int k : pending) h = (h ^ static_cast<uint64_t>(k + 1)) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;
  return static_cast<double>(h % 41) - (c.max ? 100 : 20);
}

// f(local element, global element)
template <class F>
void for_each_element(const Tensor& t, const Sizes& sizes, const F& f) {
  for (int64_t i = 0; i < t.elements(); ++i) {
    int64_t global = 0, rest = i, below = t.elements();
    for (int d = 0; d < t.dims; ++d) {
      below /= t.size[d];
      global = global * sizes[static_cast<size_t>(d)] + t.lo[d] + rest / below;
      rest %= below;
    }
    f(i, global);
  }
}

double get(const Tensor& t, int64_t i) {
  return t.dtype == DType::f32 ? t.as<float>()[i] : t.as<double>()[i];
}

using Whole = std::map<int64_t, double>;  // by global element

void combine(const Case& c, Whole& whole, int64_t element, double x) {
  const auto [at, fresh] = whole.try_emplace(element, x);
  if (!fresh) at->second = c.max ? std::max(at->second, x) : at->second + x;
}

Whole expected(const Case& c, int index, const Mesh& mesh) {
  int64_t n = 1;
  for (int64_t s : c.sizes) n *= s;
  Whole whole;
  std::map<std::vector<int>, bool> seen;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const auto key = coordinates(mesh, c.from.pending, rank);
    if (!seen.emplace(key, true).second) continue;
    for (int64_t e = 0; e < n; ++e) combine(c, whole, e, term(c, index, key, e));
  }
  return whole;
}

// What the ranks hold of a case in the end.
struct Got {
  Whole whole;
  std::map<std::vector<int>, std::pair<int, std::vector<double>>>
      parts;  // by coordinates that tell parts apart: rank, data
  std::string wrong;

  void add(const Case& c, const Mesh& mesh, int rank, const Tensor& t) {
    std::vector<double> data;
    for (int64_t i = 0; i < t.elements(); ++i) data.push_back(get(t, i));
    const auto key = coordinates(mesh, static_cast<AtomSet>(c.to.pending | c.to.cut_atoms()), rank);
    const auto [at, fresh] = parts.try_emplace(key, rank, data);
    if (fresh) {
      for_each_element(t, c.sizes, [&](int64_t i, int64_t g) { combine(c, whole, g, get(t, i)); });
    } else if (at->second.second != data) {
      wrong = fmt::format("ranks {} and {} differ", at->second.first, rank);
    }
  }
};

struct World {
  Program program;
  std::vector<Case> cases;

  World(Random& random, int count) {
    program.mesh = random_mesh(random);
    program.actions.resize(1);
    while (static_cast<int>(cases.size()) < count) {
      Case c = random_case(random, program.mesh);
      if (c.from == c.to) continue;
      add_case(program, c, random() % 2 ? DType::f32 : DType::f64);
      cases.push_back(std::move(c));
    }
  }
};

// Moves in one step, or started and finished apart.
void run(World& world, unsigned seed) {
  if (seed % 2) split_moves(world.program);
  const Mesh& mesh = world.program.mesh;
  std::vector<MemoryPlan> memory;
  std::vector<int64_t> peaks;
  for (int r = 0; r < mesh.ranks(); ++r) {
    memory.push_back(plan_memory(world.program, r, {}));
    peaks.push_back(memory.back().peak_bytes);
  }
  Arenas arenas(peaks);
  Pool pool(1);
  Executor executor(world.program, memory, arenas, pool);
  std::vector<Got> got(world.cases.size());
  executor.set_tap([&](int rank, const Action& a, int, const Tensor& t) {
    got[static_cast<size_t>(a.body)].add(world.cases[static_cast<size_t>(a.body)], mesh, rank, t);
  });
  const Outcome outcome = executor.step([&](int rank, const Value& input, int, const Tensor& to) {
    const std::string& name = input.name;
    const int index = std::stoi(name.substr(1));
    const Case& c = world.cases[static_cast<size_t>(index)];
    const auto key = coordinates(mesh, c.from.pending, rank);
    for_each_element(to, c.sizes, [&](int64_t i, int64_t g) {
      const double x = term(c, index, key, g);
      to.dtype == DType::f32 ? to.as<float>()[i] = static_cast<float>(x) : to.as<double>()[i] = x;
    });
  });
  ASSERT_TRUE(outcome.ok()) << outcome.reason;
  for (size_t i = 0; i < world.cases.size(); ++i) {
    const Case& c = world.cases[i];
    const std::string labels = std::string("bsgh").substr(0, c.sizes.size());
    const std::string text = fmt::format("seed {} case {}: {} to {}", seed, i,
                                         show(c.from, labels, mesh), show(c.to, labels, mesh));
    EXPECT_EQ(got[i].wrong, "") << text;
    EXPECT_TRUE(got[i].whole == expected(c, static_cast<int>(i), mesh)) << text;
  }
  EXPECT_TRUE(executor.measured() == profile(world.program, memory)) << "seed " << seed;
}

TEST(ExecReshard, AnyLayoutToAnyOther) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    Random random(seed);
    World world(random, 30);
    run(world, seed);
  }
}

}  // namespace
}  // namespace myriad
