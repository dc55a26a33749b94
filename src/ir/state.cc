#include "ir/state.h"

namespace myriad {

namespace {

constexpr std::string_view kLetters = "pscmvgk";  // by kind
static_assert(kLetters.size() == kStateKinds);

}  // namespace

char letter_of(StateKind kind) { return kLetters[static_cast<size_t>(kind)]; }

std::string show(const StateName& name) { return std::string{letter_of(name.kind), ':'} + name.of; }

std::optional<StateName> state_named(std::string_view text) {
  if (text.size() < 2 || text[1] != ':') return std::nullopt;
  const size_t kind = kLetters.find(text[0]);
  if (kind == std::string_view::npos) return std::nullopt;
  return StateName{static_cast<StateKind>(kind), std::string(text.substr(2))};
}

}  // namespace myriad
