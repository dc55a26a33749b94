// The checker of one body, and what both checkers say of types. Private to passes/check.cc.
#pragma once

#include <string>

#include "ir/program.h"

namespace myriad {

// What passes/check.h says of bodies; throws Error naming body and step.
void check_body(const LoweredBody& body, const Program& program);

inline bool within(int i, size_t size) { return i >= 0 && static_cast<size_t>(i) < size; }

// Whether two values can stand for each other.
bool alike(const Value& a, const Layout& la, const Value& b, const Layout& lb);

// "(4,24,48) f32 [b:dp]"
std::string type_of(const Value& v, const Layout& layout, const Mesh& mesh);

}  // namespace myriad
