// Sharding constraints as text: the strategy library. A line is
//   PATTERN [LABELS]: label=atom,atom ... ! fixed +zero=atom,atom
// PATTERN and LABELS are globs that are matched against the name and the labels of a value or
// state. All lines that match apply; for each label the last line that names it wins. The words
// mean:
//   label=atom,atom  The dim of this label is sharded over these atoms, the first being the
//   slowest.
//                    If two dims ask for one atom, the first dim gets it. `label=` without atoms
//                    takes back what earlier lines said.
//   !                The value must not stay partial.
//   fixed            Ops that use the value may slice it but must not send it.
//   +zero=atom,atom  The value is sharded further over those of these atoms that it does not use
//                    yet, along the dim where padding wastes least (the leading one of equal dims).
// A gradient d.X obeys the lines of X except for their `fixed` and `+zero`. Values without a name
// of their own have no constraint. Aliases such as tp = tg,tr stand for lists of atoms.
//
// A line "@OP: label=atom,atom ..." says where ops of this kind are computed, whatever that costs:
// sharded as the line says, and not sharded along labels that it does not name.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/layout.h"

namespace myriad {

struct Want {
  bool asked = false;  // whether any line matches; if not, there is no constraint
  std::array<AtomList, kMaxLayoutDims> cuts{};
  bool settle = false;  // "!"
  bool fixed = false;
  bool operator==(const Want&) const = default;
};

// The constraint of a value, by its name, labels and sizes. That of ops of a kind is asked for by a
// value with the name "@OP" and the labels of the op.
using Wanted = std::function<Want(const Value&)>;

class Rules {
 public:
  // Throws Error on an unknown word, atom or alias, naming the line.
  Rules(std::string_view text, const Mesh& mesh, std::map<std::string, std::string> aliases = {});
  Want operator()(const Value& value) const;

 private:
  struct Line {
    std::string pattern, labels;
    std::vector<std::pair<char, AtomList>> cuts;
    bool settle = false, fixed = false;
    std::optional<AtomList> zero;
  };
  Line parse(std::string_view line) const;
  AtomList expand(std::string_view text, std::string_view line) const;

  const Mesh* mesh_;
  std::map<std::string, std::string> aliases_;
  std::vector<Line> lines_;
};

}  // namespace myriad
