#include "ir/mesh.h"

#include <algorithm>

#include "base/error.h"

namespace myriad {

AtomList::AtomList(std::initializer_list<Atom> list) {
  for (Atom x : list) push(x);
}

void AtomList::push(Atom x) {
  CHECK(n < a.size(), "more than {} atoms on one dim", a.size());
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

Mesh::Mesh(std::vector<Axis> axes) : declared_(std::move(axes)) {
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
  if (axes_.size() > kMaxAtoms) {
    throw Error(
        fmt::format("{} axes above size 1, at most {} are possible", axes_.size(), kMaxAtoms),
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
}

int Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool Mesh::knows(std::string_view name) const {
  return std::any_of(declared_.begin(), declared_.end(),
                     [&](const Axis& x) { return x.name == name; });
}

int64_t Mesh::parts(AtomList list) const {
  int64_t n = 1;
  for (Atom a : list) n *= axes_[a].size;
  return n;
}

int64_t Mesh::parts(AtomSet set) const {
  int64_t n = 1;
  for (int a = 0; a < atoms(); ++a) {
    if (set >> a & 1) n *= axes_[a].size;
  }
  return n;
}

Range Mesh::range(int64_t size, AtomList cut, int rank) const {
  int64_t i = 0, n = 1;
  for (Atom a : cut) {
    i = i * axes_[a].size + coordinate(rank, a);
    n *= axes_[a].size;
  }
  return {i * size / n, (i + 1) * size / n};
}

std::vector<int> Mesh::group(AtomList list, int rank) const {
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
  for (Atom a : list) p = std::max(p, axes_[a].price);
  return p;
}

std::string Mesh::show(AtomList list) const {
  std::string text;
  for (Atom a : list) text += (text.empty() ? "" : ",") + axes_[a].name;
  return text;
}

std::string Mesh::show(AtomSet set) const {
  AtomList list;
  for (int a = 0; a < atoms(); ++a) {
    if (set >> a & 1) list.push(static_cast<Atom>(a));
  }
  return show(list);
}

}  // namespace myriad
