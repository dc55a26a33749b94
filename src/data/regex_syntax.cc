// Translates regular expressions from Oniguruma's syntax to ICU's, in one pass and without a syntax
// tree. The two languages agree on most of what tokenizers use, and where they differ they usually
// do so silently: the same characters match other texts. So the translation copies only what is
// known to mean the same, rewrites what has an equal in the other language, and refuses everything
// else; a pattern that is accepted cuts words as the tokenizer's author meant. Each branch that
// rewrites or refuses stands for one such difference. Read Translation::run first.

#include "data/regex_syntax.h"

#include <unicode/uchar.h>

#include <cctype>
#include <cstring>

#include "base/error.h"

namespace myriad {

namespace {

class Translation {
 public:
  explicit Translation(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (classes_ > 0) {
        in_class(c);
      } else if (c == '[') {
        open_class();
      } else if (c == '(' && peek(1) == '?') {
        group();
      } else if (c == '{') {
        interval();
      } else {
        out_ += in_[at_++];
      }
    }
    if (classes_ > 0) refuse("a [ without ]");
    return std::move(out_);
  }

 private:
  char peek(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(fmt::format("the pattern \"{}\" has {}, which is not supported", in_, what));
  }

  void escape() {
    const char c = peek(1);
    const bool inside = classes_ > 0;
    if (c == '\0') refuse("a \\ at its end");
    if (c == 'p' || c == 'P') return property();
    if (c == 'x') return code_point();
    at_ += 2;
    if (c == 'w' || (c == 'W' && !inside)) {
      const char* word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
      // Outside of classes, Oniguruma's table of Latin-1 has the small figures and fractions too.
      const char* latin = R"(\u00B2\u00B3\u00B9\u00BC-\u00BE)";
      out_ += inside ? word : fmt::format("[{}{}{}]", c == 'W' ? "^" : "", word, latin);
    } else if (c == 'h') {
      out_ += inside ? "0-9a-fA-F" : "[0-9a-fA-F]";
    } else if (c == 'v') {
      out_ += "\\x0b";
    } else if (std::isalnum(static_cast<unsigned char>(c)) && !std::strchr("dDsSnrtfaeu", c)) {
      refuse(fmt::format("\\{}", c));
    } else {
      out_ += '\\';
      out_ += c;
    }
  }

  // General categories and scripts only: other names do not mean the same in both.
  void property() {
    const size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) refuse("\\p without {}");
    const std::string name(in_.substr(at_ + 3, close - at_ - 3));
    const bool category =
        name.size() <= 2 && u_getPropertyValueEnum(UCHAR_GENERAL_CATEGORY_MASK, name.c_str()) > 0;
    if (name != "Alphabetic" && !category &&
        u_getPropertyValueEnum(UCHAR_SCRIPT, name.c_str()) < 0) {
      refuse(fmt::format("\\p{{{}}}", name));
    }
    out_ += in_.substr(at_, close + 1 - at_);
    at_ = close + 1;
  }

  // \x{...} only: without braces it is a byte in Oniguruma.
  void code_point() {
    const size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) refuse("\\x without {}");
    out_ += in_.substr(at_, close + 1 - at_);
    at_ = close + 1;
  }

  void open_class() {
    if (peek(1) == ':') refuse("a POSIX bracket");
    ++classes_;
    out_ += in_[at_++];
    if (peek(0) == '^') out_ += in_[at_++];
    if (peek(0) == ']') refuse("an empty class");
  }

  void in_class(char c) {
    if (c == '[') return open_class();
    if (c == ']') --classes_;
    if (c == '-' && (peek(1) == '-' || peek(1) == '[')) refuse(fmt::format("-{}", peek(1)));
    if (c == '&' && peek(1) == '&') {
      out_ += "&&";
      at_ += 2;
      return;
    }
    if (c != '\0' && std::strchr("&{}|~^$:#", c)) out_ += '\\';
    out_ += in_[at_++];
  }

  void group() {
    for (const std::string_view legal : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (in_.substr(at_, legal.size()) == legal) {
        out_ += legal;
        at_ += legal.size();
        return;
      }
    }
    // Elsewhere Ruby's flag also takes in the alternatives after it.
    if (at_ == 0 && in_.starts_with("(?i)")) {
      out_ += "(?i)";
      at_ = 4;
      return;
    }
    refuse(fmt::format("the group {}", in_.substr(at_, 4)));
  }

  // {n}, {n,}, {n,m} and {,m}; any other brace is a character of its own.
  void interval() {
    size_t end = at_ + 1;
    std::string low, high;
    const auto digits = [&](std::string& number) {
      while (end < in_.size() && in_[end] >= '0' && in_[end] <= '9') number += in_[end++];
    };
    digits(low);
    const bool comma = end < in_.size() && in_[end] == ',';
    if (comma) digits((++end, high));
    if (end >= in_.size() || in_[end] != '}' || (low.empty() && high.empty())) {
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ = end + 1;
    if (low.empty()) low.push_back('0');
    if (peek(0) == '+') {  // Ruby repeats the interval; ICU would hold on to what it matched
      if (low != "0" && low != "1") refuse("{n,m}+");
      out_ += low == "0" ? "*" : "+";
      ++at_;
      return;
    }
    if (peek(0) == '?' && !comma) refuse("{n}?");
    out_ += comma ? fmt::format("{{{},{}}}", low, high) : fmt::format("{{{}}}", low);
  }

  std::string_view in_;
  size_t at_ = 0;
  int classes_ = 0;  // depth
  std::string out_;
};

}  // namespace

std::string icu_pattern(std::string_view oniguruma) { return Translation(oniguruma).run(); }

std::string regex_of_literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c))) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace myriad
