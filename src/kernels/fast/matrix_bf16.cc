// Products of bf16 by oneDNN. A primitive of oneDNN is made for one set of sizes, which costs far
// more than running it on a small tile, so every thread keeps the primitives it has made. Sizes
// that are known at run time only (the rows of an expert) are split into a few common ones, so that
// few primitives are needed. Read fast/matrix_bf16.h first.
#include "kernels/fast/matrix_bf16.h"

#include <omp.h>

#include <array>
#include <bit>
#include <cstring>
#include <dnnl.hpp>
#include <map>

#include "base/error.h"

namespace myriad {

namespace {

using dnnl::memory;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

struct Product {
  memory::desc a, b, c;
  dnnl::matmul primitive;
};

// What a primitive is made for: m, n, k, the steps of a, b and c, how they lie (flags), the bits of
// alpha, and whether the product is added to what c holds.
using Key = std::array<int64_t, 9>;

Product make(const Key& key) {
  const auto [m, n, k, step_a, step_b, step_c, flags, alpha, sum] = key;
  const auto lying = [](int64_t rows, int64_t columns, bool transposed, int64_t step) {
    const memory::dims strides = transposed ? memory::dims{1, step} : memory::dims{step, 1};
    return memory::desc({rows, columns}, memory::data_type::bf16, strides);
  };
  Product p{lying(m, k, flags & 1, step_a),
            lying(k, n, flags & 2, step_b),
            memory::desc({m, n}, flags & 4 ? memory::data_type::bf16 : memory::data_type::f32,
                         memory::dims{step_c, 1}),
            {}};
  dnnl::primitive_attr attributes;
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(alpha));
  if (scale != 1) attributes.set_output_scales(0, {scale});
  if (sum) {
    dnnl::post_ops add;
    add.append_sum(1);
    attributes.set_post_ops(add);
  }
  p.primitive = dnnl::matmul({dnnl::matmul::desc(p.a, p.b, p.c), attributes, engine()});
  return p;
}

// The largest number up to n that is one of a few common sizes. Sizes that are known only at run
// time (the rows of an expert) are split into such parts.
int64_t common_part(int64_t n) {
  constexpr int64_t kWhole = 64;
  return n >= kWhole ? n / kWhole * kWhole
                     : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
}

void run(const Key& key, const void* a, const void* b, void* c) {
  thread_local std::map<Key, Product> made;
  thread_local dnnl::stream stream = [] {
    omp_set_num_threads(1);  // OpenMP's count belongs to the calling thread
    return dnnl::stream(engine());
  }();
  auto at = made.find(key);
  if (at == made.end()) at = made.emplace(key, make(key)).first;
  const Product& p = at->second;
  memory in_a(p.a, engine(), const_cast<void*>(a)), in_b(p.b, engine(), const_cast<void*>(b)),
      out(p.c, engine(), c);
  p.primitive.execute(stream,
                      {{DNNL_ARG_SRC, in_a}, {DNNL_ARG_WEIGHTS, in_b}, {DNNL_ARG_DST, out}});
  stream.wait();
}

}  // namespace

bool has_bf16_products() {
  static const bool has = [] {
    constexpr auto kWanted = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_bf16);
    return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & kWanted) == kWanted;
  }();
  return has;
}

void bf16_product(int64_t m, int64_t n, int64_t k, float alpha, MatrixIn a, MatrixIn b,
                  MatrixOut c) {
  const auto behind = [](const MatrixIn& x, int64_t rows, int64_t columns) {
    return static_cast<const Bf16*>(x.data) +
           (x.transposed ? columns * x.step + rows : rows * x.step + columns);
  };
  const int64_t flags = a.transposed | b.transposed << 1 | c.narrow << 2;
  const int64_t scale = std::bit_cast<uint32_t>(alpha);
  for (int64_t row = 0; row < m;) {
    const int64_t rows = common_part(m - row);
    void* to = static_cast<std::byte*>(c.data) + row * c.step * (c.narrow ? 2 : 4);
    for (int64_t at = 0; at < k;) {
      const int64_t depth = c.narrow ? k : common_part(k - at);  // a narrow result is rounded once
      run({rows, n, depth, a.step, b.step, c.step, flags, scale, at > 0}, behind(a, row, at),
          behind(b, at, 0), to);
      at += depth;
    }
    row += rows;
  }
}

}  // namespace myriad
