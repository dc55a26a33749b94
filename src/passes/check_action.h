// The checker of one action by itself. Private to passes/check.cc.
#pragma once

#include <string>

#include "ir/program.h"

namespace myriad {

// Throws Error that names stage and action.
[[noreturn]] void refuse_action(const Program& program, int stage, const Action& action,
                                const std::string& what);

// That everything that it names is there.
void check_indices(const Program& program, int stage, const Action& action);

// Of a run: buffers and states are of the types that the body expects, and the stage holds the
// states.
void check_types(const Program& program, int stage, const Action& action);

// The stage holds the states of the action.
void check_held(const Program& program, int stage, const Action& action);

// That `one` can stand for `other`.
void need_alike(const Program& program, int stage, const Action& action, const std::string& one,
                const Value& v, const Layout& l, const std::string& other, const Value& w,
                const Layout& k);

}  // namespace myriad
