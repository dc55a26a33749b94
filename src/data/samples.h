// Rows of tokens for training and evaluation, each a pure function of its arguments.
//
// A document of tokens t1 .. tn and end mark E (end-of-text) gives n + 1 pairs (input, target):
//   E -> t1, t1 -> t2, ..., tn -> E
// so that the first token is predicted from a start mark and the end mark is predicted as well. A
// row of length s holds s pairs. Attention must be block-diagonal by `documents`; `positions`
// restart with each document and at the start of a row.
//
// Packing `cut`: the pairs of all documents, one document after another, are a stream, and a row is
// s neighbouring pairs of it. A document cut by the end of a row goes on in the next one, with its
// last token as the only context. Packing `whole`: a document that fits into a row is in one row,
// and what is left of a row is padding (data/whole_packing.h).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "data/mixture.h"
#include "data/packed.h"

namespace myriad {

inline constexpr int32_t kNoTarget = -100;

// Changes whenever the same (files, weights, packing, seed, index, length) gives other rows.
inline constexpr int kSampleOrderVersion = 2;

enum class Packing : uint8_t { cut, whole };

struct SampleRow {
  std::vector<int32_t> ids;        // [s]
  std::vector<int32_t> targets;    // [s] the next token of the document; kNoTarget in padding
  std::vector<int32_t> documents;  // [s] number within the row, from 0; padding has its own
  std::vector<int32_t> positions;  // [s] from 0 in each document of the row
  struct Part {
    int64_t document;      // of the file
    int64_t first, count;  // pairs of it
  };
  std::vector<Part> parts;  // by number within the row; none for padding
};

// Training rows of one file without end: epoch after epoch, each in an order of documents that is a
// function of (seed, epoch). Every pair is in one row an epoch. Neighbouring rows are often of one
// document, so the rows of an epoch are shuffled, too. Any thread may call row(); the orders of the
// last epochs used are kept.
class Samples {
 public:
  // Throws Error if length < 1 or the file holds no documents.
  Samples(PackedFile file, int64_t length, uint64_t seed, Packing packing = Packing::cut);
  ~Samples();

  SampleRow row(int64_t index) const { return row_at(place(index)); }  // index >= 0

  // Where row `index` stands in the documents' order: a permutation within each rows_per_epoch().
  int64_t place(int64_t index) const;
  // The row there. Packing `cut`: rows need not begin where epochs do, and the row at the seam of
  // two holds some of both.
  SampleRow row_at(int64_t place) const;
  int64_t epoch_at(int64_t place) const;  // of its first pair

  int64_t length() const { return length_; }
  int64_t pairs_per_epoch() const { return file_.tokens(); }
  int64_t rows_per_epoch() const;  // `cut`: whole ones, at least 1

 private:
  struct Order;  // of one epoch
  struct Whole;  // packing `whole`: the same for every epoch
  std::shared_ptr<const Order> order_of(int64_t epoch) const;
  SampleRow cut_row_at(int64_t place) const;
  SampleRow whole_row_at(int64_t place) const;

  PackedFile file_;
  int64_t length_;
  uint64_t seed_;
  std::unique_ptr<const Whole> whole_;  // null: `cut`
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const Order>> recent_;
};

// Rows of several files, mixed by weight (data/mixture.h). File number k is shuffled by seed + k.
class MixedSamples {
 public:
  // A weight for each file. Throws Error as Samples does.
  MixedSamples(const std::vector<PackedFile>& files, std::vector<int64_t> weights, int64_t length,
               uint64_t seed, Packing packing);

  SampleRow row(int64_t index) const;
  Mixture::Place place(int64_t index) const { return mixture_.at(index); }
  const Samples& source(int k) const { return *sources_[static_cast<size_t>(k)]; }

 private:
  Mixture mixture_;
  std::vector<std::unique_ptr<const Samples>> sources_;
};

// Evaluation rows: the stream of all documents in the order of the file, padded at its end, so that
// every token of every document, end marks included, is a target exactly once. Bits per byte of a
// model:
//   (sum of -log2 p over all targets) / text_bytes().
class HeldOutRows {
 public:
  // Throws Error if length < 1 or the file holds no documents.
  HeldOutRows(PackedFile file, int64_t length);

  int64_t rows() const;
  SampleRow row(int64_t index) const;  // 0 <= index < rows()
  int64_t predicted_tokens() const { return file_.tokens(); }
  int64_t text_bytes() const { return file_.text_bytes(); }  // UTF-8, of all documents

 private:
  PackedFile file_;
  int64_t length_;
};

}  // namespace myriad
