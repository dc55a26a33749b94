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
// If nodes do not all hold equally many owners of experts (ir/nodes.h), no atom says on which node
// an owner is. A mesh with such nodes has two more atoms: kNode is the node of its group that an
// owner is on, and kNear says which of the owners on that node it is.
constexpr Atom kNode = 14, kNear = 15;
constexpr AtomSet kOfNodes = 1u << kNode | 1u << kNear;

// The atoms that cut one dim, in order: the first varies slowest over the dim. A plain value of
// eight bytes.
struct AtomList {
  static constexpr int kMost = 7;
  uint8_t n = 0;
  std::array<Atom, kMost> a{};

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

// The grid of ranks. Of its axes the last varies fastest with the rank number. An axis of size 1 is
// known by name, but it is no atom.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size;
    double price = 1;  // factor on bytes sent over it
    bool operator==(const Axis&) const = default;
  };
  // `nodes` says how uneven nodes divide the ranks that share experts; without ranks_per_node there
  // are none. Throws Error for a size below 1, too many atoms, or the same name twice.
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
  // The cut rule: part i of n of a dim of size s is [i s / n, (i + 1) s / n). A cut by kNode must
  // be the only one of its dim; it gives `rank` the parts of all owners on its node. A cut by kNear
  // is into as many parts as there are owners on that node.
  Range range(int64_t size, AtomList cut, int rank) const;
  // The ranks that differ from `rank` in these atoms only, with the first atom of the list varying
  // slowest. For {kNear}: the corresponding ranks of the owners on its node.
  std::vector<int> group(AtomList atoms, int rank) const;
  double price(AtomList atoms) const;     // the highest of their prices; kNear has 1
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
