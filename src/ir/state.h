// The name of a state: what kind of state it is, and of what. It prints as "p:q.w" (the letter of
// the kind, a colon, the parameter), and rules match that text.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace myriad {

// In the order in which the states of a program are laid out: programs over the same parameters
// then place them alike.
enum class StateKind : uint8_t {
  parameter,     // "p"
  scalar,        // "s": an exact sum of the step, as "s:loss"
  counter,       // "c": a count of the step, as "c:counts"
  exp_avg,       // "m": AdamW's first moment of a parameter
  exp_avg_sq,    // "v": its second moment
  gradient_sum,  // "g": of a parameter, over the micro-batches of a step
  cache,         // "k": keys or values of generation, as "k:v"
};
constexpr int kStateKinds = 7;
char letter_of(StateKind kind);

// A parameter has one identity: the name that it has in its piece ("q.w"). Its states are all `of`
// that name, and so are the values that Value::parameter marks.
struct StateName {
  StateKind kind = StateKind::parameter;
  std::string of;

  bool empty() const { return of.empty(); }
  auto operator<=>(const StateName&) const = default;
  bool operator==(const StateName&) const = default;
};

std::string show(const StateName& name);                      // "p:q.w"
std::optional<StateName> state_named(std::string_view text);  // its inverse; none: not a state

inline bool operator==(const StateName& name, std::string_view printed) {
  return show(name) == printed;
}

}  // namespace myriad

template <>
struct fmt::formatter<myriad::StateName> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const myriad::StateName& name, Context& context) const {
    return fmt::formatter<std::string>::format(myriad::show(name), context);
  }
};
