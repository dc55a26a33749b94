// The grid of ranks: coordinates, groups of ranks that differ in some atoms only, and the cut rule.
//
// A rank's number is a number in mixed radix whose digits are its coordinates, so an atom is a
// stride and a size, and most questions are a division and a remainder. The exceptions are the two
// atoms of uneven nodes (kNode, kNear), which have no stride; OwnerNodes answers for them. Read
// ir/mesh.h first.
#include "ir/mesh.h"

#include <algorithm>

#include "base/error.h"

namespace myriad {

AtomList::AtomList(std::initializer_list<Atom> list) {
  for (Atom x : list) push(x);
}

void AtomList::push(Atom x) {
  CHECK(n < kMost, "a list of more than {} atoms", kMost);
  a[n++] = x;
}

void AtomList::truncate(int size) {
  while (n > size) a[--n] = 0;  // unused places stay zero: lists compare as bytes
}

AtomList AtomList::prefix(int size) const {
  AtomList p = *this;
  p.truncate(size);
  return p;
}

AtomList AtomList::suffix(int from) const {
  AtomList s;
  for (int i = from; i < n; ++i) s.push(a[i]);
  return s;
}

void AtomList::append(AtomList other) {
  for (Atom x : other) push(x);
}

AtomSet AtomList::set() const {
  AtomSet s = 0;
  for (Atom x : *this) s = static_cast<AtomSet>(s | 1u << x);
  return s;
}

bool AtomList::starts_with(AtomList p) const {
  return p.n <= n && std::equal(p.begin(), p.end(), begin());
}

namespace {

constexpr const char* kNodeName = "node";
constexpr const char* kNearName = "near";

}  // namespace

Mesh::Mesh(std::vector<Axis> axes, OwnerNodes nodes) : declared_(std::move(axes)), nodes_(nodes) {
  for (size_t i = 0; i < declared_.size(); ++i) {
    const Axis& x = declared_[i];
    if (x.size < 1) {
      throw Error(fmt::format("axis {} has size {}", x.name, x.size), "mesh",
                  "a size of 1 or more");
    }
    for (size_t j = 0; j < i; ++j) {
      if (declared_[j].name == x.name)
        throw Error(fmt::format("axis {} stands there twice", x.name), "mesh");
    }
    if (x.size > 1) axes_.push_back(x);
  }
  if (axes_.size() > kNode) {
    throw Error(fmt::format("{} axes above size 1, at most {} are possible", axes_.size(), kNode),
                "mesh");
  }
  stride_.resize(axes_.size());
  int64_t stride = 1;
  for (size_t i = axes_.size(); i-- > 0;) {
    stride_[i] = static_cast<int>(stride);
    stride *= axes_[i].size;
    if (stride > (1 << 30)) throw Error("more than 2^30 ranks", "mesh");
  }
  ranks_ = static_cast<int>(stride);
  if (nodes_.ranks_per_node == 0) return;
  if (nodes_.owners < 1 || nodes_.inner < 1 || ranks_ % (nodes_.owners * nodes_.inner) != 0) {
    throw Error(fmt::format("{} x {} ranks that share experts do not divide {} ranks",
                            nodes_.owners, nodes_.inner, ranks_),
                "mesh");
  }
}

int Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return static_cast<int>(i);
  }
  if (nodes_.ranks_per_node > 0 && name == kNodeName) return kNode;
  if (nodes_.ranks_per_node > 0 && name == kNearName) return kNear;
  return -1;
}

bool Mesh::knows(std::string_view name) const {
  return std::any_of(declared_.begin(), declared_.end(),
                     [&](const Axis& x) { return x.name == name; });
}

int64_t Mesh::parts(Atom a) const {
  if (a < kNode) return axes_[a].size;
  const int64_t ranks = nodes_.owners * nodes_.inner, per = nodes_.ranks_per_node,
                nodes = std::min(nodes_.owners, (ranks + per - 1) / per);
  return a == kNode ? nodes : (nodes_.owners + nodes - 1) / nodes;
}

int64_t Mesh::parts(AtomList list) const {
  int64_t n = 1;
  for (Atom a : list) n *= parts(a);
  return n;
}

int64_t Mesh::parts(AtomSet set) const {
  int64_t n = 1;
  for (Atom a = 0; a < kMaxAtoms; ++a) {
    if (set >> a & 1) n *= parts(a);
  }
  return n;
}

Range Mesh::range(int64_t size, AtomList cut, int rank) const {
  int64_t i = 0, n = 1;
  for (Atom a : cut) {
    if (a >= kNode) {
      const OwnerNodes group = nodes_.around(rank);
      const int64_t owner = group.owner_of_rank(rank), node = group.node_of(owner),
                    lo = group.first_owner(node), hi = group.first_owner(node + 1);
      if (a == kNode) {
        CHECK(cut.n == 1, "a cut by nodes and {} more", cut.n - 1);
        return {lo * size / group.owners, hi * size / group.owners};
      }
      i = i * (hi - lo) + owner - lo;
      n *= hi - lo;
      continue;
    }
    i = i * axes_[a].size + coordinate(rank, a);
    n *= axes_[a].size;
  }
  return {i * size / n, (i + 1) * size / n};
}

std::vector<int> Mesh::group(AtomList list, int rank) const {
  if (list == AtomList{kNear}) {
    const OwnerNodes group = nodes_.around(rank);
    const int64_t owner = group.owner_of_rank(rank), node = group.node_of(owner);
    std::vector<int> ranks;
    for (int64_t p = group.first_owner(node); p < group.first_owner(node + 1); ++p)
      ranks.push_back(static_cast<int>(rank + (p - owner) * group.inner));
    return ranks;
  }
  int base = rank;
  for (Atom a : list) base -= coordinate(rank, a) * stride_[a];
  std::vector<int> ranks = {base};
  for (Atom a : list) {
    std::vector<int> next;
    next.reserve(ranks.size() * axes_[a].size);
    for (int r : ranks) {
      for (int i = 0; i < axes_[a].size; ++i) next.push_back(r + i * stride_[a]);
    }
    ranks = std::move(next);
  }
  return ranks;
}

double Mesh::price(AtomList list) const {
  double p = 0;
  for (Atom a : list) p = std::max(p, a < kNode ? axes_[a].price : 1);
  return p;
}

std::string Mesh::show(AtomList list) const {
  std::string text;
  for (Atom a : list) {
    text += text.empty() ? "" : ",";
    text += a < kNode ? axes_[a].name : a == kNode ? kNodeName : kNearName;
  }
  return text;
}

std::string Mesh::show(AtomSet set) const {
  AtomList list;
  for (Atom a = 0; a < kMaxAtoms; ++a) {
    if (set >> a & 1) list.push(a);
  }
  return show(list);
}

}  // namespace myriad
