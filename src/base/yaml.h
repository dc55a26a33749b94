// YAML files, read strictly: unknown and repeated keys, wrong types and illegal values throw Error
// that names file:line (or the override), key, value, rule and the nearest legal key or value. A
// null counts as not given; text in quotes is text.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad {

// A YAML document, a map at its root, and where its nodes stand.
class YamlFile {
 public:
  // Both throw Error for what is not YAML or no map, open also for what cannot be opened.
  static YamlFile open(const std::string& path);
  static YamlFile parse(const std::string& text, const std::string& name);

  // "a.b=VALUE"; VALUE is YAML. The key need not exist. Throws Error for another form, for VALUE
  // that is not YAML, and where a part of the key before the last is no map.
  void override_with(const std::string& text);

  const YAML::Node& root() const { return root_; }
  // "run.yaml:12", or "-s layout.tp=4" for what an override set.
  std::string place(const std::string& key, const YAML::Node& node) const;

 private:
  YamlFile(const YAML::Node& root, std::string name);

  YAML::Node root_;
  std::string name_;
  std::map<std::string, std::string> overrides_;  // key -> the option
};

// One map of a file, which must outlive it. Values are read into `to`, which stays as it is if the
// key is not given; each reader throws Error for a value that is not as its name says.
class YamlMap {
 public:
  // The map `node` at `key` ("" for the root, "train.optimizer"); null counts as empty. `known`:
  // its legal keys; none: any. Throws Error if it is no map or has a key twice or an unknown one.
  YamlMap(const YamlFile& file, const YAML::Node& node, std::string key,
          const std::vector<std::string>& known);

  bool has(const std::string& key) const;
  YAML::Node node(const std::string& key) const;  // undefined if the key is not given
  std::string full(const std::string& key) const { return prefix_ + key; }
  std::string place(const std::string& key) const;  // of a key; of the map if it is not given
  // As the constructor; empty if the key is not given.
  YamlMap child(const std::string& key, const std::vector<std::string>& known) const;
  // The maps of a list, each named by its place: "data.sources.0". None if the key is not given.
  std::vector<YamlMap> children(const std::string& key,
                                const std::vector<std::string>& known) const;

  void text(const std::string& key, std::string& to) const;
  void flag(const std::string& key, bool& to) const;
  // least <= x <= most; 1e3 is a whole number too.
  void integer(const std::string& key, int64_t least, int64_t most, int64_t& to) const;
  void integer(const std::string& key, int64_t least, int64_t most, int& to) const;
  void integer(const std::string& key, uint64_t& to) const;
  void number(const std::string& key, double least, double most, double& to) const;
  void positive(const std::string& key, double& to,
                double most = std::numeric_limits<double>::infinity()) const;  // 0 < x <= most
  // Of a list; none if the key is not given.
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<int> integers(const std::string& key) const;
  // The index of the value among the names; -1 if not given.
  int choice(const std::string& key, const std::vector<std::string>& names) const;

  // Throws Error: the key must be what the rule says, not what it is, or it is missing.
  [[noreturn]] void refuse(const std::string& key, const std::string& rule,
                           const std::string& hint = "") const;
  // Adds the place of the first key of this map that the message names, and throws it again.
  [[noreturn]] void refuse(const Error& error) const;

 private:
  std::string shown(const std::string& key) const;

  const YamlFile& file_;
  YAML::Node node_;
  std::string key_, prefix_;
};

// All scalars and lists by their full keys ("train.optimizer.beta1"), lists as flow text.
std::map<std::string, std::string> flatten(const YAML::Node& root);

// The option nearest to `given` by edits, or empty if none is near.
std::string nearest(std::string_view given, const std::vector<std::string>& options);

// A scalar as YAML 1.2's core schema has it: quoted is text; null, true, numbers by their looks,
// which are finite. False: it is none of the kind.
bool is_null(const YAML::Node& node);
bool read_integer(const YAML::Node& node, int64_t& to);
bool read_number(const YAML::Node& node, double& to);
bool read_flag(const YAML::Node& node, bool& to);

}  // namespace myriad
