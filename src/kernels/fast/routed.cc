// Ops between tokens "bs..." and routed rows "ebs...": dispatch copies whole rows, combine adds the
// rows of a token. Read kernels/rows.h first.
#include <algorithm>
#include <cstring>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/floats.h"
#include "kernels/rows.h"

namespace myriad::fast {

namespace {

int64_t most_rows(const LabelSizes& local) {
  return local.at('b') * local.at('s') * std::min(local.at('e'), local.at('j'));
}

// Sums the rows that [lo, hi) lists, n elements of each from `column` on, in the order of the list,
// and stores the sum in `to`; zeros if the list is empty.
void sum_rows(const Tensor& x, int64_t width, int64_t column, const int32_t* lo, const int32_t* hi,
              float* to, int64_t n) {
  constexpr int kMost = 8;
  float buffers[kMost][kChunk];
  const float* terms[kMost + 1];
  if (lo == hi) std::fill_n(to, n, 0.0f);
  for (bool first = true; lo != hi; first = false) {
    int k = 0;
    if (!first) terms[k++] = to;
    for (int b = 0; b < kMost && lo != hi; ++b)
      terms[k++] = load_row(x, *lo++ * width + column, n, buffers[b]);
    vec::add_row(terms, k, to, n);
  }
}

}  // namespace

void dispatch(const KernelCall& call) {
  begin_f32_or_bf16(call);
  const TokensOfRows token(call, call.ins[0]);
  const size_t width = static_cast<size_t>(token.width) * size_of(call.ins[0].dtype);
  parallel_blocks(call.pool, call.rows->n, token.width, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      std::memcpy(call.outs[0].data + static_cast<size_t>(i) * width,
                  call.ins[0].data + static_cast<size_t>(token(i)) * width, width);
    }
  });
}

// Holds for each token of the rows' box where its rows end in a list, and then the list itself, in
// which the rows of a token are in the order of e.
size_t combine_scratch(const Op&, const LabelSizes& local, DType) {
  return sizeof(int32_t) *
         static_cast<size_t>(local.at('b') * local.at('s') + 1 + most_rows(local));
}

// The rows are sorted by token (a counting sort, which keeps the order of e), then every token sums
// its own. The output may cover more tokens than the rows' box: those get zeros.
void combine(const KernelCall& call) {
  begin_f32_or_bf16(call);
  const Tensor& y = call.outs[0];
  const int64_t positions = call.s.size(), tokens = call.b.size() * positions;
  CHECK(tokens <= call.local.at('b') * call.local.at('s') &&
            call.rows->n <= most_rows(call.local) && call.rows->n <= INT32_MAX,
        "{} rows for {} tokens", call.rows->n, tokens);
  const int64_t width = TokensOfRows(call, y).width;
  const auto token = [&](int64_t i) { return call.rows->b[i] * positions + call.rows->s[i]; };
  int32_t* end = reinterpret_cast<int32_t*>(call.scratch);
  int32_t* list = end + tokens + 1;
  std::fill_n(end, tokens + 1, 0);
  for (int64_t i = 0; i < call.rows->n; ++i) ++end[token(i) + 1];
  for (int64_t t = 1; t <= tokens; ++t) end[t] += end[t - 1];
  // end[t] moves from the begin of token t's rows to their end, which is where those of t + 1
  // begin.
  for (int64_t i = 0; i < call.rows->n; ++i) list[end[token(i)]++] = static_cast<int32_t>(i);
  const int64_t first_b = call.b.lo - y.lo[0], first_s = call.s.lo - y.lo[1];
  parallel_blocks(call.pool, y.size[0] * y.size[1], width, [&](int64_t lo, int64_t hi) {
    float made[kChunk];
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t b = i / y.size[1] - first_b, s = i % y.size[1] - first_s;
      const bool inside = b >= 0 && b < call.b.size() && s >= 0 && s < positions;
      const int64_t t = inside ? b * positions + s : 0;
      const int32_t *from = list + (t == 0 ? 0 : end[t - 1]), *to = inside ? list + end[t] : from;
      in_chunks(0, width, [&](int64_t column, int64_t n) {
        const int64_t at = i * width + column;
        sum_rows(call.ins[0], width, column, from, to, target_row(y, at, made), n);
        finish_row(y, at, n, made);
      });
    }
  });
}

}  // namespace myriad::fast
