#include "data/samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "data/testing.h"

namespace myriad {
namespace {

bool operator==(const SampleRow& a, const SampleRow& b) {
  return a.ids == b.ids && a.targets == b.targets && a.documents == b.documents &&
         a.positions == b.positions;
}

// What every row must obey: within a document inputs follow targets, positions and numbers count
// from 0, and a document begins with the start mark. token_before: the one before each token in its
// document, 0 before the first.
void check_row(const SampleRow& row, int64_t length,
               const std::map<int32_t, int32_t>& token_before) {
  ASSERT_EQ(std::ssize(row.ids), length);
  ASSERT_EQ(std::ssize(row.targets), length);
  ASSERT_EQ(std::ssize(row.documents), length);
  ASSERT_EQ(std::ssize(row.positions), length);
  EXPECT_EQ(row.documents[0], 0);
  for (int64_t i = 0; i < length; ++i) {
    const bool same = i > 0 && row.documents[i] == row.documents[i - 1];
    EXPECT_EQ(row.positions[i], same ? row.positions[i - 1] + 1 : 0);
    if (i > 0) {
      EXPECT_LE(row.documents[i] - row.documents[i - 1], 1);
    }
    if (row.targets[i] == kNoTarget) continue;
    if (same) {
      EXPECT_EQ(row.ids[i], row.targets[i - 1]);
    }
    if (row.targets[i] != 0) {
      EXPECT_EQ(row.ids[i], token_before.at(row.targets[i]));
    }
  }
}

std::map<int32_t, int32_t> tokens_before(const TokenLists& documents) {
  std::map<int32_t, int32_t> before;
  for (const auto& document : documents) {
    for (size_t k = 0; k < document.size(); ++k) before[document[k]] = k == 0 ? 0 : document[k - 1];
  }
  return before;
}

TEST(Samples, TinyRowsByHand) {
  const TemporaryFolder folder;
  const HeldOutRows held(pack(folder / "a.pack", {{11, 12, 13}, {21}}), 4);
  ASSERT_EQ(held.rows(), 2);
  const SampleRow first = held.row(0), second = held.row(1);
  EXPECT_EQ(first.ids, (std::vector<int32_t>{0, 11, 12, 13}));
  EXPECT_EQ(first.targets, (std::vector<int32_t>{11, 12, 13, 0}));
  EXPECT_EQ(first.documents, (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_EQ(first.positions, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(second.ids, (std::vector<int32_t>{0, 21, 0, 0}));
  EXPECT_EQ(second.targets, (std::vector<int32_t>{21, 0, kNoTarget, kNoTarget}));
  EXPECT_EQ(second.documents, (std::vector<int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(second.positions, (std::vector<int32_t>{0, 1, 0, 1}));
}

TEST(Samples, CutDocumentGoesOnWithItsLastTokenAsContext) {
  const TemporaryFolder folder;
  const HeldOutRows held(pack(folder / "a.pack", {{11, 12, 13}, {21}}), 3);
  EXPECT_EQ(held.row(1).ids, (std::vector<int32_t>{13, 0, 21}));
  EXPECT_EQ(held.row(1).targets, (std::vector<int32_t>{0, 21, 0}));
  EXPECT_EQ(held.row(1).documents, (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(held.row(1).positions, (std::vector<int32_t>{0, 0, 1}));
}

TEST(Samples, RowIsAFunctionOfSeedAndIndex) {
  const TemporaryFolder folder;
  const PackedFile file = pack(folder / "a.pack", numbered_documents(40, 30));
  const Samples a(file, 17, 5), b(file, 17, 5), other(file, 17, 6);
  std::vector<SampleRow> forward;
  for (int i = 0; i < 200; ++i) forward.push_back(a.row(i));
  int differ = 0;
  for (int i = 199; i >= 0; --i) {
    EXPECT_TRUE(b.row(i) == forward[i]) << i;
    EXPECT_TRUE(a.row(i) == forward[i]) << i;
    differ += !(other.row(i) == forward[i]);
  }
  EXPECT_GT(differ, 150);
  const int64_t far = int64_t{1} << 40;
  EXPECT_TRUE(a.row(far) == b.row(far));
}

TEST(Samples, EveryTokenOfAnEpochOnce) {
  const TemporaryFolder folder;
  const TokenLists documents = numbered_documents(60, 23);
  const auto before = tokens_before(documents);
  const PackedFile file = pack(folder / "a.pack", documents);
  for (const int64_t length : {1, 7, 64, 5000}) {
    const Samples samples(file, length, 3);
    const int64_t epochs = 3, pairs = samples.pairs_per_epoch();
    std::set<int64_t> places;
    for (int64_t i = 0; i < 3 * samples.rows_per_epoch(); ++i) places.insert(samples.place(i));
    EXPECT_EQ(std::ssize(places), 3 * samples.rows_per_epoch());
    EXPECT_EQ(*places.rbegin(), 3 * samples.rows_per_epoch() - 1);
    std::vector<std::map<int32_t, int>> seen(epochs);
    std::vector<std::vector<int32_t>> order(epochs);
    for (int64_t at = 0, place = 0; at < epochs * pairs; ++place) {
      const SampleRow row = samples.row_at(place);
      check_row(row, length, before);
      EXPECT_EQ(samples.epoch_at(place), at / pairs);
      for (int64_t i = 0; i < length && at < epochs * pairs; ++i, ++at) {
        ++seen[at / pairs][row.targets[i]];
        order[at / pairs].push_back(row.targets[i]);
      }
    }
    for (const auto& counts : seen) {
      EXPECT_EQ(counts.at(0), 60);  // end marks
      for (const auto& [token, previous] : before) EXPECT_EQ(counts.at(token), 1);
    }
    EXPECT_NE(order[0], order[1]);  // another order each epoch
  }
}

TEST(Samples, WholeDocumentsAreCutOnlyWhereTheyMust) {
  const TemporaryFolder folder;
  const TokenLists documents = numbered_documents(200, 23);
  const auto before = tokens_before(documents);
  const PackedFile file = pack(folder / "a.pack", documents);
  for (const int64_t length : {1, 7, 24, 64, 5000}) {
    const Samples samples(file, length, 3, Packing::whole);
    const int64_t n = samples.rows_per_epoch();
    EXPECT_LE(n * length, file.tokens() * 1.03 + length) << length;  // little padding
    std::vector<std::vector<int32_t>> order(2);
    for (int64_t index = 0; index < 2 * n; ++index) {
      const SampleRow row = samples.row(index);
      check_row(row, length, before);
      EXPECT_EQ(samples.epoch_at(samples.place(index)), index / n);
      for (const SampleRow::Part& p : row.parts) {
        const int64_t whole = file.document_tokens(p.document);
        EXPECT_TRUE(p.count == length || p.first + p.count == whole);
        EXPECT_EQ(p.first % length, 0);
      }
      for (const int32_t t : row.targets) {
        if (t != kNoTarget) order[index / n].push_back(t);
      }
    }
    EXPECT_NE(order[0], order[1]);
    for (auto& seen : order) {  // every pair once
      std::sort(seen.begin(), seen.end());
      std::vector<int32_t> want(200, 0);
      for (const auto& [token, previous] : before) want.push_back(token);
      EXPECT_EQ(seen, want);
    }
  }
}

TEST(Samples, SourcesKeepTheirOwnOrder) {
  const TemporaryFolder folder;
  const PackedFile a = pack(folder / "a.pack", numbered_documents(30, 20)),
                   b = pack(folder / "b.pack", numbered_documents(50, 10));
  const MixedSamples mixed({a, b}, {2, 1}, 9, 5, Packing::cut);
  const Samples first(a, 9, 5), second(b, 9, 6);
  std::vector<int64_t> next(2);
  for (int64_t i = 0; i < 300; ++i) {
    const Mixture::Place place = mixed.place(i);
    EXPECT_EQ(place.row, next[place.source]++);
    EXPECT_TRUE(mixed.row(i) == (place.source == 0 ? first : second).row(place.row)) << i;
  }
  EXPECT_EQ(next, (std::vector<int64_t>{200, 100}));
}

// Whoever changes this raises kSampleOrderVersion.
TEST(Samples, OrderOfThisVersionIsFixed) {
  static_assert(kSampleOrderVersion == 2);
  const TemporaryFolder folder;
  const PackedFile file = pack(folder / "a.pack", {{1}, {2}, {3}, {4}, {5}, {6, 7}});
  const auto order = [&](Packing packing) {
    const MixedSamples mixed({file, file}, {1, 2}, 3, 42, packing);
    std::vector<int32_t> out;
    for (int64_t i = 0; i < 9; ++i) {
      for (const int32_t target : mixed.row(i).targets) {
        if (target > 0) out.push_back(target);
      }
    }
    return out;
  };
  EXPECT_EQ(order(Packing::cut), (std::vector<int32_t>{5, 1, 2, 4, 6, 7, 2, 3, 1, 4, 5, 3, 5, 3}));
  EXPECT_EQ(order(Packing::whole), (std::vector<int32_t>{6, 7, 6, 7, 4, 5, 3, 3, 1, 1, 2}));
}

TEST(Samples, HeldOutCoversEveryTokenOnce) {
  const TemporaryFolder folder;
  const TokenLists documents = numbered_documents(45, 31);
  const auto before = tokens_before(documents);
  for (const int64_t length : {1, 5, 32, 4000}) {
    const HeldOutRows held(pack(folder / "a.pack", documents), length);
    std::map<int32_t, int> seen;
    int64_t predicted = 0;
    for (int64_t i = 0; i < held.rows(); ++i) {
      const SampleRow row = held.row(i);
      check_row(row, length, before);
      for (const int32_t target : row.targets) {
        if (target == kNoTarget) continue;
        ++seen[target];
        ++predicted;
      }
    }
    EXPECT_EQ(predicted, held.predicted_tokens());
    EXPECT_EQ(predicted, std::ssize(before) + 45);
    EXPECT_EQ(held.text_bytes(), 3 * std::ssize(before));
    EXPECT_EQ(seen.at(0), 45);
    for (const auto& [token, previous] : before) EXPECT_EQ(seen.at(token), 1);
  }
}

TEST(Samples, RefusesNothingToSample) {
  const TemporaryFolder folder;
  const PackedFile empty = pack(folder / "empty.pack", {}), one = pack(folder / "one.pack", {{1}});
  EXPECT_THROW(Samples(empty, 8, 1), Error);
  EXPECT_THROW(HeldOutRows(empty, 8), Error);
  EXPECT_THROW(Samples(one, 0, 1), Error);
}

}  // namespace
}  // namespace myriad
