// Regular expressions of tokenizer.json files are Oniguruma's (Ruby's syntax); ICU computes them
// here.
#pragma once

#include <string>
#include <string_view>

namespace myriad {

// The ICU expression, for flags UREGEX_MULTILINE | UREGEX_UNIX_LINES, that means the same. Throws
// Error naming the part that would mean something else or is not supported: flags other than i,
// word boundaries, back references, POSIX brackets, named groups.
std::string icu_pattern(std::string_view oniguruma);

// An expression that matches the text itself.
std::string regex_of_literal(std::string_view text);

}  // namespace myriad
