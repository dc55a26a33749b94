// What holds of transfers whatever carries them: each description is checked by itself, then those
// of a group's members against each other, and the bytes that a rank sends are counted from the
// views alone. A communicator calls these and only moves the bytes. Read comm/communicator.h first.
#include "comm/transfers.h"

#include <algorithm>

#include "ir/local.h"

namespace myriad {

namespace {

std::string title(const Transfer& t) {
  return fmt::format("{} of group {}", name_of(t.kind), text_of(t.group));
}

// Not fmt::join: gcc 12 warns inside it.
template <class T>
std::string joined(std::span<const T> list) {
  std::string text;
  for (const T& x : list) text += fmt::format("{}{}", text.empty() ? "" : ",", x);
  return text;
}

bool reduces(CommKind kind) {
  return kind == CommKind::reduce_scatter || kind == CommKind::all_reduce;
}

bool same_sizes(const View& a, const View& b) {
  if (a.absent() || b.absent()) return a.absent() && b.absent();
  const auto next = [](const View& v,
                       int& d) {  // size of the next dim that is not 1; -1 at the end
    while (d < v.dims && v.size[d] == 1) ++d;
    return d < v.dims ? v.size[d++] : -1;
  };
  for (int i = 0, j = 0;;) {
    const int64_t m = next(a, i), n = next(b, j);
    if (m != n) return false;
    if (m < 0) return true;
  }
}

bool same_box(const View& a, const View& b) {
  return a.data == b.data && a.dims == b.dims && std::equal(a.size, a.size + a.dims, b.size) &&
         std::equal(a.stride, a.stride + a.dims, b.stride);
}

bool is_flat(const View& v) {
  int64_t expected = 1;
  if (v.elements() == 0) return true;
  for (int d = v.dims - 1; d >= 0; --d) {
    if (v.size[d] != 1 && v.stride[d] != expected) return false;
    expected *= v.size[d];
  }
  return true;
}

void check_view(const Transfer& t, const std::string& where, const View& v) {
  if (v.dims < 0 || v.dims > 8) {
    throw Error(fmt::format("{}: a view has {} dims, at most 8 are allowed", title(t), v.dims),
                where);
  }
  if (std::any_of(v.size, v.size + v.dims, [](int64_t n) { return n < 0; })) {
    throw Error(fmt::format("{}: a view has sizes {}", title(t), sizes_of(v)), where);
  }
  if (v.data == nullptr && !v.absent() && v.elements() > 0) {
    throw Error(fmt::format("{}: a part of sizes {} has no memory", title(t), sizes_of(v)), where);
  }
}

void check_reduction(const Transfer& t, const std::string& where) {
  if (reduces(t.kind) != (t.reduction != Reduction::none)) {
    throw Error(
        fmt::format("{}: only reduce_scatter and all_reduce reduce, and they say how", title(t)),
        where);
  }
  if (t.dtype == DType::exact && t.reduction == Reduction::max) {
    throw Error(fmt::format("{}: exact values have no maximum", title(t)), where);
  }
  if (t.kind == CommKind::all_reduce) {
    const View &send = t.send[0], &recv = t.recv[0];
    if (send.absent() || !same_sizes(send, recv) || !is_flat(send) || !is_flat(recv)) {
      throw Error(fmt::format("{}: send {} and recv {} are not one flat view each, of one size",
                              title(t), sizes_of(send), sizes_of(recv)),
                  where);
    }
  } else if (reduces(t.kind)) {
    const View* first = nullptr;
    for (const View& v : t.recv) {
      if (v.absent()) continue;
      if (first == nullptr) first = &v;
      if (!same_box(*first, v)) {
        throw Error(fmt::format("{}: parts to be added go to different boxes", title(t)), where);
      }
    }
  }
}

}  // namespace

std::string sizes_of(const View& view) {
  if (view.absent()) return "absent";
  return fmt::format("[{}]", joined(std::span(view.size).first(std::clamp(view.dims, 0, 8))));
}

std::string text_of(std::span<const int> group) { return fmt::format("{{{}}}", joined(group)); }

Transfer checked(int rank, int ranks, Transfer t) {
  const std::string where = fmt::format("rank {}", rank);
  const size_t n = t.group.size();
  std::vector<int> sorted = t.group;
  std::sort(sorted.begin(), sorted.end());
  if (n == 0 || sorted.front() < 0 || sorted.back() >= ranks ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    throw Error(fmt::format("{}: members must be distinct ranks in [0, {})", title(t), ranks),
                where);
  }
  if (t.me < 0 || static_cast<size_t>(t.me) >= n || t.group[t.me] != rank) {
    throw Error(fmt::format("{}: member {} is not rank {}", title(t), t.me, rank), where);
  }
  if (t.send.size() > n || t.recv.size() > n) {
    throw Error(fmt::format("{}: {} parts to send and {} to receive for {} members", title(t),
                            t.send.size(), t.recv.size(), n),
                where);
  }
  t.send.resize(n);
  t.recv.resize(n);
  for (const auto* views : {&t.send, &t.recv}) {
    for (const View& v : *views) check_view(t, where, v);
  }
  if (t.kind == CommKind::send) {
    if (n != 2)
      throw Error(fmt::format("{}: a send has a source and a destination", title(t)), where);
    if ((t.me == 0 ? t.send[1] : t.recv[0]).absent()) {
      throw Error(fmt::format("{}: its part is absent", title(t)), where);
    }
  }
  check_reduction(t, where);
  return t;
}

void check_agreement(int order, std::span<const Transfer* const> members) {
  const Transfer& first = *members[0];
  const auto fail = [&](const std::string& what) {
    throw Error(fmt::format("transfer #{} of group {}: {}", order, text_of(first.group), what));
  };
  for (const Transfer* t : members) {
    if (t->kind == first.kind && t->dtype == first.dtype && t->reduction == first.reduction)
      continue;
    const auto text = [](const Transfer& x) {
      const char* reduction[] = {"", " sum", " max"};
      return fmt::format("rank {} has {} {}{}", x.group[x.me], name_of(x.kind), name_of(x.dtype),
                         reduction[static_cast<int>(x.reduction)]);
    };
    fail(text(first) + ", " + text(*t));
  }
  const auto compare = [&](const Transfer& from, const View& send, const Transfer& to,
                           const View& recv) {
    if (same_sizes(send, recv)) return;
    fail(fmt::format("{} {}: rank {} sends {} to rank {}, which takes {}", name_of(first.kind),
                     name_of(first.dtype), from.group[from.me], sizes_of(send), to.group[to.me],
                     sizes_of(recv)));
  };
  const size_t n = members.size();
  if (first.kind == CommKind::send) {
    compare(first, first.send[1], *members[1], members[1]->recv[0]);
  } else if (first.kind == CommKind::all_reduce) {
    for (const Transfer* t : members) compare(first, first.send[0], *t, t->recv[0]);
  } else {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        compare(*members[i], members[i]->send[j], *members[j], members[j]->recv[i]);
      }
    }
  }
}

View part_of(const View& flat, DType dtype, int i, int n) {
  const int64_t elements = flat.elements(), begin = elements * i / n, end = elements * (i + 1) / n;
  View part{.data = flat.data, .dims = 1, .size = {end - begin}, .stride = {1}};
  if (part.data != nullptr) part.data += begin * static_cast<int64_t>(size_of(dtype));
  return part;
}

bool has_rows(const Transfer& t) {
  return std::any_of(t.send.begin(), t.send.end(), [](const View& v) { return v.rows != nullptr; });
}

namespace {

// With rows as their list stands.
int64_t elements_of(const View& v) {
  if (v.rows == nullptr) return v.elements();
  int64_t width = 1;
  for (int d = 1; d < v.dims; ++d) width *= v.size[d];
  return v.rows->n * width;
}

// The same for part i of n, as an all_reduce cuts it.
int64_t elements_of_part(const View& v, DType dtype, int i, int n) {
  if (v.rows == nullptr) return part_of(v, dtype, i, n).elements();
  const int64_t rows = v.rows->n;
  return rows == 0 ? 0 : elements_of(v) / rows * (rows * (i + 1) / n - rows * i / n);
}

}  // namespace

Traffic sent_by(const Transfer& t, int ranks_per_node) {
  Traffic traffic;
  const int kind = static_cast<int>(t.kind), n = static_cast<int>(t.group.size());
  const auto node = [&](int member) { return node_of_rank(t.group[member], ranks_per_node); };
  const auto count = [&](int to, int64_t elements) {
    const int64_t bytes = elements * static_cast<int64_t>(size_of(t.dtype));
    traffic.bytes[kind] += bytes;
    ++traffic.messages[kind];
    if (node(to) == node(t.me)) return;
    traffic.between_nodes_bytes[kind] += bytes;
    if (t.row_elements > 0) traffic.between_nodes_rows[kind] += elements / t.row_elements;
  };
  for (int j = 0; j < n; ++j) {
    if (j == t.me || (t.kind == CommKind::send && t.me == 1)) continue;
    if (t.kind == CommKind::all_reduce) {
      count(j, elements_of_part(t.send[0], t.dtype, j, n));     // to be added there
      count(j, elements_of_part(t.recv[0], t.dtype, t.me, n));  // the sum
    } else if (!t.send[j].absent()) {
      count(j, elements_of(t.send[j]));
    }
  }
  return traffic;
}

}  // namespace myriad
