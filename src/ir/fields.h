// The fields of values, ops, bodies and programs as one table. What must treat every field alike
// (the printer, the parser, comparisons, the generators of tests) walks the table instead of naming
// the fields once more.
//
// A struct and its table cannot drift apart: a member that the table does not list is a compile
// error. Whoever adds a field adds one line here. If the line says `keyed` or `link`, printer,
// parser and tests then carry the field without another line.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ir/program.h"

namespace myriad {

// How the text of a program carries a field.
enum class Text : uint8_t {
  placed,   // at a place of its own, which printer and parser write by hand
  keyed,    // as "name value" or "name=value", where it differs from that of a fresh struct
  link,     // keyed; the int is the index of a value of the graph and stands as that value's name
  derived,  // not at all: the parser makes it from other fields
};

template <Text kText, class S, class T>
struct Field {
  using Type = T;
  static constexpr Text text = kText;
  const char* name;
  T S::*at;
};

template <class S, class T>
constexpr Field<Text::placed, S, T> placed(const char* name, T S::*at) {
  return {name, at};
}
template <class S, class T>
constexpr Field<Text::keyed, S, T> keyed(const char* name, T S::*at) {
  return {name, at};
}
template <class S>
constexpr Field<Text::link, S, int> link(const char* name, int S::*at) {
  return {name, at};
}
template <class S, class T>
constexpr Field<Text::derived, S, T> derived(const char* name, T S::*at) {
  return {name, at};
}

// Specialised for each struct that has a table, in the order in which keyed fields are printed.
template <class S>
struct FieldsOf;

template <>
struct FieldsOf<LabelSizes> {
  static constexpr auto list = std::tuple(placed("labels", &LabelSizes::labels),  //
                                          placed("sizes", &LabelSizes::sizes));
};

template <>
struct FieldsOf<Value> {
  static constexpr auto list = std::tuple(
      placed("name", &Value::name), placed("labels", &Value::labels),
      placed("sizes", &Value::sizes), placed("dtype", &Value::dtype),
      link("gradient_of", &Value::gradient_of), link("heading", &Value::heading),
      keyed("from_state", &Value::from_state), keyed("from_experts", &Value::from_experts),
      link("rows", &Value::routing), keyed("density", &Value::density),
      keyed("reduced_gradient_of", &Value::parameter), derived("port", &Value::port));
};

template <>
struct FieldsOf<Attrs> {
  static constexpr auto list = std::tuple(
      keyed("scale", &Attrs::scale), keyed("stop", &Attrs::stop), keyed("a", &Attrs::a),
      keyed("b", &Attrs::b), keyed("label", &Attrs::label), keyed("to", &Attrs::to),
      keyed("lo", &Attrs::lo), keyed("frequencies", &Attrs::frequencies),
      keyed("mscale", &Attrs::mscale), keyed("style", &Attrs::style), keyed("sign", &Attrs::sign),
      keyed("max", &Attrs::max), keyed("k", &Attrs::k), keyed("groups", &Attrs::groups),
      keyed("kept_groups", &Attrs::kept_groups), keyed("capacity", &Attrs::capacity),
      keyed("cp", &Attrs::cp), keyed("parts", &Attrs::parts), keyed("bound", &Attrs::bound),
      keyed("inner", &Attrs::inner), keyed("ranks_per_node", &Attrs::ranks_per_node),
      keyed("experts", &Attrs::experts), keyed("beta1", &Attrs::beta1),
      keyed("beta2", &Attrs::beta2), keyed("eps", &Attrs::eps), keyed("decay", &Attrs::decay),
      keyed("state", &Attrs::state));
};

// Attributes follow an op's own keyed fields on its line.
template <>
struct FieldsOf<Op> {
  static constexpr auto list =
      std::tuple(placed("row", &Op::row), placed("ins", &Op::ins), placed("outs", &Op::outs),
                 placed("in_labels", &Op::in_labels), placed("out_labels", &Op::out_labels),
                 derived("in_types", &Op::in_types), derived("out_types", &Op::out_types),
                 placed("size", &Op::size), keyed("part", &Op::part), placed("attrs", &Op::attrs));
};

// Not listed: the index of names, which Graph::add keeps, and the number of the last temporary.
template <>
struct FieldsOf<Graph> {
  static constexpr auto list =
      std::tuple(placed("values", &Graph::values), placed("real", &Graph::real),
                 keyed("activation", &Graph::activation));
  // A member that is named neither here nor above is a compile error.
  static void all_of(const Graph& graph) {
    [[maybe_unused]] const auto& [values, real, activation, temporaries, index] = graph;
  }
};

template <>
struct FieldsOf<Version> {
  static constexpr auto list =
      std::tuple(placed("value", &Version::value), placed("layout", &Version::layout),
                 placed("in_flight", &Version::in_flight));
};

template <>
struct FieldsOf<StateName> {
  static constexpr auto list =
      std::tuple(placed("kind", &StateName::kind), placed("of", &StateName::of));
};

template <>
struct FieldsOf<Step> {
  static constexpr auto list = std::tuple(
      placed("kind", &Step::kind), placed("op", &Step::op), placed("ins", &Step::ins),
      placed("outs", &Step::outs), placed("cuts", &Step::cuts), placed("what", &Step::what),
      placed("atoms", &Step::atoms), placed("once", &Step::once), placed("state", &Step::state));
};

template <>
struct FieldsOf<StateUse> {
  static constexpr auto list =
      std::tuple(placed("name", &StateUse::name), placed("value", &StateUse::value),
                 placed("layout", &StateUse::layout));
};

template <>
struct FieldsOf<LoweredBody> {
  static constexpr auto list =
      std::tuple(placed("name", &LoweredBody::name), placed("piece", &LoweredBody::piece),
                 placed("graph", &LoweredBody::graph), placed("ops", &LoweredBody::ops),
                 placed("versions", &LoweredBody::versions), placed("steps", &LoweredBody::steps),
                 placed("states", &LoweredBody::states), placed("inputs", &LoweredBody::inputs),
                 placed("outputs", &LoweredBody::outputs), placed("loop", &LoweredBody::loop),
                 placed("rounds", &LoweredBody::rounds), placed("parts", &LoweredBody::parts),
                 placed("bound", &LoweredBody::bound), keyed("role", &LoweredBody::role));
};

template <>
struct FieldsOf<Buffer> {
  static constexpr auto list =
      std::tuple(placed("name", &Buffer::name), placed("body", &Buffer::body),
                 placed("version", &Buffer::version));
};

template <>
struct FieldsOf<State> {
  static constexpr auto list = std::tuple(
      placed("unit", &State::unit), placed("name", &State::name), placed("body", &State::body),
      placed("use", &State::use), placed("stages", &State::stages));
};

template <>
struct FieldsOf<Action> {
  static constexpr auto list =
      std::tuple(placed("act", &Action::act), placed("body", &Action::body),
                 placed("unit", &Action::unit), placed("micro_batch", &Action::micro_batch),
                 placed("ins", &Action::ins), placed("outs", &Action::outs),
                 placed("states", &Action::states), placed("peer", &Action::peer),
                 placed("channel", &Action::channel), placed("first", &Action::first));
};

template <>
struct FieldsOf<Program> {
  static constexpr auto list =
      std::tuple(placed("mesh", &Program::mesh), placed("stages", &Program::stages),
                 placed("ranks_per_node", &Program::ranks_per_node),
                 placed("bodies", &Program::bodies), placed("buffers", &Program::buffers),
                 placed("states", &Program::states), placed("actions", &Program::actions));
};

template <class S>
concept HasFields = requires {
  FieldsOf<S>::list;
};

// Calls f with each field of S, in the order of the table: f(field), where s.*field.at is the
// field of s.
template <HasFields S, class F>
constexpr void for_each_field(F f) {
  std::apply([&](auto... field) { (f(field), ...); }, FieldsOf<S>::list);
}

namespace detail {

struct Anything {
  template <class T>
  operator T() const;
};

// Whether an S can be made from that many initialisers, which says how many members it has.
template <class S, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { S{(void(I), Anything{})...}; };
}

template <class S>
constexpr bool all_are_listed() {
  constexpr size_t n = std::tuple_size_v<decltype(FieldsOf<S>::list)>;
  return takes<S>(std::make_index_sequence<n>()) && !takes<S>(std::make_index_sequence<n + 1>());
}

template <class... S>
constexpr bool all_of_all_are_listed() {
  return (all_are_listed<S>() && ...);
}

}  // namespace detail

static_assert(detail::all_of_all_are_listed<LabelSizes, Value, Attrs, Op, Version, Step, StateUse,
                                            LoweredBody, Buffer, State, Action, Program>(),
              "a struct has members that its table of fields does not list");

}  // namespace myriad
