// The table of op rows: everything the system knows of an operator but its kernels
// (kernels/table.h). The index rule stands in the op's labels; a row adds what the labels do not
// say.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"

namespace myriad {

// What of a device computes a row. matrix: where it has the form of a matrix product, else as
// vector.
enum class Engine : uint8_t { vector, matrix, attention };

struct RowInfo {
  Row row;
  const char* name;
  // Linear sets: groups of operands (bit masks) in which the op is jointly linear. Decides what may
  // stay pending.
  std::vector<uint32_t> (*linear)(const Op&);
  // Labels that must not be cut inside the op.
  std::string (*whole)(const Op&);
  // FLOPs of one execution on local label sizes.
  double (*work)(const Op&, const LabelSizes& local);
  // Emits the gradients of the inputs from those of the outputs (-1: none). Null: no gradient
  // flows.
  std::vector<int> (*gradient)(Builder&, const Op&, std::span<const int> d_outs);
  bool reduces_max =
      false;  // what a cut label missing from an output leaves pending: a maximum, else a sum
  bool as_wanted = false;    // laid out as its first operand is wanted, whatever moves that takes:
                             // its result depends on the cut
  bool elementwise = false;  // output i may overwrite operand i of the same type
  Engine engine = Engine::vector;
};

const RowInfo& info(Row row);
// Whether an op has the form of a matrix product: two operands that share a contracted label and
// each keep one of their own.
bool is_product(const Op& op);
Row row_named(std::string_view name);  // throws Error

}  // namespace myriad
