// Reads sharding constraints from text and says what they ask of a value; rules.h defines the
// language. Reading checks every word against the mesh, so that an unknown atom is an error with
// the line it is in. An atom that is declared with size 1 is known but left out of the mesh, so it
// is skipped.
//
// Asking goes through all lines in order, since the last that names a label wins. Only then are
// labels turned into dims: an atom that two dims ask for goes to the first, and `+zero` adds those
// atoms that no dim has, so that no atom ever cuts two dims. Read Rules::operator() first.
#include "passes/rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"

namespace myriad {

Rules::Rules(std::string_view text, const Mesh& mesh, std::map<std::string, std::string> aliases)
    : mesh_(&mesh), aliases_(std::move(aliases)) {
  aliases_.try_emplace("tp", "tg,tr");
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t") != std::string::npos) lines_.push_back(parse(line));
  }
}

AtomList Rules::expand(std::string_view text, std::string_view line) const {
  AtomList atoms;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string name(text.substr(0, comma));
    if (const auto alias = aliases_.find(name); alias != aliases_.end()) {
      atoms.append(expand(alias->second, line));
    } else if (const int a = mesh_->find(name); a >= 0) {
      atoms.push(static_cast<Atom>(a));
    } else if (!mesh_->knows(name)) {
      std::string known;
      for (const auto& x : mesh_->declared()) known += " " + x.name;
      for (const auto& [x, _] : aliases_) known += " " + x;
      throw Error(fmt::format("unknown atom or alias \"{}\" in rule \"{}\"", name, line),
                  "layout rules", "known:" + known);
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return atoms;
}

Rules::Line Rules::parse(std::string_view text) const {
  const size_t colon = text.find(": ");
  if (colon == std::string_view::npos)
    throw Error(fmt::format("no \": \" in rule \"{}\"", text), "layout rules");
  Line line;
  std::istringstream head{std::string(text.substr(0, colon))};
  std::string labels;
  head >> line.pattern >> labels;
  line.labels = labels.size() > 2 ? labels.substr(1, labels.size() - 2) : "*";
  std::istringstream words{std::string(text.substr(colon + 2))};
  for (std::string word; words >> word;) {
    if (word == "!") {
      line.settle = true;
    } else if (word == "fixed") {
      line.fixed = true;
    } else if (word.starts_with("+zero=")) {
      line.zero = expand(std::string_view(word).substr(6), text);
    } else if (word.size() >= 2 && word[1] == '=') {
      line.cuts.emplace_back(word[0], expand(std::string_view(word).substr(2), text));
    } else {
      throw Error(fmt::format("what is \"{}\" in rule \"{}\"?", word, text), "layout rules",
                  "words are label=atoms, !, fixed, +zero=atoms");
    }
  }
  return line;
}

namespace {

// The dim along which cutting by `atoms` wastes least, the leading one if several do. A size of 0
// counts as 1.
int dim_of_least_waste(const Value& v, const Want& want, AtomList atoms, const Mesh& mesh) {
  int best = 0;
  double least = 0;
  for (size_t d = 0; d < v.sizes.size(); ++d) {
    const int64_t n = std::max<int64_t>(v.sizes[d], 1),
                  k = mesh.parts(want.cuts[d]) * mesh.parts(atoms);
    const double waste = static_cast<double>((n + k - 1) / k * k) / static_cast<double>(n);
    if (d == 0 || waste < least) {
      best = static_cast<int>(d);
      least = waste;
    }
  }
  return best;
}

}  // namespace

Want Rules::operator()(const Value& value) const {
  Want want;
  if (value.name.find('%') != std::string::npos) return want;
  std::array<AtomList, 128> cuts{};
  std::optional<AtomList> zero;
  const bool gradient = value.name.starts_with("d."), of_ops = value.name.starts_with('@');
  for (const Line& line : lines_) {
    if (line.pattern.starts_with('@') != of_ops) continue;
    const bool of_value = gradient && !line.pattern.starts_with("d.");
    const char* name = value.name.c_str() + (of_value ? 2 : 0);
    if (fnmatch(line.pattern.c_str(), name, 0) != 0 ||
        fnmatch(line.labels.c_str(), value.labels.c_str(), 0) != 0)
      continue;
    want.asked = true;
    for (const auto& [label, list] : line.cuts) cuts[static_cast<size_t>(label)] = list;
    want.settle |= line.settle;
    want.fixed |= line.fixed && !of_value;
    if (line.zero && !of_value) zero = line.zero;
  }
  if (!want.asked) return want;
  AtomSet used = 0;
  for (size_t d = 0; d < value.labels.size(); ++d) {
    for (Atom a : cuts[static_cast<size_t>(value.labels[d])]) {
      if (!(used >> a & 1)) want.cuts[d].push(a);
    }
    used = static_cast<AtomSet>(used | want.cuts[d].set());
  }
  AtomList rest;
  for (Atom a : zero.value_or(AtomList{})) {
    if (!(used >> a & 1)) rest.push(a);
  }
  if (!rest.empty() && !value.labels.empty())
    want.cuts[dim_of_least_waste(value, want, rest, *mesh_)].append(rest);
  return want;
}

}  // namespace myriad
