// One map of a YAML file with its place, read strictly: unknown and repeated keys, wrong types and
// illegal values throw Error that names file:line (or the override), key, value, rule and the
// nearest legal key or value. A null counts as not given.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad {

// A YAML document and where its nodes stand. Throws Error for a file that cannot be opened or is
// not YAML.
class YamlFile {
 public:
  static YamlFile open(const std::string& path);
  static YamlFile empty(std::string name);

  // "a.b=VALUE"; VALUE is YAML. The key need not exist.
  void override_with(const std::string& text);

  YAML::Node root() const { return root_; }
  const std::string& name() const { return name_; }
  // "run.yaml:12", or "-s layout.tp=4" for what an override set.
  std::string place(const std::string& key, const YAML::Node& node) const;

 private:
  YAML::Node root_;
  std::string name_;
  std::map<std::string, std::string> overrides_;  // key -> the option
};

// The option nearest to `given` by edits, or empty if none is near.
std::string nearest(std::string_view given, const std::vector<std::string>& options);

class Settings {
 public:
  // The map at `key` ("" for the root, "train.optimizer"); absent counts as empty. `known`: its
  // legal keys.
  Settings(const YamlFile& document, YAML::Node node, std::string key,
           std::vector<std::string> known);

  bool has(const char* key) const;
  YAML::Node node(const char* key) const;
  std::string place(const char* key) const;  // of a key; of the map if the key is not given
  std::string full(const char* key) const { return prefix_ + key; }
  Settings child(const char* key, std::vector<std::string> known) const;
  // The maps of a list, each named by its place: "data.sources.0". None if the key is not given.
  std::vector<Settings> children(const char* key, const std::vector<std::string>& known) const;

  // Each leaves `to` alone if the key is not given.
  void text(const char* key, std::string& to) const;
  void flag(const char* key, bool& to) const;
  void integer(const char* key, int64_t least, int64_t most, int64_t& to) const;
  void integer(const char* key, int64_t least, int64_t most, int& to) const;
  void integer(const char* key, uint64_t& to) const;
  void number(const char* key, double least, double most, double& to) const;  // least <= x <= most
  void positive(const char* key, double& to) const;
  std::vector<std::string> texts(const char* key) const;
  std::vector<int> integers(const char* key) const;
  // The index of the value among the names; -1 if not given.
  int choice(const char* key, const std::vector<std::string>& names) const;

  [[noreturn]] void refuse(const char* key, const std::string& rule,
                           const std::string& hint = "") const;
  // Adds the place of the first key of this map that the message names, and throws it again.
  [[noreturn]] void refuse(const Error& error) const;

 private:
  std::string shown(const char* key) const;

  const YamlFile& document_;
  YAML::Node node_;
  std::string key_, prefix_;
  std::vector<std::string> known_;
};

// A scalar as YAML 1.2's core schema has it: quoted is text; null, true, numbers by their looks.
bool is_null(const YAML::Node& node);
bool is_quoted(const YAML::Node& node);
bool read_integer(const YAML::Node& node, int64_t& to);
bool read_number(const YAML::Node& node, double& to);
bool read_flag(const YAML::Node& node, bool& to);

}  // namespace myriad
