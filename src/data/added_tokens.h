// Tokens that are found in a text as they stand, before it is normalised and cut into words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace myriad {

// As in a tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // is looked for in the normalised text
  bool special = false;
};

// Finds tokens: the leftmost, and there the longest. Immutable.
class AddedTokens {
 public:
  struct Piece {
    int32_t id;  // -1: text between tokens
    std::string_view text;
  };

  // Contents are distinct and not empty.
  void add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  // Pieces in order; without tokens and gaps the text would be one piece. None for an empty text.
  std::vector<Piece> split(std::string_view text) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t begin) const;

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> ends_ = {-1};             // by node of the trie: index of the token, or -1
  std::unordered_map<uint64_t, int32_t> edges_;  // node * 256 + byte -> node
  bool first_[256] = {};                         // bytes that begin a token
};

}  // namespace myriad
