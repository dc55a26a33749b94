// Readers and writers of one field of RunConfig, made from the path to the field (pointers to
// members) and its legal range: what most entries of the table of keys are made of (run_keys.h).
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "train/run_keys.h"

namespace myriad {

// The keys of the section "layout" (run_keys_layout.cc).
std::span<const RunKey> layout_keys();

namespace run_fields {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
using Names = std::vector<std::string>;

// Fields by their path: field<&RunConfig::train, &TrainConfig::steps>(config).
template <auto... Path>
auto& field(auto& config) {
  return (config.*....*Path);
}

template <int64_t Least, int64_t Most, auto... Path>
void integer(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.integer(key, Least, Most, field<Path...>(c));
}
template <auto... Path>
void not_negative(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.number(key, 0, kInfinite, field<Path...>(c));
}
template <auto... Path>
void positive(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.positive(key, field<Path...>(c));
}
template <auto... Path>
void flag(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.flag(key, field<Path...>(c));
}
template <auto... Path>
void text(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.text(key, field<Path...>(c));
}
// An enumeration whose values have these names, in order.
template <const Names& Of, auto... Path>
void choice(const YamlMap& s, const std::string& key, RunConfig& c) {
  auto& to = field<Path...>(c);
  if (const int i = s.choice(key, Of); i >= 0) to = static_cast<std::decay_t<decltype(to)>>(i);
}

template <auto... Path>
std::string plain(const RunConfig& c) {
  return fmt::format("{}", field<Path...>(c));
}
template <auto... Path>
std::string quoted(const RunConfig& c) {
  return quoted_text(field<Path...>(c));
}
template <auto... Path>
std::string quoted_if_any(const RunConfig& c) {
  return field<Path...>(c).empty() ? "" : quoted_text(field<Path...>(c));
}
template <const Names& Of, auto... Path>
std::string named(const RunConfig& c) {
  return Of[static_cast<size_t>(field<Path...>(c))];
}

}  // namespace run_fields

}  // namespace myriad
