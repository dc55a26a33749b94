#include "ir/program.h"

namespace myriad {

const Value& Program::value(const Buffer& b) const {
  const LoweredBody& body = bodies[b.body];
  return (*body.graph)[body.versions[b.version].value];
}

const Layout& Program::layout(const Buffer& b) const {
  return bodies[b.body].versions[b.version].layout;
}

bool is_routed_hidden(const LoweredBody& body, int version) {
  const Version& v = body.versions[version];
  const Value& value = (*body.graph)[v.value];
  return value.labels.ends_with("bsd") && (body.loop || (value.from_experts && v.layout.pending));
}

const char* name_of(BodyRole role) {
  constexpr const char* kNames[] = {"forward", "recompute", "backward", "reduce",
                                    "square",  "update",    "finish"};
  return kNames[static_cast<int>(role)];
}

int Piece::find(std::string_view param) const {
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].name == param) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace myriad
