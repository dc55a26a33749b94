// What a measured training system keeps, fuses and adds up in: one file a system in
// clusters/systems/, the same for all rows measured on it (docs/prediction.md lists the keys).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/price.h"

namespace myriad {

struct System {
  std::string name, file;
  std::vector<std::string> frameworks;  // rows whose framework begins with one of these
  ByteMap bytes;
  std::optional<WrittenScores> scores;  // none: fused attention
  int zero = -1;                        // of rows that do not say; -1: 0
  bool selective_elementwise = false;   // its "selective recompute" is Recompute::selective; else
                                        // attention alone is made again
};

// Throws Error naming file and key.
System read_system(const std::string& file);
// All of clusters/systems/, by file name.
std::vector<System> shipped_systems();
// The one with the longest matching beginning; null: none.
const System* system_of(const std::vector<System>& systems, const std::string& framework);

}  // namespace myriad
