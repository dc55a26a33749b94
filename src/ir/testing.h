// Random layouts for tests.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "ir/layout.h"

namespace myriad {

using Random = std::mt19937;

inline int below(Random& random, int n) {
  return static_cast<int>(random() % static_cast<unsigned>(n));
}

// Each atom cuts some dim, is pending, or neither.
inline Layout random_layout(Random& random, const Mesh& mesh, int dims, AtomSet may_be_pending,
                            bool max) {
  Layout layout(dims);
  std::vector<Atom> atoms;
  for (int a = 0; a < mesh.atoms(); ++a) atoms.push_back(static_cast<Atom>(a));
  std::shuffle(atoms.begin(), atoms.end(), random);
  for (Atom a : atoms) {
    const int what = below(random, 4);
    if (what < 2 && dims > 0) {
      layout.cuts[static_cast<size_t>(below(random, dims))].push(a);
    } else if (what == 2 && (may_be_pending >> a & 1)) {
      layout.pending = static_cast<AtomSet>(layout.pending | 1u << a);
    }
  }
  layout.max = max && layout.pending;
  return layout;
}

}  // namespace myriad
