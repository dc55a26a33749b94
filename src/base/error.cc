#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace myriad {

namespace {

std::string message(const std::string& what, const std::string& where, const std::string& hint) {
  std::string text = where.empty() ? what : where + ": " + what;
  return hint.empty() ? text : text + "\n  hint: " + hint;
}

}  // namespace

Error::Error(std::string what, std::string where_, std::string hint_)
    : std::runtime_error(message(what, where_, hint_)),
      where(std::move(where_)),
      hint(std::move(hint_)) {}

void check_failed(const char* condition, const char* file, int line, std::string text) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed%s%s\n", file, line, condition,
               text.empty() ? "" : ": ", text.c_str());
  std::abort();
}

}  // namespace myriad
