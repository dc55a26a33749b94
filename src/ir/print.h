// Programs and bodies as text that a person can read and parse_* reads back to an equal object.
//
// Line by line; indentation and lines that begin with '#' say nothing. Names are bare or quoted; a
// name that is not unique is followed by "#index". Versions are "vN", with value and layout where
// they are made. A body stands after the graph it is over; a graph is printed once for all its
// bodies, and parse_program lets them share it again. Names of atoms and labels are plain words.
#pragma once

#include <string>
#include <string_view>

#include "ir/program.h"

namespace myriad {

std::string print_body(const LoweredBody& body, const Mesh& mesh);
std::string print_program(const Program& program);
// One line: "run layer.forward unit 3 mb 0 (y/L2.mb0) -> (y/L3.mb0) states 3-22".
std::string show(const Action& action, const Program& program);

// Bare, or quoted where a parser would not take it for one word.
std::string printed_name(std::string_view name);
const char* name_of(StepKind kind);
const char* name_of(Act act);

// Throw Error naming line and what was expected. parse_body makes its own graph.
LoweredBody parse_body(std::string_view text, const Mesh& mesh);
Program parse_program(std::string_view text);

}  // namespace myriad
