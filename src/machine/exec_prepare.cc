// Finds once what a rank needs to run a body: the local sizes of its versions, the kernel of each
// op with its scratch, and for routed rows which version of the choices says how many there are.
// Ops on routed rows get no kernel here, since a kernel is chosen by sizes and theirs are known
// only in the round (exec_rows.h).
#include "machine/exec_prepare.h"

#include <utility>

#include "base/error.h"
#include "ir/rows.h"
#include "kernels/grouped.h"
#include "machine/exec.h"
#include "machine/exec_tensor.h"

namespace myriad {

size_t kernel_scratch(KernelSet set, const Op& op, const LabelSizes& local, DType real) {
  const auto of = [&](const Op& op, const LabelSizes& local) -> size_t {
    const KernelChoice& choice = choose(op, local, real, set);
    return choice.scratch ? choice.scratch(op, local, real) : 0;
  };
  if (!works_on_rows(op)) return of(op, local);
  if (is_grouped(op)) return 0;
  const Op rows = collapsed(op);
  return of(rows, collapsed_sizes(rows, local, local.at('e') * local.at('b') * local.at('s')));
}

Tensor describe(const Mesh& mesh, const Value& v, const Layout& layout, int rank) {
  return local_tensor(mesh, v.sizes, layout, rank, v.dtype);
}

Tensor describe_rows(const Tensor& t) {
  Tensor rows{.data = t.data, .dtype = t.dtype, .dims = t.dims - 2};
  for (int d = 3; d < t.dims; ++d) {
    rows.size[d - 2] = t.size[d];
    rows.lo[d - 2] = t.lo[d];
  }
  return rows;
}

Box3 box_of_rows(const Tensor& t) {
  return {{t.lo[0], t.lo[0] + t.size[0]},
          {t.lo[1], t.lo[1] + t.size[1]},
          {t.lo[2], t.lo[2] + t.size[2]}};
}

namespace {

// The version of the choices that its window made: it covers whatever rows this rank can hold.
int made_by_window(const LoweredBody& body, int routing) {
  for (const Step& step : body.steps) {
    if (step.kind == StepKind::run && body.versions[step.outs[0]].value == routing)
      return step.outs[0];
  }
  CHECK(false, "{} has no choices for its rows", body.name);
}

PreparedBody::Run prepare_run(const Mesh& mesh, const LoweredBody& body, const PreparedBody& p,
                              const Step& step, int rank, const Kernels& kernels) {
  PreparedBody::Run run;
  const Op& op = body.ops[step.op];
  run.local = local_labels(mesh, op, step, rank);
  for (const auto* versions : {&step.ins, &step.outs}) {
    for (int v : *versions) {
      if (p.table[v] >= 0) run.rows = v;
    }
  }
  if (op.row == Row::spread) run.leads = step.ins[0];
  if (op.row == Row::collapse) run.leads = std::exchange(run.rows, step.ins[0]);
  if (works_on_rows(op)) {
    run.collapsed = std::make_unique<Op>(collapsed(op));
    return run;
  }
  run.choice = &kernels.choose(op, run.local, body.graph->real);
  run.scratch = run.choice->scratch ? run.choice->scratch(op, run.local, body.graph->real) : 0;
  return run;
}

}  // namespace

PreparedBody prepare_body(const Mesh& mesh, const LoweredBody& body, int rank,
                          const Kernels& kernels) {
  PreparedBody p;
  for (const Version& v : body.versions) {
    const Value& value = (*body.graph)[v.value];
    const Tensor t = describe(mesh, value, v.layout, rank);
    p.boxes.push_back(value.sparse() ? box_of_rows(t) : Box3{});
    p.versions.push_back(value.sparse() ? describe_rows(t) : t);
    p.table.push_back(value.sparse() ? made_by_window(body, value.routing) : -1);
  }
  for (const Step& step : body.steps) {
    p.steps.push_back(step.kind == StepKind::run ? prepare_run(mesh, body, p, step, rank, kernels)
                                                 : PreparedBody::Run{});
  }
  p.rows.resize(body.steps.size());
  return p;
}

}  // namespace myriad
