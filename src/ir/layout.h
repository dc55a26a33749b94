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

// For each dim the atoms that cut it; `pending`: atoms over which the value is still a sum (or
// maximum) of what its ranks hold; whole over all others.
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

// One step of a reshard. slice: take my part. first: whole becomes pending by zeroing all but
// coordinate 0. The others are collectives over the group of `atoms`.
struct MoveStep {
  MoveKind what;
  AtomList atoms;
  Layout after;
};

// Repeats the first rule that applies: slice, reduce_scatter, all_to_all, all_reduce, all_gather,
// first. An all_to_all takes the tails of several dims, or serves several, where so all that moves
// goes straight to where it is wanted. CHECKs that it arrives. A reduce_scatter also takes the
// pending atoms that end in a whole value, which is gathered again: one sum over all of them in
// mesh order, as an all_reduce makes it. So ZeRO does not change bits.
std::vector<MoveStep> reshard(const Layout& from, const Layout& to);

// Elements a rank sends on average in one step, at even sizes.
double elements_sent(const Mesh& mesh, const MoveStep& step, const Layout& before,
                     std::span<const int64_t> sizes);

Range local_range(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes, int dim,
                  int rank);
int64_t local_elements(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes,
                       int rank);
double average_elements(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes);

// "b:dp g:tg sum:tr"; "whole" where there is nothing to say.
std::string show(const Layout& layout, std::string_view labels, const Mesh& mesh);
Layout parse_layout(std::string_view text, std::string_view labels,
                    const Mesh& mesh);  // throws Error

}  // namespace myriad
