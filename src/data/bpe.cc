// Encoding and decoding by byte-level BPE. Merges never cross words, so a text is normalised and
// cut into words, and each word is encoded alone; each thread caches the tokens of short words.
// encode_word keeps every pair of neighbours that has a merge in a heap, ordered by rank and then
// by place, and proposes the two new pairs that each merge creates. A candidate is valid if its two
// symbols are still neighbours with the ids of its merge; others are skipped. So the first valid
// one is the lowest rank, leftmost, which is the definition of BPE, in n log n time instead of n
// squared. Read encode_normalized first. Training is in bpe_train.cc, tokenizer.json in bpe_json.cc
// and bpe_settings.cc.

#include "data/bpe.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"

namespace myriad {

namespace {

constexpr size_t kCachedWordBytes = 48;
constexpr size_t kCachedWords = 1 << 17;
constexpr uint64_t kEmpty = ~uint64_t{0};

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t slot_of(uint64_t key, size_t slots) {
  return (key * 0x9E3779B97F4A7C15u) >> (64 - std::countr_zero(slots));
}

struct WordHash {
  using is_transparent = void;
  size_t operator()(std::string_view word) const { return XXH3_64bits(word.data(), word.size()); }
};

// Words of one thread and one tokenizer with their tokens, forgotten all at once when full.
struct WordCache {
  struct Range {
    uint32_t begin, count;
  };
  uint64_t owner = 0;
  std::unordered_map<std::string, Range, WordHash, std::equal_to<>> words;
  std::vector<int32_t> ids;

  void start(uint64_t new_owner) {
    owner = new_owner;
    words.clear();
    ids.clear();
  }
};

// A hash of several parts: the hash of those so far is the seed for the next.
struct Digest {
  uint64_t value = 0;
  void add(const void* bytes, size_t size) { value = XXH3_64bits_withSeed(bytes, size, value); }
  void add(uint64_t number) { add(&number, sizeof number); }
  void add(const std::string& text) {
    add(text.size());
    add(text.data(), text.size());
  }
};

// Whether UTF-8 text can hold the byte. Some vocabularies have no token for the bytes that it
// cannot.
bool in_utf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

}  // namespace

Bpe Bpe::from_merges(const std::vector<std::pair<int32_t, int32_t>>& merges) {
  BpeParts parts;
  parts.tokens.push_back({kEndOfTextName, true});
  for (int byte = 0; byte < 256; ++byte) {
    parts.tokens.push_back({std::string(1, static_cast<char>(byte)), true});
  }
  for (const auto& [left, right] : merges) {
    const int32_t id = static_cast<int32_t>(parts.tokens.size());
    if (left < kFirstByte || right < kFirstByte || left >= id || right >= id) {
      throw Error(fmt::format("merge {} joins tokens {} and {}", id - kFirstMerge, left, right), "",
                  fmt::format("legal ids are {} to {}", kFirstByte, id - 1));
    }
    parts.tokens.push_back({parts.tokens[left].bytes + parts.tokens[right].bytes, true});
    parts.merges.push_back({left, right, id});
  }
  parts.added.push_back({.id = kEndOfText, .content = kEndOfTextName, .special = true});
  parts.settings = trained_settings();
  parts.end_of_text = kEndOfText;
  return from_parts(std::move(parts), "");
}

Bpe Bpe::from_parts(BpeParts parts, const std::string& where) {
  Bpe bpe;
  bpe.parts_ = std::move(parts);
  const BpePreparation preparation = read_settings(bpe.parts_.settings, where);
  bpe.form_ = preparation.form;
  bpe.prefix_space_ = preparation.prefix_space;
  try {
    bpe.pre_tokenizer_ = PreTokenizer(preparation.splits);
  } catch (const Error& e) {
    throw Error(e.what(), where + ": /pre_tokenizer");
  }
  bpe.index_tokens(where);
  bpe.index_merges(where);
  for (AddedToken token : bpe.parts_.added) {
    if (!token.normalized) {
      bpe.raw_added_.add(token);
      continue;
    }
    token.content = normalized(token.content, bpe.form_);
    bpe.normalized_added_.add(token);
  }
  bpe.compute_hash();
  return bpe;
}

void Bpe::index_tokens(const std::string& where) {
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  for (int32_t id = 0; id < vocabulary(); ++id) {
    const BpeToken& token = parts_.tokens[id];
    if (!token.in_model || token.literal) continue;
    if (token.bytes.size() == 1) byte_ids_[static_cast<uint8_t>(token.bytes[0])] = id;
    if (parts_.ignore_merges) words_.emplace(token.bytes, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] < 0 && in_utf8(byte)) {
      throw Error(fmt::format("the byte 0x{:02X} has no token", byte), where + ": /model/vocab",
                  "only vocabularies with a token for every byte are read");
    }
  }
}

void Bpe::index_merges(const std::string& where) {
  table_.assign(std::bit_ceil(4 * parts_.merges.size() + 16), {kEmpty, -1});
  for (size_t rank = 0; rank < parts_.merges.size(); ++rank) {
    const BpeMerge& merge = parts_.merges[rank];
    if (rank_of(merge.left, merge.right) >= 0) {
      throw Error(fmt::format("merge {} repeats the pair {} {}", rank, merge.left, merge.right),
                  where.empty() ? "" : where + ": /model/merges");
    }
    const uint64_t key = pair_key(merge.left, merge.right);
    uint64_t slot = slot_of(key, table_.size());
    while (table_[slot].first != kEmpty) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = {key, static_cast<int32_t>(rank)};
  }
}

void Bpe::compute_hash() {
  Digest digest;
  digest.add(parts_.tokens.size());
  for (const BpeToken& token : parts_.tokens) {
    digest.add(2u * token.in_model + token.literal);
    digest.add(token.bytes);
  }
  static_assert(sizeof(BpeMerge) == 12);
  digest.add(parts_.merges.size());
  digest.add(parts_.merges.data(), parts_.merges.size() * sizeof(BpeMerge));
  digest.add(parts_.ignore_merges);
  for (const AddedToken& t : parts_.added) {
    digest.add(static_cast<uint64_t>(t.id));
    digest.add(t.content);
    digest.add(16u * t.single_word + 8u * t.lstrip + 4u * t.rstrip + 2u * t.normalized + t.special);
  }
  digest.add(parts_.settings.normalizer);
  digest.add(parts_.settings.pre_tokenizer);
  hash_ = digest.value;
}

int32_t Bpe::rank_of(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (uint64_t slot = slot_of(key, table_.size());; slot = (slot + 1) & (table_.size() - 1)) {
    if (table_[slot].first == key) return table_[slot].second;
    if (table_[slot].first == kEmpty) return -1;
  }
}

// The lowest rank first, equal ranks from the left: a heap of candidate merges over a linked list
// of symbols.
void Bpe::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id, previous, next;
  };
  struct Candidate {
    int32_t rank, left, right;  // the merge and the positions it joins
    bool operator>(const Candidate& b) const {
      return rank != b.rank ? rank > b.rank : left > b.left;
    }
  };
  thread_local std::vector<Symbol> symbols;
  thread_local std::vector<Candidate> heap;
  symbols.clear();
  heap.clear();
  const int32_t n = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < n; ++i) {
    const uint8_t byte = static_cast<uint8_t>(word[i]);
    if (byte_ids_[byte] < 0) throw Error(fmt::format("the byte 0x{:02X} has no token", byte));
    symbols.push_back({byte_ids_[byte], i - 1, i + 1 < n ? i + 1 : -1});
  }
  const auto propose = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const int32_t rank = rank_of(symbols[left].id, symbols[right].id);
    if (rank < 0) return;
    heap.push_back({rank, left, right});
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (int32_t i = 0; i + 1 < n; ++i) propose(i, i + 1);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    const BpeMerge& merge = parts_.merges[best.rank];
    if (left.id != merge.left || right.id != merge.right || left.next != best.right) {
      continue;  // out of date
    }
    left.id = merge.made;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = best.left;
    right.id = -1;
    propose(left.previous, best.left);
    propose(best.left, left.next);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

void Bpe::encode_normalized(std::string_view text, std::vector<int32_t>& ids) const {
  thread_local WordCache cache;
  thread_local std::vector<std::string_view> words;
  std::string prefixed;
  if (prefix_space_ && !text.empty() && text[0] != ' ') {
    text = prefixed.append(1, ' ').append(text);
  }
  words.clear();
  pre_tokenizer_.split(text, words);
  for (const std::string_view word : words) {
    if (word.size() == 1 && byte_ids_[static_cast<uint8_t>(word[0])] >= 0) {
      ids.push_back(byte_ids_[static_cast<uint8_t>(word[0])]);
      continue;
    }
    // Equal hashes mean equal merges, so tokenizers that share a hash may share a cache.
    if (cache.owner != hash_ || cache.words.size() >= kCachedWords) cache.start(hash_);
    const bool cached = word.size() <= kCachedWordBytes;
    if (cached) {
      if (const auto found = cache.words.find(word); found != cache.words.end()) {
        const int32_t* first = cache.ids.data() + found->second.begin;
        ids.insert(ids.end(), first, first + found->second.count);
        continue;
      }
    }
    const size_t before = ids.size();
    const auto whole = words_.empty() ? words_.end() : words_.find(std::string(word));
    if (whole != words_.end()) {
      ids.push_back(whole->second);
    } else {
      encode_word(word, ids);
    }
    if (!cached) continue;
    cache.words.emplace(word, WordCache::Range{static_cast<uint32_t>(cache.ids.size()),
                                               static_cast<uint32_t>(ids.size() - before)});
    cache.ids.insert(cache.ids.end(), ids.begin() + static_cast<ptrdiff_t>(before), ids.end());
  }
}

void Bpe::encode_onto(std::string_view text, std::vector<int32_t>& ids) const {
  if (form_ == NormalForm::none) return encode_normalized(text, ids);
  encode_normalized(normalized(text, form_), ids);
}

void Bpe::encode_with_added_onto(std::string_view text, std::vector<int32_t>& ids) const {
  for (const auto& [id, piece] : raw_added_.split(text)) {
    if (id >= 0) {
      ids.push_back(id);
      continue;
    }
    const std::string normal = normalized(piece, form_);
    for (const auto& [inner_id, inner] : normalized_added_.split(normal)) {
      if (inner_id >= 0) {
        ids.push_back(inner_id);
      } else {
        encode_normalized(inner, ids);
      }
    }
  }
}

std::string Bpe::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary()) {
      throw Error(fmt::format("token {} at place {} is not in the vocabulary", ids[i], i), "",
                  fmt::format("legal ids are 0 to {}", vocabulary() - 1));
    }
    const BpeToken& token = parts_.tokens[ids[i]];
    if (token.bytes.empty()) {
      throw Error(fmt::format("token {} at place {} is an id without a token", ids[i], i));
    }
    text += token.bytes;
  }
  return text;
}

Bpe Bpe::with_end_of_text(std::string_view content) const {
  Bpe copy = *this;
  for (const AddedToken& token : parts_.added) {
    if (token.content != content) continue;
    copy.parts_.end_of_text = token.id;
    return copy;
  }
  throw Error(fmt::format("\"{}\" is not an added token", content));
}

}  // namespace myriad
