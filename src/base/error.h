// The loud forms of failure. Bad input throws Error (caught in main only, exit status 2); a
// broken invariant aborts through CHECK with the values. Expected faults are returned as Outcome.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace myriad {

// Bad input: what rule was broken, where (file, key, value), and the nearest legal values.
struct Error : std::runtime_error {
  explicit Error(std::string what, std::string where = "", std::string hint = "");
  std::string where, hint;
};

// A file that is not what was once written: cut short, changed, contradicting itself. Exit
// status 1.
struct Damage : Error {
  using Error::Error;
};

// A run that started and had to stop (non-finite loss, full disk, failed check): exit status 1.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An expected fault (peer lost, disk full, time-out): ok, or the reason.
struct [[nodiscard]] Outcome {
  std::string reason;  // empty: ok
  bool ok() const { return reason.empty(); }
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line, std::string text);

}  // namespace myriad

// CHECK(a == b, "a is {} and b is {}", a, b)
#define CHECK(condition, ...)                                                                \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::myriad::check_failed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
