#include "comm/communicator.h"

namespace myriad {

const char* name_of(CommKind kind) {
  switch (kind) {
    case CommKind::all_gather:
      return "all_gather";
    case CommKind::reduce_scatter:
      return "reduce_scatter";
    case CommKind::all_reduce:
      return "all_reduce";
    case CommKind::all_to_all:
      return "all_to_all";
    case CommKind::permute:
      return "permute";
    case CommKind::send:
      return "send";
  }
  return "?";
}

int64_t View::elements() const {
  int64_t n = absent() ? 0 : 1;
  for (int d = 0; d < dims; ++d) n *= size[d];
  return n;
}

void Traffic::operator+=(const Traffic& other) {
  for (int kind = 0; kind < kCommKinds; ++kind) {
    bytes[kind] += other.bytes[kind];
    messages[kind] += other.messages[kind];
    between_nodes_bytes[kind] += other.between_nodes_bytes[kind];
    between_nodes_rows[kind] += other.between_nodes_rows[kind];
  }
}

}  // namespace myriad
