// Strict reading of YAML on top of yaml-cpp. yaml-cpp only parses: which scalars are numbers, flags
// or null is decided here from their text, so that 1x is no number and "1" in quotes is text.
// YamlFile remembers which keys an override set; place() looks a key up there, then its parents,
// and then takes the line of the node, so that each error points at what the user wrote. Copies of
// a YAML::Node are references: to assign one would overwrite the tree, so override_with descends
// with reset(), and YamlMap::node asks a const node, because [] on another may insert keys. Read
// YamlMap's constructor first, then refuse.

#include "base/yaml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

namespace myriad {

namespace {

// The least number of insertions, removals and replacements of one character that make b of a.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

bool is_quoted(const YAML::Node& n) { return n.Tag() == "!"; }

template <class Load>
YAML::Node loaded(const std::string& name, Load load) {
  try {
    return load();
  } catch (const YAML::BadFile&) {
    throw Error("cannot be opened", name);
  } catch (const YAML::Exception& e) {
    throw Error(fmt::format("is not YAML: {}", e.msg),
                e.mark.is_null() ? name : fmt::format("{}:{}", name, e.mark.line + 1));
  }
}

const char* kind_of(const YAML::Node& n) {
  if (n.IsMap()) return "a map";
  if (n.IsSequence()) return "a list";
  return is_null(n) ? "nothing" : "a single value";
}

}  // namespace

std::string nearest(std::string_view given, const std::vector<std::string>& options) {
  std::string best;
  size_t least = 1 + given.size() / 2;
  for (const std::string& o : options) {
    if (std::is_permutation(given.begin(), given.end(), o.begin(), o.end())) return o;
    const bool part = given.size() >= 3 && (o.find(given) != std::string::npos ||
                                            (o.size() >= 3 && given.find(o) != std::string::npos));
    const size_t n = part ? std::min<size_t>(edits(given, o), 2) : edits(given, o);
    if (n < least) {
      least = n;
      best = o;
    }
  }
  return best;
}

bool is_null(const YAML::Node& n) {
  return !n.IsDefined() || n.IsNull() ||
         (n.IsScalar() && !is_quoted(n) &&
          (n.Scalar().empty() || n.Scalar() == "null" || n.Scalar() == "~"));
}

bool read_integer(const YAML::Node& n, int64_t& to) {
  if (!n.IsScalar() || is_quoted(n)) return false;
  const std::string& s = n.Scalar();
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), to);
  return error == std::errc() && end == s.data() + s.size();
}

bool read_number(const YAML::Node& n, double& to) {
  if (!n.IsScalar() || is_quoted(n)) return false;
  const std::string& s = n.Scalar();
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), to);
  return error == std::errc() && end == s.data() + s.size() && std::isfinite(to);
}

bool read_flag(const YAML::Node& n, bool& to) {
  if (!n.IsScalar() || is_quoted(n) || (n.Scalar() != "true" && n.Scalar() != "false"))
    return false;
  to = n.Scalar() == "true";
  return true;
}

YamlFile YamlFile::parse(const std::string& text, const std::string& name) {
  return YamlFile(loaded(name, [&] { return YAML::Load(text); }), name);
}

YamlFile YamlFile::open(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) throw Error("is a folder, not a file", path);
  return YamlFile(loaded(path, [&] { return YAML::LoadFile(path); }), path);
}

YamlFile::YamlFile(const YAML::Node& root, std::string name)
    : root_(is_null(root) ? YAML::Node(YAML::NodeType::Map) : root), name_(std::move(name)) {
  if (!root_.IsMap())
    throw Error(fmt::format("must be a map of keys, not {}", kind_of(root_)), place("", root_));
}

void YamlFile::override_with(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string option = "-s " + text;
  if (equals == std::string::npos || equals == 0)
    throw Error("an override is KEY=VALUE", option, "for instance -s layout.tp=4");
  const std::string key = text.substr(0, equals);
  const YAML::Node value = loaded(option, [&] { return YAML::Load(text.substr(equals + 1)); });
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    parts.push_back(key.substr(begin, end - begin));
    if (parts.back().empty())
      throw Error(fmt::format("key \"{}\" has an empty part", key), option,
                  "for instance -s layout.tp=4");
    begin = end + 1;
  }
  YAML::Node at = root_;
  std::string path;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    path += (i ? "." : "") + parts[i];
    YAML::Node next = at[parts[i]];
    if (is_null(next)) {
      at[parts[i]] = YAML::Node(YAML::NodeType::Map);
      next = at[parts[i]];
      overrides_[path] = option;
    }
    if (!next.IsMap())
      throw Error(fmt::format("{} is {}, it has no key {}", path, kind_of(next), parts[i + 1]),
                  option);
    at.reset(next);
  }
  at[parts.back()] = value;
  overrides_[key] = option;
}

std::string YamlFile::place(const std::string& key, const YAML::Node& node) const {
  for (std::string at = key;;) {
    if (const auto found = overrides_.find(at); found != overrides_.end()) return found->second;
    const size_t dot = at.rfind('.');
    if (dot == std::string::npos) break;
    at.resize(dot);
  }
  if (!node.IsDefined() || node.Mark().is_null()) return name_;
  return fmt::format("{}:{}", name_, node.Mark().line + 1);
}

YamlMap::YamlMap(const YamlFile& file, const YAML::Node& node, std::string key,
                 const std::vector<std::string>& known)
    : file_(file), node_(node), key_(std::move(key)), prefix_(key_.empty() ? "" : key_ + ".") {
  if (!is_null(node_) && !node_.IsMap()) {
    throw Error(fmt::format("{} must be a map of keys, not {}", key_, kind_of(node_)),
                file_.place(key_, node_),
                known.empty() ? "" : fmt::format("its keys: {}", fmt::join(known, ", ")));
  }
  std::set<std::string> seen;
  for (const auto& entry : node_) {
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "?";
    const std::string where = file_.place(prefix_ + name, entry.first);
    if (!seen.insert(name).second)
      throw Error(fmt::format("key {}{} is given twice", prefix_, name), where);
    if (known.empty() || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = nearest(name, known);
    throw Error(fmt::format("unknown key {}{}", prefix_, name), where,
                near.empty() ? fmt::format("legal keys{}: {}", key_.empty() ? "" : " of " + key_,
                                           fmt::join(known, ", "))
                             : fmt::format("did you mean {}{}?", prefix_, near));
  }
}

bool YamlMap::has(const std::string& key) const { return !is_null(node(key)); }

YAML::Node YamlMap::node(const std::string& key) const {
  const YAML::Node& n = node_;
  if (n.IsMap() && n[key].IsDefined()) return n[key];
  return YAML::Node(YAML::NodeType::Undefined);  // yaml-cpp's own throws when asked for its type
}

std::string YamlMap::place(const std::string& key) const {
  return file_.place(full(key), has(key) ? node(key) : node_);
}

YamlMap YamlMap::child(const std::string& key, const std::vector<std::string>& known) const {
  return YamlMap(file_, node(key), full(key), known);
}

std::vector<YamlMap> YamlMap::children(const std::string& key,
                                       const std::vector<std::string>& known) const {
  std::vector<YamlMap> out;
  if (!has(key)) return out;
  const YAML::Node list = node(key);
  if (!list.IsSequence()) refuse(key, "a list of maps");
  for (const auto& item : list)
    out.emplace_back(file_, item, fmt::format("{}.{}", full(key), out.size()), known);
  return out;
}

std::string YamlMap::shown(const std::string& key) const {
  YAML::Emitter out;
  out << YAML::Flow << node(key);
  std::string text = node(key).IsScalar() && is_quoted(node(key))
                         ? fmt::format("\"{}\"", node(key).Scalar())
                         : out.c_str();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

void YamlMap::refuse(const std::string& key, const std::string& rule,
                     const std::string& hint) const {
  throw Error(has(key) ? fmt::format("{} must be {}, not {}", full(key), rule, shown(key))
                       : fmt::format("{} is missing: it must be {}", full(key), rule),
              place(key), hint);
}

void YamlMap::refuse(const Error& error) const {
  const std::string message = error.what();
  const auto letter = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  std::string named;
  for (auto at = message.begin(); at != message.end() && named.empty();) {
    const auto end = std::find_if_not(at, message.end(), letter);
    if (const std::string word(at, end); node(word).IsDefined()) named = word;
    at = std::find_if(end, message.end(), letter);
  }
  const std::string where = named.empty() ? file_.place(key_, node_) : place(named);
  std::string what = message.substr(0, message.find("\n  hint: "));
  if (!error.where.empty() && what.starts_with(error.where + ": "))
    what = what.substr(error.where.size() + 2);
  throw Error(what,
              error.where.empty() || where.ends_with(error.where)
                  ? where
                  : fmt::format("{} ({})", where, error.where),
              error.hint);
}

void YamlMap::text(const std::string& key, std::string& to) const {
  if (!has(key)) return;
  if (!node(key).IsScalar()) refuse(key, "text");
  to = node(key).Scalar();
}

void YamlMap::flag(const std::string& key, bool& to) const {
  if (has(key) && !read_flag(node(key), to)) refuse(key, "true or false");
}

void YamlMap::integer(const std::string& key, int64_t least, int64_t most, int64_t& to) const {
  if (!has(key)) return;
  const std::string rule = most == INT64_MAX
                               ? fmt::format("a whole number of {} or more", least)
                               : fmt::format("a whole number from {} to {}", least, most);
  int64_t x = 0;
  double real = 0;
  if (!read_integer(node(key), x)) {
    if (!read_number(node(key), real)) refuse(key, rule);
    x = std::llround(
        std::clamp(real, static_cast<double>(least), std::min(static_cast<double>(most), 9e18)));
    if (static_cast<double>(x) != real) refuse(key, rule, fmt::format("nearest: {}", x));
  }
  if (x < least || x > most)
    refuse(key, rule, fmt::format("nearest: {}", std::clamp(x, least, most)));
  to = x;
}

void YamlMap::integer(const std::string& key, int64_t least, int64_t most, int& to) const {
  int64_t x = to;
  integer(key, least, most, x);
  to = static_cast<int>(x);
}

void YamlMap::integer(const std::string& key, uint64_t& to) const {
  int64_t x = static_cast<int64_t>(to);
  integer(key, 0, INT64_MAX, x);
  to = static_cast<uint64_t>(x);
}

void YamlMap::number(const std::string& key, double least, double most, double& to) const {
  if (!has(key)) return;
  const std::string rule = std::isinf(most) ? fmt::format("a number of {} or more", least)
                                            : fmt::format("a number from {} to {}", least, most);
  double x = 0;
  if (!read_number(node(key), x)) refuse(key, rule);
  if (x < least || x > most)
    refuse(key, rule, fmt::format("nearest: {}", std::clamp(x, least, most)));
  to = x;
}

void YamlMap::positive(const std::string& key, double& to, double most) const {
  if (!has(key)) return;
  const std::string rule =
      std::isinf(most) ? "a number above 0" : fmt::format("a number above 0 and at most {}", most);
  double x = 0;
  if (!read_number(node(key), x) || !(x > 0)) refuse(key, rule);
  if (x > most) refuse(key, rule, fmt::format("nearest: {}", most));
  to = x;
}

std::vector<std::string> YamlMap::texts(const std::string& key) const {
  std::vector<std::string> out;
  if (!has(key)) return out;
  const YAML::Node list = node(key);
  if (!list.IsSequence()) refuse(key, "a list of texts", "for instance [\"one\", \"two\"]");
  for (const auto& n : list) {
    if (!n.IsScalar()) refuse(key, "a list of texts");
    out.push_back(n.Scalar());
  }
  return out;
}

std::vector<int> YamlMap::integers(const std::string& key) const {
  std::vector<int> out;
  if (!has(key)) return out;
  const YAML::Node list = node(key);
  if (!list.IsSequence()) refuse(key, "a list of whole numbers", "for instance [1, 2]");
  for (const auto& n : list) {
    int64_t x = 0;
    if (!read_integer(n, x) || x < INT32_MIN || x > INT32_MAX)
      refuse(key, "a list of whole numbers", "for instance [1, 2]");
    out.push_back(static_cast<int>(x));
  }
  return out;
}

int YamlMap::choice(const std::string& key, const std::vector<std::string>& names) const {
  if (!has(key)) return -1;
  const std::string given = node(key).IsScalar() ? node(key).Scalar() : "";
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == given) return static_cast<int>(i);
  }
  const std::string near = nearest(given, names);
  refuse(key, fmt::format("one of {}", fmt::join(names, ", ")),
         near.empty() ? "" : fmt::format("did you mean {}?", near));
}

namespace {

void flatten(const YAML::Node& node, const std::string& key,
             std::map<std::string, std::string>& to) {
  if (node.IsMap()) {
    for (const auto& entry : node)
      flatten(entry.second, (key.empty() ? "" : key + ".") + entry.first.Scalar(), to);
    return;
  }
  YAML::Emitter out;
  out << YAML::Flow << node;
  to[key] = node.IsScalar() ? node.Scalar() : out.c_str();
}

}  // namespace

std::map<std::string, std::string> flatten(const YAML::Node& root) {
  std::map<std::string, std::string> out;
  flatten(root, "", out);
  return out;
}

}  // namespace myriad
