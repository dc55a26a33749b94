// Typed look-ups in the settings of a config.json; used inside model/ only.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"

namespace myriad {

inline std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Typed look-ups in one JSON object. A null counts as absent, as it does for Transformers.
class Keys {
 public:
  using json = nlohmann::json;
  static constexpr int64_t kLargest = 1'000'000'000;  // of one size: products of two still fit

  Keys(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("expected an object of settings, not " + shown(object));
  }

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  const json& value(const char* key) const { return object_[key]; }
  const json& object() const { return object_; }
  const std::string& where() const { return where_; }

  int64_t size(const char* key) const {
    need(key, "an integer of at least 1");
    const json& v = object_[key];
    if (!v.is_number_integer() || v < 1 || v > kLargest) {
      fail(fmt::format("{} must be an integer from 1 to {}, not {}", key, kLargest, shown(v)));
    }
    return v.get<int64_t>();
  }
  int64_t size(const char* key, int64_t otherwise) const {
    return has(key) ? size(key) : otherwise;
  }

  // An integer of 0 or more; absent, it is 0.
  int64_t count(const char* key) const {
    if (!has(key)) return 0;
    const json& v = object_[key];
    if (!v.is_number_integer() || v < 0 || v > kLargest) {
      fail(fmt::format("{} must be an integer from 0 to {}, not {}", key, kLargest, shown(v)));
    }
    return v.get<int64_t>();
  }

  double positive(const char* key) const {
    need(key, "a number above 0");
    const json& v = object_[key];
    if (!v.is_number() || !(v.get<double>() > 0) || !std::isfinite(v.get<double>())) {
      fail(fmt::format("{} must be a number above 0, not {}", key, shown(v)));
    }
    return v.get<double>();
  }
  double positive(const char* key, double otherwise) const {
    return has(key) ? positive(key) : otherwise;
  }

  // A coefficient: absent, it is `otherwise`.
  double at_least_zero(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    const json& v = object_[key];
    if (!v.is_number() || !(v.get<double>() >= 0) || !std::isfinite(v.get<double>())) {
      fail(fmt::format("{} must be a number of at least 0, not {}", key, shown(v)));
    }
    return v.get<double>();
  }

  bool flag(const char* key, bool otherwise) const { return has(key) ? flag(key) : otherwise; }
  bool flag(const char* key) const {
    need(key, "true or false");
    if (!object_[key].is_boolean()) {
      fail(fmt::format("{} must be true or false, not {}", key, shown(object_[key])));
    }
    return object_[key].get<bool>();
  }

  std::string text(const char* key) const {
    need(key, "a string");
    if (!object_[key].is_string()) {
      fail(fmt::format("{} must be a string, not {}", key, shown(object_[key])));
    }
    return object_[key].get<std::string>();
  }

  // Absent, or exactly `only`.
  void supports_only(const char* key, const json& only) const {
    if (has(key) && object_[key] != only) unsupported(key, shown(only));
  }
  [[noreturn]] void unsupported(const char* key, const std::string& supported) const {
    fail(fmt::format("{} is {}, which is not supported", key, shown(object_[key])),
         fmt::format("supported: {}", supported));
  }
  [[noreturn]] void fail(std::string what, std::string hint = "") const {
    throw Error(std::move(what), where_, std::move(hint));
  }

 private:
  void need(const char* key, const char* kind) const {
    if (!has(key)) fail(fmt::format("{} is missing", key), fmt::format("it is {}", kind));
  }

  const json& object_;
  std::string where_;
};

}  // namespace myriad
