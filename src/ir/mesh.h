// The ranks as a grid of atoms, and where the parts of a cut dim lie.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/nodes.h"

namespace myriad {

using Atom = uint8_t;      // index into Mesh::atoms
using AtomSet = uint16_t;  // bit a: atom a
constexpr int kMaxAtoms = 16;
// Where nodes do not hold as many owners of experts each no atoms tell them apart; a mesh with
// such nodes has two more: on which node of its group an owner is, and which of the owners there.
constexpr Atom kNode = 14, kNear = 15;
constexpr AtomSet kOfNodes = 1u << kNode | 1u << kNear;

// Ordered list of atoms that cut one dim, major first. A plain value of eight bytes.
struct AtomList {
  uint8_t n = 0;
  std::array<Atom, 7> a{};

  AtomList() = default;
  AtomList(std::initializer_list<Atom> list);
  void push(Atom x);  // CHECKs room
  void truncate(int size);
  AtomList prefix(int size) const;
  AtomList suffix(int from) const;
  void append(AtomList other);
  AtomSet set() const;
  bool starts_with(AtomList p) const;
  const Atom* begin() const { return a.data(); }
  const Atom* end() const { return a.data() + n; }
  Atom operator[](int i) const { return a[i]; }
  bool empty() const { return n == 0; }
  auto operator<=>(const AtomList&) const = default;
};

struct Range {
  int64_t lo = 0, hi = 0;
  int64_t size() const { return hi - lo; }
  bool operator==(const Range&) const = default;
};

// Atoms major first; the last varies fastest with the rank number. Atoms of size 1 are known by
// name but vanish.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size;
    double price = 1;  // factor on bytes sent over it
    bool operator==(const Axis&) const = default;
  };
  // nodes: how uneven nodes part the ranks that share experts; none if it says no ranks_per_node.
  // Throws Error: size below 1, too many atoms, twice the same name.
  explicit Mesh(std::vector<Axis> axes = {}, OwnerNodes nodes = {});

  int ranks() const { return ranks_; }
  int atoms() const { return static_cast<int>(axes_.size()); }  // of size > 1, but kNode, kNear
  const Axis& axis(Atom a) const { return axes_[a]; }           // neither of those
  const OwnerNodes& nodes() const { return nodes_; }
  const std::vector<Axis>& declared() const { return declared_; }
  int find(std::string_view name) const;  // atom, or -1: unknown or of size 1
  bool knows(std::string_view name) const;
  AtomSet all() const { return static_cast<AtomSet>((1u << axes_.size()) - 1); }

  int coordinate(int rank, Atom a) const { return rank / stride_[a] % axes_[a].size; }  // of axes
  int stride(Atom a) const { return stride_[a]; }
  int64_t parts(AtomList list) const;  // kNode, kNear: on average
  int64_t parts(AtomSet set) const;
  // The cut rule: part i of n of a dim of size s is [i s / n, (i + 1) s / n). A cut by kNode, which
  // stands alone, gives what all owners on the node of `rank` have; one by kNear is into as many
  // parts as there are owners on that node.
  Range range(int64_t size, AtomList cut, int rank) const;
  // Ranks that differ from `rank` in these atoms only; order: the list's, first atom slowest.
  // {kNear}: those of the owners on its node.
  std::vector<int> group(AtomList atoms, int rank) const;
  double price(AtomList atoms) const;     // of the dearest; kNear: 1
  std::string show(AtomList list) const;  // "dp,tp"
  std::string show(AtomSet set) const;
  bool operator==(const Mesh&) const = default;

 private:
  int64_t parts(Atom a) const;

  std::vector<Axis> declared_, axes_;
  std::vector<int> stride_;
  OwnerNodes nodes_;
  int ranks_ = 1;
};

}  // namespace myriad
