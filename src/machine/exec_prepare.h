// A body as one rank runs it: everything that is known before a step, but for addresses and the
// numbers of routed rows.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "ir/program.h"
#include "kernels/kernel.h"
#include "machine/exec_rows.h"

namespace myriad {

struct PreparedBody {
  struct Run {
    const KernelChoice* choice = nullptr;  // null: chosen when the number of rows is known
    LabelSizes local;
    size_t scratch = 0;
    int rows = -1, leads = -1;      // versions whose rows the op works on, see KernelCall
    std::unique_ptr<Op> collapsed;  // of an op that works on rows as on any tensor
  };
  // The rows that a collective sends to and gets from each member of its group. Transfers point to
  // the lists; addresses stay.
  struct Rows {
    std::deque<RowChoice> send, recv;
  };
  std::vector<Tensor> versions;  // without memory
  std::vector<Box3> boxes;       // of sparse versions
  std::vector<int>
      table;  // by version: the one of the choices that define its rows; -1: not sparse
  std::vector<Run> steps;
  std::vector<Rows> rows;  // by step that begins a collective
};

PreparedBody prepare_body(const Mesh& mesh, const LoweredBody& body, int rank,
                          const Kernels& kernels);

// What a rank holds of a value, without memory.
Tensor describe(const Mesh& mesh, const Value& v, const Layout& layout, int rank);
// Of routed rows: the dims after e, b, s, behind one of rows whose number is not known yet.
Tensor describe_rows(const Tensor& t);
// The ranges of e, b and s of routed rows.
Box3 box_of_rows(const Tensor& t);

}  // namespace myriad
