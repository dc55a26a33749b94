// Copies and reductions of strided parts. Views of equal sizes are reduced to one common form: dims
// of size 1 vanish, dims that continue each other in every view are joined, and the last dim, if it
// is adjacent everywhere, becomes a run. What is left is a list of runs that all views walk
// together. Sums go block by block, so that the partial sums stay in the nearest cache; each
// element is still added in the order of the views, which fixes its bits. Read comm/boxes.h first.
#include "comm/boxes.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace myriad {

namespace {

// One row after the other, last dim fastest.
struct Walk {
  const Boxes* boxes;
  Boxes::Strides index{};

  int64_t offset(size_t view) const {
    int64_t elements = 0;
    for (int d = 0; d < boxes->dims; ++d) elements += index[d] * boxes->stride[view][d];
    return elements;
  }
  void next() {
    for (int d = boxes->dims - 1; d >= 0 && ++index[d] == boxes->size[d]; --d) index[d] = 0;
  }
};

constexpr int64_t kBlockBytes =
    4096;  // of partial sums: they and one source stay in the nearest cache

// Values of T are folded as S and stored as T again, rounded once.
template <class T, class S, class Fold, class Finish>
void reduce_as(const Boxes& boxes, S nothing, Fold fold, Finish finish) {
  constexpr int64_t kBlock = kBlockBytes / sizeof(S);
  S sums[kBlock];
  const int64_t width = std::min(boxes.run, kBlock),
                height = std::max<int64_t>(1, kBlock / boxes.run);
  const size_t views = boxes.data.size();
  Walk begin{&boxes}, walk = begin;
  for (int64_t row = 0; row < boxes.rows; row += height, begin = walk) {
    const int64_t rows = std::min(height, boxes.rows - row);
    for (int64_t column = 0; column < boxes.run; column += width) {
      const int64_t columns = std::min(width, boxes.run - column);
      const auto each_row = [&](size_t view, auto&& f) {
        walk = begin;
        S* block = sums;
        for (int64_t r = 0; r < rows; ++r, walk.next(), block += columns) {
          f(block, reinterpret_cast<T*>(boxes.data[view]) + walk.offset(view) + column);
        }
      };
      if (views == 1) std::fill_n(sums, rows * columns, nothing);
      for (size_t view = 1; view < views; ++view) {
        each_row(view, [&](S* __restrict sum, const T* __restrict part) {
          if (view == 1) {
            std::copy_n(part, columns, sum);
          } else {
            for (int64_t i = 0; i < columns; ++i) fold(sum[i], part[i]);
          }
        });
      }
      each_row(0, [&](S* __restrict sum, T* __restrict out) {
        for (int64_t i = 0; i < columns; ++i) finish(sum[i]);
        std::transform(sum, sum + columns, out, [](const S& x) { return static_cast<T>(x); });
      });
    }
  }
}

constexpr auto kNoFinish = [](auto&) {};

template <class T, class S = T>
void sum_as(const Boxes& boxes) {
  reduce_as<T, S>(
      boxes, S{0}, [](S& sum, const S& x) { sum += x; }, kNoFinish);
}

template <class T, class S = T>
void max_as(const Boxes& boxes) {
  using Limits = std::numeric_limits<S>;
  const S least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  reduce_as<T, S>(
      boxes, least, [](S& most, const S& x) { most = std::max(most, x); }, kNoFinish);
}

void sum_exactly(const Boxes& boxes) {
  reduce_as<ExactSum, ExactSum>(
      boxes, ExactSum{}, [](ExactSum& sum, const ExactSum& x) { sum.add(x); },
      [](ExactSum& sum) { sum.normalise(); });
}

}  // namespace

Boxes::Boxes(const std::vector<View>& views) : stride(views.size()) {
  // Canonical dims first: those of size 1 dropped, each that continues the one before in all views
  // joined to it.
  std::vector<Strides> all(views.size());
  for (size_t v = 0; v < views.size(); ++v) {
    data.push_back(views[v].data);
    for (int d = 0, to = 0; d < views[v].dims; ++d) {
      if (views[v].size[d] != 1) all[v][to++] = views[v].stride[d];
    }
  }
  int kept = 0;
  for (int d = 0; d < views[0].dims; ++d) {
    const int64_t n = views[0].size[d];
    if (n == 1) continue;
    bool joins = dims > 0;
    for (size_t v = 0; v < views.size() && joins; ++v) {
      joins = stride[v][dims - 1] == all[v][kept] * n;
    }
    dims += !joins;
    size[dims - 1] = joins ? size[dims - 1] * n : n;
    for (size_t v = 0; v < views.size(); ++v) stride[v][dims - 1] = all[v][kept];
    ++kept;
  }
  const auto adjacent = [&](const Strides& s) { return s[dims - 1] == 1; };
  if (dims > 0 && std::all_of(stride.begin(), stride.end(), adjacent)) run = size[--dims];
  for (int d = 0; d < dims; ++d) rows *= size[d];
  if (run == 0) rows = 0;
}

void copy(const Boxes& boxes, DType dtype) {
  if (boxes.data[0] == boxes.data[1] && boxes.stride[0] == boxes.stride[1]) return;  // in place
  const auto bytes = static_cast<int64_t>(size_of(dtype));
  Walk walk{&boxes};
  for (int64_t row = 0; row < boxes.rows; ++row, walk.next()) {
    std::memcpy(boxes.data[0] + walk.offset(0) * bytes, boxes.data[1] + walk.offset(1) * bytes,
                static_cast<size_t>(boxes.run * bytes));
  }
}

void reduce(const Boxes& boxes, DType dtype, Reduction reduction) {
  const bool sum = reduction == Reduction::sum;
  if (boxes.rows == 0) return;
  switch (dtype) {
    case DType::f32:
      return sum ? sum_as<float>(boxes) : max_as<float>(boxes);
    case DType::f64:
      return sum ? sum_as<double>(boxes) : max_as<double>(boxes);
    case DType::bf16:
      return sum ? sum_as<Bf16, float>(boxes) : max_as<Bf16, float>(boxes);
    case DType::i32:
      return sum ? sum_as<uint32_t>(boxes) : max_as<int32_t>(boxes);  // sums wrap
    case DType::exact:
      return sum_exactly(boxes);
  }
}

}  // namespace myriad
