// Whole tensors and the parts of them that ranks hold. `set_state` gives every rank its part of a
// whole; `get_state` and `Collected` put a whole together again, for checks and for files that know
// no layout.
//
// The coordinates of a rank along the atoms that cut the value or over which it is partial say
// which part the rank holds. The first rank with given coordinates contributes; every later one has
// a copy, which must be equal to the bit, so that replicas that drift apart are found here. Parts
// that overlap are partial sums (or maxima), and they are combined in the order of ranks, so the
// result is always the same. Read `assemble` first.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "base/error.h"
#include "kernels/element.h"
#include "machine/exec.h"
#include "machine/exec_tensor.h"

namespace myriad {

namespace {

// Calls f(local element, global element) for all elements of a local part, row-major.
template <class F>
void for_each_element(const Tensor& t, const Sizes& sizes, const F& f) {
  const int64_t n = t.elements();
  std::vector<int64_t> at(static_cast<size_t>(t.dims), 0);
  for (int64_t i = 0; i < n; ++i) {
    int64_t global = 0;
    for (int d = 0; d < t.dims; ++d) global = global * sizes[d] + t.lo[d] + at[d];
    f(i, global);
    for (int d = t.dims - 1; d >= 0 && ++at[d] == t.size[d]; --d) at[d] = 0;
  }
}

}  // namespace

void set_state(Executor& executor, int index, const std::function<double(int64_t)>& value) {
  const Program& p = executor.program();
  const State& s = p.states[index];
  const Sizes& sizes = (*p.bodies[s.body].graph)[p.bodies[s.body].states[s.use].value].sizes;
  for (int r = 0; r < p.mesh.ranks(); ++r) {
    const Tensor t = executor.state(r, index);
    if (!t.data) continue;
    for_each_element(t, sizes, [&](int64_t i, int64_t global) {
      if (t.dtype == DType::f32) {
        t.as<float>()[i] = static_cast<float>(value(global));
      } else if (t.dtype == DType::f64) {
        t.as<double>()[i] = value(global);
      } else {
        CHECK(false, "state {} is {}", s.name, name_of(t.dtype));
      }
    });
  }
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

Collected::Collected(const Program& program, int buffer)
    : program_(program),
      sizes_(program.value(program.buffers[buffer]).sizes),
      layout_(program.layout(program.buffers[buffer])) {}

void Collected::add(int rank, const Tensor& part) {
  Part p{rank, {}};
  p.data.resize(static_cast<size_t>(part.elements()));
  for (size_t i = 0; i < p.data.size(); ++i) p.data[i] = element(part, static_cast<int64_t>(i));
  parts_.push_back(std::move(p));
}

namespace {

struct PartView {
  int rank;
  const std::vector<double>* data;
  Tensor where;  // sizes and lo
};

// The whole from its parts. Partial sums are added in the order of ranks; copies of one part must
// be equal to the bit.
std::vector<double> assemble(const Mesh& mesh, const std::string& name, const Sizes& sizes,
                             const Layout& layout, std::vector<PartView> parts) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  std::vector<double> whole(static_cast<size_t>(n),
                            layout.max ? -std::numeric_limits<double>::infinity() : 0.0);
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  const AtomSet distinct = static_cast<AtomSet>(layout.cut_atoms() | layout.pending);
  std::map<std::vector<int>, const PartView*> seen;
  for (const PartView& p : parts) {
    std::vector<int> key;
    for (Atom a = 0; a < mesh.atoms(); ++a) {
      if (distinct >> a & 1) key.push_back(mesh.coordinate(p.rank, a));
    }
    const auto [at, fresh] = seen.try_emplace(key, &p);
    if (!fresh) {
      if (!same_bits(*at->second->data, *p.data)) {
        throw Failure(fmt::format("copies of {} differ between ranks {} and {}", name,
                                  at->second->rank, p.rank));
      }
      continue;
    }
    for_each_element(p.where, sizes, [&](int64_t i, int64_t g) {
      double& w = whole[static_cast<size_t>(g)];
      w = layout.max ? std::max(w, (*p.data)[static_cast<size_t>(i)])
                     : w + (*p.data)[static_cast<size_t>(i)];
    });
  }
  return whole;
}

}  // namespace

std::vector<double> Collected::whole(const std::string& name) const {
  std::vector<PartView> views;
  for (const Part& p : parts_)
    views.push_back({p.rank, &p.data, local_tensor(program_.mesh, sizes_, layout_, p.rank)});
  return assemble(program_.mesh, name, sizes_, layout_, std::move(views));
}

std::vector<double> get_state(const Executor& executor, int index) {
  const Program& p = executor.program();
  const State& s = p.states[index];
  const StateUse& use = p.bodies[s.body].states[s.use];
  const Sizes& sizes = (*p.bodies[s.body].graph)[use.value].sizes;
  std::vector<std::vector<double>> data;
  std::vector<int> ranks;
  for (int r = 0; r < p.mesh.ranks(); ++r) {
    const Tensor t = executor.state(r, index);
    if (!t.data) continue;
    std::vector<double> x(static_cast<size_t>(t.elements()));
    for (size_t i = 0; i < x.size(); ++i) x[i] = element(t, static_cast<int64_t>(i));
    data.push_back(std::move(x));
    ranks.push_back(r);
  }
  std::vector<PartView> views;
  for (size_t i = 0; i < ranks.size(); ++i)
    views.push_back({ranks[i], &data[i], local_tensor(p.mesh, sizes, use.layout, ranks[i])});
  return assemble(p.mesh, show(s.name), sizes, use.layout, std::move(views));
}

}  // namespace myriad
