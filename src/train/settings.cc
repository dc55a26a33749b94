#include "train/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>

namespace myriad {

namespace {

// Of 1-edits: insert, remove, replace.
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

YAML::Node parse(const std::string& name, const std::function<YAML::Node()>& load) {
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

bool is_quoted(const YAML::Node& n) { return n.Tag() == "!"; }

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

YamlFile YamlFile::open(const std::string& path) {
  YamlFile d;
  d.name_ = path;
  if (std::filesystem::is_directory(path)) throw Error("is a folder, not a run file", path);
  d.root_ = parse(path, [&] { return YAML::LoadFile(path); });
  if (is_null(d.root_)) d.root_ = YAML::Node(YAML::NodeType::Map);
  if (!d.root_.IsMap())
    throw Error(fmt::format("a run file is a map of keys, not {}", kind_of(d.root_)), path);
  return d;
}

YamlFile YamlFile::empty(std::string name) {
  YamlFile d;
  d.name_ = std::move(name);
  d.root_ = YAML::Node(YAML::NodeType::Map);
  return d;
}

void YamlFile::override_with(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string option = "-s " + text;
  if (equals == std::string::npos || equals == 0)
    throw Error("an override is KEY=VALUE", option, "for instance -s layout.tp=4");
  const std::string key = text.substr(0, equals);
  const YAML::Node value = parse(option, [&] { return YAML::Load(text.substr(equals + 1)); });
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

Settings::Settings(const YamlFile& document, YAML::Node node, std::string key,
                   std::vector<std::string> known)
    : document_(document),
      node_(is_null(node) ? YAML::Node(YAML::NodeType::Map) : node),
      key_(std::move(key)),
      prefix_(key_.empty() ? "" : key_ + "."),
      known_(std::move(known)) {
  if (!node_.IsMap()) {
    throw Error(fmt::format("{} must be a map of keys, not {}", key_, kind_of(node_)),
                document_.place(key_, node_), fmt::format("its keys: {}", fmt::join(known_, ", ")));
  }
  std::set<std::string> seen;
  for (const auto& entry : node_) {
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "?";
    const std::string where = document_.place(prefix_ + name, entry.first);
    if (!seen.insert(name).second)
      throw Error(fmt::format("key {}{} is given twice", prefix_, name), where);
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string near = nearest(name, known_);
    throw Error(fmt::format("unknown key {}{}", prefix_, name), where,
                near.empty() ? fmt::format("legal keys{}: {}", key_.empty() ? "" : " of " + key_,
                                           fmt::join(known_, ", "))
                             : fmt::format("did you mean {}{}?", prefix_, near));
  }
}

bool Settings::has(const char* key) const { return !is_null(node(key)); }

YAML::Node Settings::node(const char* key) const {
  const YAML::Node& n = node_;
  return n[key];
}

std::string Settings::place(const char* key) const {
  return document_.place(full(key), node(key).IsDefined() ? node(key) : node_);
}

Settings Settings::child(const char* key, std::vector<std::string> known) const {
  return Settings(document_, node(key), full(key), std::move(known));
}

std::vector<Settings> Settings::children(const char* key,
                                         const std::vector<std::string>& known) const {
  std::vector<Settings> out;
  if (!has(key)) return out;
  const YAML::Node list = node(key);
  if (!list.IsSequence()) refuse(key, "a list of maps");
  for (const auto& item : list)
    out.emplace_back(document_, item, fmt::format("{}.{}", full(key), out.size()), known);
  return out;
}

std::string Settings::shown(const char* key) const {
  YAML::Emitter out;
  out << YAML::Flow << node(key);
  std::string text = node(key).IsScalar() && is_quoted(node(key))
                         ? fmt::format("\"{}\"", node(key).Scalar())
                         : out.c_str();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

void Settings::refuse(const char* key, const std::string& rule, const std::string& hint) const {
  throw Error(has(key) ? fmt::format("{} must be {}, not {}", full(key), rule, shown(key))
                       : fmt::format("{} is missing: it must be {}", full(key), rule),
              place(key), hint);
}

void Settings::refuse(const Error& error) const {
  const std::string message = error.what();
  size_t first = std::string::npos;
  std::string named;
  for (const auto& entry : node_) {
    const std::string name = entry.first.Scalar();
    for (size_t at = message.find(name); at != std::string::npos; at = message.find(name, at + 1)) {
      const auto letter = [&](size_t i) {
        return i < message.size() &&
               (std::isalnum(static_cast<unsigned char>(message[i])) || message[i] == '_');
      };
      if ((at > 0 && letter(at - 1)) || letter(at + name.size())) continue;
      if (at < first) {
        first = at;
        named = name;
      }
      break;
    }
  }
  const std::string where = named.empty() ? document_.place(key_, node_) : place(named.c_str());
  std::string what = message.substr(0, message.find("\n  hint: "));
  if (!error.where.empty() && what.starts_with(error.where + ": "))
    what = what.substr(error.where.size() + 2);
  throw Error(what,
              error.where.empty() || where.ends_with(error.where)
                  ? where
                  : fmt::format("{} ({})", where, error.where),
              error.hint);
}

void Settings::text(const char* key, std::string& to) const {
  if (!has(key)) return;
  if (!node(key).IsScalar()) refuse(key, "text");
  to = node(key).Scalar();
}

void Settings::flag(const char* key, bool& to) const {
  if (has(key) && !read_flag(node(key), to)) refuse(key, "true or false");
}

void Settings::integer(const char* key, int64_t least, int64_t most, int64_t& to) const {
  if (!has(key)) return;
  const std::string rule = most == INT64_MAX
                               ? fmt::format("a whole number of {} or more", least)
                               : fmt::format("a whole number from {} to {}", least, most);
  int64_t x = 0;
  if (!read_integer(node(key), x)) {
    double d = 0;
    if (!read_number(node(key), d)) refuse(key, rule);
    refuse(key, rule,
           fmt::format("nearest: {}",
                       std::llround(std::clamp(d, static_cast<double>(least),
                                               std::min(static_cast<double>(most), 9e18)))));
  }
  if (x < least || x > most)
    refuse(key, rule, fmt::format("nearest: {}", std::clamp(x, least, most)));
  to = x;
}

void Settings::integer(const char* key, int64_t least, int64_t most, int& to) const {
  int64_t x = to;
  integer(key, least, most, x);
  to = static_cast<int>(x);
}

void Settings::integer(const char* key, uint64_t& to) const {
  int64_t x = static_cast<int64_t>(to);
  integer(key, 0, INT64_MAX, x);
  to = static_cast<uint64_t>(x);
}

void Settings::number(const char* key, double least, double most, double& to) const {
  if (!has(key)) return;
  const std::string rule = std::isinf(most) ? fmt::format("a number of {} or more", least)
                                            : fmt::format("a number from {} to {}", least, most);
  double x = 0;
  if (!read_number(node(key), x)) refuse(key, rule);
  if (x < least || x > most)
    refuse(key, rule, fmt::format("nearest: {}", std::clamp(x, least, most)));
  to = x;
}

void Settings::positive(const char* key, double& to) const {
  if (!has(key)) return;
  double x = 0;
  if (!read_number(node(key), x) || !(x > 0)) refuse(key, "a number above 0");
  to = x;
}

std::vector<std::string> Settings::texts(const char* key) const {
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

std::vector<int> Settings::integers(const char* key) const {
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

int Settings::choice(const char* key, const std::vector<std::string>& names) const {
  if (!has(key)) return -1;
  const std::string given = node(key).IsScalar() ? node(key).Scalar() : "";
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == given) return static_cast<int>(i);
  }
  const std::string near = nearest(given, names);
  refuse(key, fmt::format("one of {}", fmt::join(names, ", ")),
         near.empty() ? "" : fmt::format("did you mean {}?", near));
}

}  // namespace myriad
