#include "ir/local.h"

namespace myriad {

LocalBox local_box(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes,
                   int rank) {
  LocalBox box;
  for (int d = 0; d < layout.dims; ++d) box[d] = local_range(mesh, layout, sizes, d, rank);
  return box;
}

int64_t local_bytes(const Mesh& mesh, const Value& value, const Layout& layout, int rank) {
  return local_elements(mesh, layout, value.sizes, rank) *
         static_cast<int64_t>(size_of(value.dtype));
}

LabelSizes local_labels(const Mesh& mesh, const Op& op, const Step& step, int rank) {
  LabelSizes local = op.size;
  for (size_t l = 0; l < local.sizes.size(); ++l)
    local.sizes[l] = mesh.range(op.size.sizes[l], step.cuts[l], rank).size();
  return local;
}

int routed_version(const LoweredBody& body, const Step& step) {
  for (const auto* versions : {&step.ins, &step.outs}) {
    for (int v : *versions) {
      if ((*body.graph)[body.versions[v].value].sparse()) return v;
    }
  }
  return -1;
}

int64_t row_elements(const Mesh& mesh, const Value& value, const Layout& layout, int rank) {
  int64_t n = 1;
  for (int d = 3; d < layout.dims; ++d) n *= local_range(mesh, layout, value.sizes, d, rank).size();
  return n;
}

LabelSizes labels_on_rows(const Mesh& mesh, const LoweredBody& body, int routed, LabelSizes local,
                          int64_t elements, int rank) {
  const Version& version = body.versions[routed];
  const int64_t width = row_elements(mesh, (*body.graph)[version.value], version.layout, rank);
  local.sizes[local.find('e')] = local.sizes[local.find('b')] = 1;
  local.sizes[local.find('s')] = width > 0 ? elements / width : 0;
  return local;
}

}  // namespace myriad
