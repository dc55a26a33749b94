// What the parser of programs reads: lines, token by token, and names. A Line is a view: the text
// outlives it. For parsers of what the project itself prints.
#pragma once

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "ir/dtype.h"

namespace myriad {

// One line, read from the left, token by token.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) { skip(); }

  [[noreturn]] void fail(std::string_view expected) const {
    const std::string found = rest_.empty() ? "the end" : fmt::format("\"{}\"", rest_);
    throw Error(fmt::format("expected {}, found {}", expected, found),
                fmt::format("line {}", number_));
  }
  // What f says, with this line's number.
  template <class F>
  auto at(F f) const {
    try {
      return f();
    } catch (const Error& e) {
      throw Error(e.what(), fmt::format("line {}", number_));
    }
  }

  bool done() const { return rest_.empty(); }
  void finish() const {
    if (!done()) fail("the end of the line");
  }
  bool quoted() const { return rest_.starts_with('"'); }
  bool punctuation() const {
    return done() || kMarks.find(rest_[0]) != kMarks.npos || rest_.starts_with("->");
  }
  std::string_view rest() const { return rest_; }
  // The next token as it stands, without taking it.
  std::string_view peek() const { return rest_.substr(0, length()); }

  bool take(std::string_view token) {
    if (peek() != token) return false;
    advance(token.size());
    return true;
  }
  void need(std::string_view token) {
    if (!take(token)) fail(fmt::format("\"{}\"", token));
  }

  std::string word(std::string_view expected) {
    if (quoted()) return unquote(expected);
    if (punctuation()) fail(expected);
    const std::string out(peek());
    advance(out.size());
    return out;
  }

  template <class T>
  T number(std::string_view expected) {
    const std::string_view token = peek();
    T x{};
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), x);
    if (token.empty() || error != std::errc() || end != token.data() + token.size()) fail(expected);
    advance(token.size());
    return x;
  }
  int natural(std::string_view expected) {
    const Line before = *this;
    const int i = number<int>(expected);
    if (i < 0) before.fail(expected);
    return i;
  }
  int index(size_t size, std::string_view what) {
    const Line before = *this;
    const int i = number<int>(what);
    if (i < 0 || static_cast<size_t>(i) >= size)
      before.fail(fmt::format("{} below {}", what, size));
    return i;
  }

  // "[ ... ]", the text inside.
  std::string_view brackets(std::string_view expected) {
    const size_t close = rest_.find(']');
    if (done() || rest_[0] != '[' || close == rest_.npos) fail(expected);
    const std::string_view inside = rest_.substr(1, close - 1);
    advance(close + 1);
    return inside;
  }
  Line inside(std::string_view expected) { return part(brackets(expected)); }
  Line part(std::string_view text) const { return {text, number_}; }

  template <class F>
  void list(F item) {
    do {
      item();
    } while (take(","));
  }
  template <class F>
  void parenthesised(F item) {
    need("(");
    if (take(")")) return;
    list(item);
    need(")");
  }

 private:
  static constexpr std::string_view kMarks = "()[],=#";

  void skip() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r'))
      rest_.remove_prefix(1);
  }
  void advance(size_t n) {
    rest_.remove_prefix(n);
    skip();
  }
  size_t length() const {
    if (done()) return 0;
    if (rest_.starts_with("->")) return 2;
    if (kMarks.find(rest_[0]) != kMarks.npos) return 1;
    return std::min(rest_.find_first_of(" \t\r()[],=#\"", quoted() ? 1 : 0), rest_.size());
  }
  std::string unquote(std::string_view expected) {
    std::string out;
    for (size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        advance(i + 1);
        return out;
      }
      const bool escape = rest_[i] == '\\' && i + 1 < rest_.size();
      if (escape) ++i;
      out += escape && rest_[i] == 'n' ? '\n' : rest_[i];
    }
    fail(fmt::format("{} with a closing quote", expected));
  }

  std::string_view rest_;
  int number_;
};

// The lines that say something.
inline std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> out;
  int number = 1;
  for (; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const Line line(text.substr(0, end), number);
    if (!line.done() && line.peek() != "#") out.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out.emplace_back("", number);
  return out;
}

// Items by name, or by name and "#index".
class Names {
 public:
  void add(const std::string& name) {
    first_.try_emplace(name, static_cast<int>(names_.size()));
    names_.push_back(name);
  }
  int parse(Line& line, std::string_view what) const {
    const Line before = line;
    const auto at = first_.find(line.word(what));
    if (at == first_.end()) before.fail(fmt::format("a known {}", what));
    if (!line.take("#")) return at->second;
    const int i = line.index(names_.size(), "an index");
    if (names_[i] != at->first) before.fail(fmt::format("#{} to be {}", i, names_[i]));
    return i;
  }

 private:
  std::map<std::string, int> first_;
  std::vector<std::string> names_;
};

template <class E>
E named(Line& line, std::initializer_list<E> all, std::string_view what) {
  std::string legal;
  for (E e : all) {
    if (line.take(name_of(e))) return e;
    legal += fmt::format(" {}", name_of(e));
  }
  line.fail(fmt::format("{}:{}", what, legal));
}

inline DType parse_dtype(Line& line) {
  return named(line, {DType::f32, DType::f64, DType::bf16, DType::i32, DType::exact}, "a type");
}

// The lines, one after the other; behind the last one a line that is done.
struct Cursor {
  std::vector<Line> lines = {};
  size_t next = 0;
  Line& line() { return lines[next]; }
  bool at(std::string_view keyword) { return line().peek() == keyword; }
  // The line that begins with this keyword; moves on to the following one.
  Line& take(std::string_view keyword) {
    line().need(keyword);
    return lines[next++];
  }
};

}  // namespace myriad
