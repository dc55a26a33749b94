// How a value lies on a mesh, and the steps from one layout to another.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/mesh.h"

namespace myriad {

constexpr int kMaxLayoutDims = 6;

// A value is sharded over the atoms that cut its dims, partial over the atoms in `pending` (it is
// still the sum, or the maximum, of what its ranks hold) and replicated over all others.
struct Layout {
  std::array<AtomList, kMaxLayoutDims> cuts{};
  AtomSet pending = 0;
  uint8_t dims = 0;
  bool max = false;  // pending maximum, else sum; false when nothing is pending

  explicit Layout(int dims = 0) : dims(static_cast<uint8_t>(dims)) {}
  AtomSet cut_atoms() const;
  auto operator<=>(const Layout&) const = default;
};

struct LayoutHash {
  size_t operator()(const Layout& l) const;
};

enum class MoveKind : uint8_t { slice, first, reduce_scatter, all_to_all, all_reduce, all_gather };
constexpr int kMoveKinds = 6;
const char* name_of(MoveKind kind);
constexpr bool sends(MoveKind k) { return k != MoveKind::slice && k != MoveKind::first; }

// One step of a reshard. slice: each rank keeps its own part. first: a replicated value becomes
// partial, because every rank but that at coordinate 0 sets it to zero. The others are collectives
// over the groups of `atoms`.
struct MoveStep {
  MoveKind what;
  AtomList atoms;
  Layout after;
};

// Plans a reshard by repeating the first rule that applies, in this order: slice, reduce_scatter,
// all_to_all, all_reduce, all_gather, first. It CHECKs that the result is `to`. Where that sends
// everything to its place at once, one all_to_all moves the last atoms of several dims. A
// reduce_scatter also reduces the partial atoms that are to be replicated, and they are gathered
// afterwards; then one sum runs over all of these atoms in the order of the mesh, as in an
// all_reduce, and ZeRO does not change a bit.
std::vector<MoveStep> reshard(const Layout& from, const Layout& to);

// Elements a rank sends on average in one step, at even sizes.
double elements_sent(const Mesh& mesh, const MoveStep& step, const Layout& before,
                     std::span<const int64_t> sizes);

Range local_range(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes, int dim,
                  int rank);
int64_t local_elements(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes,
                       int rank);
double average_elements(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes);

// "b:dp g:tg sum:tr"; a value that is replicated over all atoms is "whole".
std::string show(const Layout& layout, std::string_view labels, const Mesh& mesh);
Layout parse_layout(std::string_view text, std::string_view labels,
                    const Mesh& mesh);  // throws Error

}  // namespace myriad
