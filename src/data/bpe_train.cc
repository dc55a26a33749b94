// Learns the merges of a byte-level BPE from documents. Distinct words are kept once, with their
// number of occurrences. An index gives for each pair of neighbouring symbols its count and its
// places, and a heap orders the pairs by count, so that a merge touches only the places of its
// pair. Heap entries may be out of date, but only in one direction: a merge makes new pairs solely
// with its own new id, so the count of a pair that is in the heap can only fall. An entry whose
// count has fallen goes back with the true one, and one whose count is true is the greatest of all.
// The result depends on counts and ids alone, not on the order of documents or words. Read
// Trainer::step first.

#include <xxhash.h>

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "data/bpe.h"

namespace myriad {

namespace {

struct ViewHash {
  size_t operator()(std::string_view word) const { return XXH3_64bits(word.data(), word.size()); }
};

struct PairHash {
  size_t operator()(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15u;
    return key ^ key >> 32;
  }
};

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

// Distinct words joined into one list of symbols; a place is an index into it. Links do not cross
// words.
struct Symbols {
  std::vector<int32_t> id, previous, next,
      weight;  // weight: occurrences of the word, held at each place
};

struct PairPlaces {
  int64_t count = 0;
  std::vector<int32_t>
      places;  // of the left symbol; may hold places where the pair no longer stands
};

struct Candidate {
  int64_t count;
  uint64_t pair;
  // The heap gives its greatest element first: the highest count, among equals the lowest pair.
  bool operator<(const Candidate& b) const {
    return count != b.count ? count < b.count : pair > b.pair;
  }
};

Symbols count_words(std::span<const std::string_view> documents) {
  const PreTokenizer pre_tokenizer(read_settings(trained_settings(), "").splits);
  std::unordered_map<std::string_view, int64_t, ViewHash> counts;
  std::vector<std::string_view> words;
  for (const std::string_view text : documents) {
    words.clear();
    pre_tokenizer.split(text, words);
    for (const std::string_view word : words) ++counts[word];
  }
  if (counts.empty()) throw Error("a tokenizer cannot be trained: the documents hold no text");
  Symbols symbols;
  for (const auto& [word, count] : counts) {
    if (word.size() < 2) continue;
    const int64_t first = static_cast<int64_t>(symbols.id.size());
    const int64_t last = first + static_cast<int64_t>(word.size()) - 1;
    CHECK(last < INT32_MAX && count < INT32_MAX, "{} symbols of distinct words", last);
    for (int64_t place = first; place <= last; ++place) {
      symbols.id.push_back(Bpe::kFirstByte + static_cast<uint8_t>(word[place - first]));
      symbols.previous.push_back(static_cast<int32_t>(place == first ? -1 : place - 1));
      symbols.next.push_back(static_cast<int32_t>(place == last ? -1 : place + 1));
      symbols.weight.push_back(static_cast<int32_t>(count));
    }
  }
  return symbols;
}

class Trainer {
 public:
  explicit Trainer(Symbols symbols) : symbols_(std::move(symbols)) {
    for (int32_t place = 0; place < static_cast<int32_t>(symbols_.id.size()); ++place) {
      if (symbols_.next[place] >= 0) {
        add(symbols_.id[place], symbols_.id[symbols_.next[place]], place);
      }
    }
    for (const auto& [pair, entry] : pairs_) heap_.push({entry.count, pair});
    bytes_.emplace_back();
    for (int byte = 0; byte < 256; ++byte) {
      bytes_.emplace_back(1, static_cast<char>(byte));
      known_.insert(bytes_.back());
    }
  }

  // The next merge, applied everywhere; false when no pair occurs twice.
  bool step(std::pair<int32_t, int32_t>& merge) {
    while (!heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const auto found = pairs_.find(best.pair);
      if (found == pairs_.end()) continue;
      if (found->second.count < best.count) {  // counts only fall once a pair is in the heap
        if (found->second.count >= kLeastCount) heap_.push({found->second.count, best.pair});
        continue;
      }
      if (best.count < kLeastCount) return false;
      merge = {static_cast<int32_t>(best.pair >> 32), static_cast<int32_t>(best.pair)};
      std::string text = bytes_[merge.first] + bytes_[merge.second];
      std::vector<int32_t> places = std::move(found->second.places);
      pairs_.erase(found);
      // A string made by another merge already keeps its one id: vocabularies map strings to ids.
      if (!known_.insert(text).second) continue;
      bytes_.push_back(std::move(text));
      std::sort(places.begin(), places.end());
      apply(merge, static_cast<int32_t>(bytes_.size()) - 1, places);
      return true;
    }
    return false;
  }

 private:
  static constexpr int64_t kLeastCount = 2;

  void add(int32_t left, int32_t right, int32_t place) {
    PairPlaces& entry = pairs_[pair_key(left, right)];
    entry.count += symbols_.weight[place];
    entry.places.push_back(place);
  }

  void remove(int32_t left, int32_t right, int32_t place) {
    const auto found = pairs_.find(pair_key(left, right));
    if (found != pairs_.end()) found->second.count -= symbols_.weight[place];
  }

  void apply(std::pair<int32_t, int32_t> merge, int32_t id, const std::vector<int32_t>& places) {
    std::vector<uint64_t> fresh;
    for (const int32_t place : places) {
      const int32_t gone = symbols_.next[place];
      if (symbols_.id[place] != merge.first || gone < 0 || symbols_.id[gone] != merge.second)
        continue;
      const int32_t before = symbols_.previous[place], after = symbols_.next[gone];
      symbols_.id[place] = id;
      symbols_.id[gone] = -1;
      symbols_.next[place] = after;
      if (before >= 0) {
        remove(symbols_.id[before], merge.first, before);
        add(symbols_.id[before], id, before);
        fresh.push_back(pair_key(symbols_.id[before], id));
      }
      if (after >= 0) {
        symbols_.previous[after] = place;
        remove(merge.second, symbols_.id[after], place);
        add(id, symbols_.id[after], place);
        fresh.push_back(pair_key(id, symbols_.id[after]));
      }
    }
    std::sort(fresh.begin(), fresh.end());
    fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
    for (const uint64_t pair : fresh) {
      const int64_t count = pairs_[pair].count;
      if (count >= kLeastCount) heap_.push({count, pair});
    }
  }

  Symbols symbols_;
  std::unordered_map<uint64_t, PairPlaces, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<std::string> bytes_;  // by id
  std::unordered_set<std::string> known_;
};

}  // namespace

Bpe Bpe::train(std::span<const std::string_view> documents, int vocabulary) {
  if (vocabulary < kFirstMerge) {
    throw Error(fmt::format("vocabulary is {}", vocabulary), "",
                fmt::format("{} or more: the bytes and {}", kFirstMerge, kEndOfTextName));
  }
  Trainer trainer(count_words(documents));
  std::vector<std::pair<int32_t, int32_t>> merges;
  std::pair<int32_t, int32_t> merge;
  while (static_cast<int>(merges.size()) < vocabulary - kFirstMerge && trainer.step(merge)) {
    merges.push_back(merge);
  }
  return from_merges(merges);
}

}  // namespace myriad
