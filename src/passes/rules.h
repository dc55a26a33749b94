// Wanted layouts as text: the strategy library. A line is
//   PATTERN [LABELS]: label=atom,atom ... ! fixed +zero=atom,atom
// PATTERN and LABELS are globs on a value's (or state's) name and labels. Later lines win per
// label; the first dim that asks for an atom gets it; `label=` alone takes a wish back; d.X obeys
// the lines of X but for `fixed` and `+zero`. `!`: nothing may stay pending. `fixed`: users may
// slice it, never move it. `+zero` cuts further along the dim of least waste, then the leading one.
// Values without a name of their own have no wish. Aliases: tp = tg,tr.
// A line "@ROW: label=atom,atom ..." says where ops of that row are made, whatever it costs: cut so
// and, along labels that it does not name, not at all.
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
  bool asked = false;  // false: no wish
  std::array<AtomList, kMaxLayoutDims> cuts{};
  bool settle = false;
  bool fixed = false;
};

// What is wanted of a value, by name, labels and sizes; of the ops of a row by the name "@ROW" and
// the labels of the op.
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
