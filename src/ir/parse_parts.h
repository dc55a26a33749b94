// The parts of a program that ir/parse.cc reads for ir/parse_program.cc.
#pragma once

#include <memory>
#include <vector>

#include "ir/parse_line.h"
#include "ir/program.h"

namespace myriad {

// The graph that begins in the next line, which must say this number.
std::shared_ptr<Graph> parse_graph(Cursor& at, int number);

// The body that begins in the next line, over one of these graphs.
LoweredBody parse_body(Cursor& at, const Mesh& mesh,
                       const std::vector<std::shared_ptr<Graph>>& graphs);

// The name of a state, as in "p:q.w".
StateName parse_state_name(Line& line);

}  // namespace myriad
