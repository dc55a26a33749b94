#include "ir/port.h"

#include <iterator>

namespace myriad {

namespace {

struct PortInfo {
  Port port;
  const char* name;
  FedBy fed_by;
};

constexpr PortInfo kPorts[] = {
    {Port::none, "", FedBy::nobody},
    {Port::x, "x", FedBy::neighbour},
    {Port::y, "y", FedBy::nobody},
    {Port::dx, "d.x", FedBy::nobody},
    {Port::dy, "d.y", FedBy::neighbour},
    {Port::ids, "ids", FedBy::micro_batch},
    {Port::targets, "targets", FedBy::micro_batch},
    {Port::positions, "pos", FedBy::micro_batch},
    {Port::documents, "doc", FedBy::micro_batch},
    {Port::cache_slots, "cache.slot", FedBy::micro_batch},
    {Port::cache_positions, "cache.pos", FedBy::micro_batch},
    {Port::cache_documents, "cache.doc", FedBy::micro_batch},
    {Port::inv_n, "inv_n", FedBy::step},
    {Port::balance_coef, "balance_coef", FedBy::step},
    {Port::z_coef, "z_coef", FedBy::step},
    {Port::live, "live", FedBy::optimizer},
    {Port::lr, "lr", FedBy::optimizer},
    {Port::bias_correction1, "left1", FedBy::optimizer},
    {Port::bias_correction2, "left2", FedBy::optimizer},
    {Port::factor, "factor", FedBy::nobody},
    {Port::norm, "norm", FedBy::nobody},
    {Port::loss, "loss", FedBy::nobody},
    {Port::aux, "aux", FedBy::nobody},
    {Port::zloss, "zloss", FedBy::nobody},
    {Port::rounds, "rounds", FedBy::nobody},
    {Port::choices, "idx", FedBy::nobody},
    {Port::fits, "fit", FedBy::nobody},
    {Port::logits, "logits", FedBy::nobody},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kPorts); ++i) {
    if (static_cast<size_t>(kPorts[i].port) != i) return false;
  }
  return std::size(kPorts) == static_cast<size_t>(Port::count_);
}
static_assert(in_order(), "the table has an entry for each port, in order");

const PortInfo& info(Port port) { return kPorts[static_cast<size_t>(port)]; }

}  // namespace

Port port_named(std::string_view name) {
  for (const PortInfo& p : kPorts) {
    if (name == p.name) return p.port;
  }
  return Port::none;
}

const char* name_of(Port port) { return info(port).name; }
FedBy fed_by(Port port) { return info(port).fed_by; }

}  // namespace myriad
