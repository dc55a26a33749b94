// The pre-tokenizer: cuts a text into the words inside which merges may happen, as the
// pre-tokenizer of a tokenizer.json says: an ordered list of splits, each by a regular expression.
// Bytes that are not UTF-8 count as characters that are no letter, number or space. Immutable; each
// thread keeps its own matchers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace myriad {

// What becomes of the matches and of what stands between them.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Split {
  std::string pattern;  // as tokenizer.json has it (see regex_syntax.h)
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // what stands between the matches is what is split at
};

class PreTokenizer {
 public:
  PreTokenizer() : PreTokenizer(std::vector<Split>{}) {}
  // Throws Error naming the pattern that is not legal or not supported.
  explicit PreTokenizer(const std::vector<Split>& splits);

  // Appends the words of the text in order; they are views of it. Throws Error for texts of 1 GiB
  // and more, and where a pattern needs too much memory.
  void split(std::string_view text, std::vector<std::string_view>& words) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace myriad
