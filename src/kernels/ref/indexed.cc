// Ops that read or write elements and rows named by an index, and slices of a dimension. A rank may
// hold only a part of the indexed dimension: an index outside that part gives zero when it is read
// and writes nothing, so that the sum over the ranks is the whole result.
#include <cstring>

#include "kernels/call.h"
#include "kernels/ref/ref.h"

namespace myriad::ref {

namespace {

// The local index of a global id in a dimension that holds [lo, lo + n); -1 if the id is elsewhere,
// or none at all.
int64_t local_index(int32_t id, int64_t lo, int64_t n) {
  return id >= lo && id < lo + n ? id - lo : -1;
}

// How many ids a row of z has: one in "bsv,bs", j in "bsx,bsj".
int64_t ids_per_row(const Tensor& z, const Tensor& ids) {
  return ids.dims == z.dims ? ids.size[ids.dims - 1] : 1;
}

// A tensor seen as outer x size x inner, where `size` is the dimension that slice and pad work on.
struct Part {
  int64_t outer = 1, inner = 1, size = 0;
};

Part part_of(const Tensor& t, const std::string& labels, char label) {
  Part p;
  const int at = static_cast<int>(labels.find(label));
  CHECK(at >= 0 && at < t.dims, "no {} in \"{}\"", label, labels);
  for (int d = 0; d < at; ++d) p.outer *= t.size[d];
  for (int d = at + 1; d < t.dims; ++d) p.inner *= t.size[d];
  p.size = t.size[at];
  return p;
}

}  // namespace

void pick(const KernelCall& call) {
  begin(call);
  const Tensor& z = call.ins[0];
  const int64_t v = z.size[z.dims - 1], lo = z.lo[z.dims - 1], n = call.outs[0].elements();
  const int64_t k = ids_per_row(z, call.ins[1]);
  const int32_t* ids = call.ins[1].as<int32_t>();
  by_reals(z.dtype, call.outs[0].dtype, [&](auto from, auto to) {
    using T = decltype(to);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t j = local_index(ids[i], lo, v);
      call.outs[0].as<T>()[i] =
          j < 0 ? T(0) : static_cast<T>(z.as<decltype(from)>()[i / k * v + j]);
    }
  });
}

void unpick(const KernelCall& call) {
  begin(call);
  const Tensor& dz = call.outs[0];
  const int64_t v = dz.size[dz.dims - 1], lo = dz.lo[dz.dims - 1], n = call.ins[0].elements();
  const int64_t k = ids_per_row(dz, call.ins[1]);
  const int32_t* ids = call.ins[1].as<int32_t>();
  by_reals(call.ins[0].dtype, dz.dtype, [&](auto from, auto to) {
    using T = decltype(to);
    std::fill_n(dz.as<T>(), dz.elements(), T(0));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t j = local_index(ids[i], lo, v);
      if (j < 0) continue;
      T& sum = dz.as<T>()[i / k * v + j];
      sum = static_cast<T>(sum + call.ins[0].as<decltype(from)>()[i]);
    }
  });
}

void gather_rows(const KernelCall& call) {
  begin(call);
  const Tensor& table = call.ins[0];
  const int64_t d = table.size[1], n = call.ins[1].elements();
  const int32_t* ids = call.ins[1].as<int32_t>();
  by_real(table.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < n; ++i) {
      T* row = call.outs[0].as<T>() + i * d;
      const int64_t j = local_index(ids[i], table.lo[0], table.size[0]);
      if (j < 0) {
        std::fill(row, row + d, T(0));
      } else {
        std::copy_n(table.as<T>() + j * d, d, row);
      }
    }
  });
}

void scatter_rows(const KernelCall& call) {
  begin(call);
  const Tensor& table = call.outs[0];
  const int64_t d = table.size[1], n = call.ins[1].elements();
  const int32_t* ids = call.ins[1].as<int32_t>();
  by_reals(call.ins[0].dtype, table.dtype, [&](auto from, auto to) {
    using T = decltype(to);
    const auto* rows = call.ins[0].as<decltype(from)>();
    std::fill_n(table.as<T>(), table.elements(), T(0));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t j = local_index(ids[i], table.lo[0], table.size[0]);
      if (j < 0) continue;
      T* to_row = table.as<T>() + j * d;
      for (int64_t k = 0; k < d; ++k) to_row[k] = static_cast<T>(to_row[k] + rows[i * d + k]);
    }
  });
}

void place_rows(const KernelCall& call) {
  begin(call);
  const Tensor &old = call.ins[0], &rows = call.ins[1], &to = call.outs[0];
  if (to.data != old.data && old.bytes() > 0) std::memcpy(to.data, old.data, old.bytes());
  const int64_t places = old.size[1], n = rows.size[0] * rows.size[1];
  const size_t bytes = n > 0 ? rows.bytes() / static_cast<size_t>(n) : 0;
  for (int64_t i = 0; i < n && bytes > 0; ++i) {
    const int64_t at = call.ins[2].as<int32_t>()[i];
    if (at < 0) continue;
    CHECK(at < places, "place {} of {}", at, places);
    const int64_t row = i / rows.size[1] * places + at;
    std::memcpy(to.data + static_cast<size_t>(row) * bytes,
                rows.data + static_cast<size_t>(i) * bytes, bytes);
  }
}

void slice(const KernelCall& call) {
  begin(call);
  const Attrs& attrs = call.op->attrs;
  const Part from = part_of(call.ins[0], call.op->in_labels[0], attrs.label);
  const int64_t n = part_of(call.outs[0], call.op->out_labels[0], attrs.to).size;
  CHECK(attrs.lo >= 0 && attrs.lo + n <= from.size, "slice [{}, {} + {}) of {}", attrs.lo, attrs.lo,
        n, from.size);
  by_real(call.ins[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < from.outer; ++i) {
      std::copy_n(call.ins[0].as<T>() + (i * from.size + attrs.lo) * from.inner, n * from.inner,
                  call.outs[0].as<T>() + i * n * from.inner);
    }
  });
}

void pad(const KernelCall& call) {
  begin(call);
  const Attrs& attrs = call.op->attrs;
  const Part to = part_of(call.outs[0], call.op->out_labels[0], attrs.label);
  const int64_t n = part_of(call.ins[0], call.op->in_labels[0], attrs.to).size;
  CHECK(attrs.lo >= 0 && attrs.lo + n <= to.size, "pad [{}, {} + {}) of {}", attrs.lo, attrs.lo, n,
        to.size);
  by_real(call.ins[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(call.outs[0].as<T>(), call.outs[0].elements(), T(0));
    for (int64_t i = 0; i < to.outer; ++i) {
      std::copy_n(call.ins[0].as<T>() + i * n * to.inner, n * to.inner,
                  call.outs[0].as<T>() + (i * to.size + attrs.lo) * to.inner);
    }
  });
}

}  // namespace myriad::ref
