// Ports: the values through which bodies meet each other, the caller and the report of a step. A
// port is a value of a fixed name; Graph::add sees the name and marks the value, and from there on
// everything asks for the port and nobody compares names.
#pragma once

#include <cstdint>
#include <string_view>

namespace myriad {

enum class Port : uint8_t {
  none,
  // Between units: y of a unit is x of the next, dx the dy of the one before.
  x,
  y,
  dx,
  dy,
  // Token inputs, i32, of each micro-batch.
  ids,
  targets,
  positions,
  documents,
  cache_slots,
  cache_positions,
  cache_documents,
  // Scalars that start backward passes: the gradients of losses.
  inv_n,
  balance_coef,
  z_coef,
  // Scalars of the optimizer's step.
  live,
  lr,
  bias_correction1,
  bias_correction2,
  // What a step makes: scalars of the finish body (and the loss's gradient sums before it), and
  // what is reported of the forward pass.
  factor,
  norm,
  loss,
  aux,
  zloss,
  rounds,
  choices,
  fits,
  logits,
  count_
};

// Who hands in a value that its own unit does not make.
enum class FedBy : uint8_t {
  nobody,       // an earlier body of the unit, or the finish body
  neighbour,    // the unit before or behind
  micro_batch,  // the caller, for each micro-batch
  step,         // the caller, once a step before its first pass
  optimizer,    // the caller, once a step after its last pass
};

Port port_named(std::string_view name);  // none: an ordinary value
const char* name_of(Port port);
FedBy fed_by(Port port);

}  // namespace myriad
