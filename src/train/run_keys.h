// The keys of a run file, each described once. What reads a run file, what writes the resolved one,
// the list of legal keys and the tables of docs/configuration.md (`myriad show keys`) all walk this
// table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"
#include "train/run_config.h"

namespace myriad {

struct RunKey {
  std::string_view name;
  std::string_view type;  // as the documentation says it: integer, number, text, name, ...
  // The default as the documentation says it; empty: what `write` makes of a fresh RunConfig.
  std::string_view fallback;
  std::string_view rule;  // legal values, and what the key is for
  // Reads the key into the configuration; leaves it as it is if the key is not given. Throws Error
  // for an illegal value. May look at fields whose keys stand before it in the table. Null: read
  // together with another key, or by read_run.
  void (*read)(const YamlMap& section, const std::string& key, RunConfig& config);
  // The value as YAML; of a section its lines. Empty: the key is left out of a written run file.
  std::string (*write)(const RunConfig& config);
};

// In the order in which they are read and written. Sections: "" (the root), "data", "train",
// "train.optimizer", "layout", "generate". CHECKs that there is such a section.
std::span<const RunKey> run_keys(std::string_view section);
std::vector<std::string> run_sections();
std::vector<std::string> names_of_keys(std::string_view section);

// Reads all keys of a section of the file; `section` is the map of that name.
void read_keys(const YamlMap& section, std::string_view name, RunConfig& config);
// "KEY: VALUE\n" for every key of the section that is written, indented in all but the root.
std::string write_keys(std::string_view section, const RunConfig& config);

// The section's keys as a table in Markdown: key, type, default, rule.
std::string table_of_keys(std::string_view section);

// A name for people: the file's or folder's without what follows the first dot.
std::string name_of_source(const std::string& path);
// Text as YAML and JSON both read it.
std::string quoted_text(const std::string& text);
// Whether there is such a file or folder; also of a name that no file can have.
bool path_exists(const std::string& path);

}  // namespace myriad
