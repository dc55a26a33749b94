// What a kernel is given and how it is chosen. Kernels see local tensors of true sizes (any dim may
// be 0) and never a mesh. Whatever they touch they tell the Meter, which is how memory and FLOPs
// are measured rather than planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/pool.h"
#include "ir/graph.h"
#include "ir/mesh.h"

namespace myriad {

constexpr int kMaxDims = 8;

// Row-major and contiguous. lo[d] is the global index of local index 0 of dim d.
struct Tensor {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  int dims = 0;
  int64_t size[kMaxDims] = {};
  int64_t lo[kMaxDims] = {};

  int64_t elements() const {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= size[d];
    return n;
  }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// One per rank; written by the worker that runs the rank. FLOPs are counted by kernels from the
// sizes of the tensors they got, by the same definition as RowInfo::work but not through it.
struct Meter {
  std::byte* arena = nullptr;
  double flops = 0;
  size_t high = 0;  // highest arena offset touched, rounded up to kAlignment

  void touch(const void* data, size_t bytes);
  void touch(const Tensor& t) { touch(t.data, t.bytes()); }
};
constexpr size_t kAlignment = 64;

// The pairs that a sparse value "ebs..." has on this rank, ordered by (e, b, s). Indices are local
// to the value's ranges; its tensor has dims [n, rest...].
struct RowSet {
  int64_t n = 0;
  const int32_t *e = nullptr, *b = nullptr, *s = nullptr;  // [n]
};

struct KernelCall {
  const Op* op = nullptr;
  std::span<const Tensor> ins, outs;
  LabelSizes local;              // local size of every label of op.size, same order
  std::byte* scratch = nullptr;  // as many bytes as the choice asked for, aligned
  size_t scratch_bytes = 0;
  Meter* meter = nullptr;
  const RowSet* rows =
      nullptr;  // of the sparse operand or output; of all choices where there are also leads
  const RowSet* leads = nullptr;  // spread: of operand 0; collapse: of the output
  Range e, b, s;         // the same: global ranges of e, b, s that the sparse tensor covers
  int64_t round = 0;     // window
  OwnerNodes nodes;      // window, rounds, leads, spread, collapse: those of this rank's experts
  Pool* pool = nullptr;  // for tiles of a fixed grid; may be null (then in line)
};

// How a call ended. The kernels of the processor cannot fail; those of a device may, and what they
// were to write is then undefined. Costs nothing where all is well.
enum class [[nodiscard]] KernelStatus : uint8_t{ok, device_error};
const char* name_of(KernelStatus status);  // "a device error"

struct KernelChoice {
  const char* name;  // "fast.gemm", "ref": of what runs, for a kernel hands no call to another
  // Null if it takes the op, else why not. Only dtypes, labels, attributes and local sizes decide:
  // never values, time or addresses.
  const char* (*declines)(const Op& op, const LabelSizes& local, DType real);
  size_t (*scratch)(const Op& op, const LabelSizes& local, DType real);  // bytes; null: none
  KernelStatus (*run)(const KernelCall& call);  // touches and counts itself
};

enum class KernelSet : uint8_t { fast, ref };

// Choices for a row in order of preference; ref is last and never declines.
std::span<const KernelChoice> choices(Row row);
// The first choice that does not decline (with KernelSet::ref: the last).
const KernelChoice& choose(const Op& op, const LabelSizes& local, DType real, KernelSet set);

// Where an executor gets its kernels: a set of the table, or a chooser that names others (those of
// a device; one that fails, in a test). A chooser is a pure function of its arguments.
struct Kernels {
  using Chooser = const KernelChoice& (*)(const Op&, const LabelSizes&, DType real, KernelSet);

  KernelSet set;
  Chooser chooser;

  Kernels(KernelSet set_ = KernelSet::fast, Chooser chooser_ = myriad::choose)
      : set(set_), chooser(chooser_) {}
  const KernelChoice& choose(const Op& op, const LabelSizes& local, DType real) const {
    return chooser(op, local, real, set);
  }
};

}  // namespace myriad
