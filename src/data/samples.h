// Rows of tokens for training and evaluation, each a pure function of its arguments.
//
// A document of tokens t1 .. tn and end mark E (end-of-text) gives n + 1 pairs (input, target):
//   E -> t1, t1 -> t2, ..., tn -> E
// so that the first token is predicted from a start mark and the end mark is predicted as well. The
// pairs of all documents, one document after another, are a stream, and a row of length s is s
// neighbouring pairs of it. A document cut by the end of a row goes on in the next one, with its
// last token as the only context. Attention must be block-diagonal by `documents`; `positions`
// restart with each document and at the start of a row.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "data/packed.h"

namespace myriad {

inline constexpr int32_t kNoTarget = -100;

// Changes whenever the same (file, seed, index, length) gives other rows than before.
inline constexpr int kSampleOrderVersion = 1;

struct SampleRow {
  std::vector<int32_t> ids;      // [s]
  std::vector<int32_t> targets;  // [s] the next token of the document; kNoTarget in padding
  std::vector<int32_t>
      documents;  // [s] number of the document within the row, from 0; padding has its own
  std::vector<int32_t> positions;  // [s] from 0 in each document of the row
};

// Training rows without end: epoch after epoch, each in an order of documents that is a function of
// (seed, epoch). Every pair is in one row an epoch; the row at the seam of two epochs holds some of
// both. Any thread may call row(); the orders of the last epochs used are kept.
class Samples {
 public:
  // Throws Error if length < 1 or the file holds no documents.
  Samples(PackedFile file, int64_t length, uint64_t seed);

  SampleRow row(int64_t index) const;  // index >= 0

  int64_t length() const { return length_; }
  int64_t pairs_per_epoch() const { return file_.tokens(); }
  // The epoch of the first pair of this row.
  int64_t epoch(int64_t index) const;

 private:
  struct Order;  // of one epoch
  std::shared_ptr<const Order> order_of(int64_t epoch) const;

  PackedFile file_;
  int64_t length_;
  uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const Order>> recent_;
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
