#include "data/samples.h"

#include <xxhash.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"

namespace myriad {

namespace {

constexpr size_t kOrdersKept = 3;

// Appends pairs [from, from + count) of one document to a row, as a new document of the row.
void append_pairs(std::span<const int32_t> document, int64_t from, int64_t count, SampleRow& row) {
  const int32_t number = row.documents.empty() ? 0 : row.documents.back() + 1;
  const int32_t end_mark = document.back();
  for (int64_t k = from; k < from + count; ++k) {
    row.ids.push_back(k == 0 ? end_mark : document[k - 1]);
    row.targets.push_back(document[k]);
    row.documents.push_back(number);
    row.positions.push_back(static_cast<int32_t>(k - from));
  }
}

SampleRow empty_row(int64_t length) {
  SampleRow row;
  for (auto* field : {&row.ids, &row.targets, &row.documents, &row.positions})
    field->reserve(length);
  return row;
}

void check_rows(const PackedFile& file, int64_t length) {
  if (length < 1 || length > INT32_MAX) {
    throw Error(fmt::format("rows of {} tokens", length), "", "legal lengths are 1 and more");
  }
  if (file.documents() == 0) {
    throw Error("the packed file holds no documents, so there are no rows", "",
                "a larger corpus, or another held-out share");
  }
}

}  // namespace

// The documents of an epoch in their order, and where each begins in the epoch's stream.
struct Samples::Order {
  int64_t epoch;
  std::vector<int64_t> documents;
  std::vector<int64_t> begins;
};

Samples::Samples(PackedFile file, int64_t length, uint64_t seed)
    : file_(std::move(file)), length_(length), seed_(seed) {
  check_rows(file_, length);
}

int64_t Samples::epoch(int64_t index) const {
  CHECK(index >= 0 && index <= INT64_MAX / length_ - 1, "row {}", index);
  return index * length_ / file_.tokens();
}

std::shared_ptr<const Samples::Order> Samples::order_of(int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  for (const auto& order : recent_) {
    if (order->epoch == epoch) return order;
  }
  const int64_t n = file_.documents();
  auto order = std::make_shared<Order>();
  order->epoch = epoch;
  // Sorted by keys that depend on (seed, epoch, document) alone; equal keys by document.
  std::vector<std::pair<uint64_t, int64_t>> keys(n);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t counter[2] = {static_cast<uint64_t>(epoch), static_cast<uint64_t>(i)};
    keys[i] = {XXH3_64bits_withSeed(counter, sizeof counter, seed_), i};
  }
  std::sort(keys.begin(), keys.end());
  int64_t begin = 0;
  for (const auto& [key, document] : keys) {
    order->documents.push_back(document);
    order->begins.push_back(begin);
    begin += file_.document_tokens(document);
  }
  if (recent_.size() == kOrdersKept) recent_.erase(recent_.begin());
  recent_.push_back(order);
  return order;
}

SampleRow Samples::row(int64_t index) const {
  int64_t at_epoch = epoch(index);
  int64_t pair = index * length_ % file_.tokens();
  int64_t wanted = length_;
  SampleRow row = empty_row(length_);
  while (wanted > 0) {
    const auto order = order_of(at_epoch);
    const auto& begins = order->begins;
    size_t place = std::upper_bound(begins.begin(), begins.end(), pair) - begins.begin() - 1;
    for (; wanted > 0 && place < begins.size(); ++place) {
      const auto document = file_.document(order->documents[place]);
      const int64_t from = pair - begins[place];
      const int64_t count = std::min<int64_t>(wanted, std::ssize(document) - from);
      append_pairs(document, from, count, row);
      wanted -= count;
      pair += count;
    }
    ++at_epoch;
    pair = 0;
  }
  return row;
}

HeldOutRows::HeldOutRows(PackedFile file, int64_t length)
    : file_(std::move(file)), length_(length) {
  check_rows(file_, length);
}

int64_t HeldOutRows::rows() const { return (file_.tokens() + length_ - 1) / length_; }

SampleRow HeldOutRows::row(int64_t index) const {
  CHECK(index >= 0 && index < rows(), "row {} of {}", index, rows());
  int64_t pair = index * length_;
  const int64_t end = std::min(pair + length_, file_.tokens());
  // The last document that begins at or before the pair.
  int64_t low = 0, high = file_.documents();
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (file_.document_begin(middle) <= pair ? low : high) = middle;
  }
  SampleRow row = empty_row(length_);
  for (int64_t i = low; pair < end; ++i) {
    const int64_t from = pair - file_.document_begin(i);
    const int64_t count = std::min(end - pair, file_.document_tokens(i) - from);
    append_pairs(file_.document(i), from, count, row);
    pair += count;
  }
  const int32_t padding_document = row.documents.back() + 1;
  for (int32_t position = 0; std::ssize(row.ids) < length_; ++position) {
    row.ids.push_back(file_.tokenizer().end_of_text);
    row.targets.push_back(kNoTarget);
    row.documents.push_back(padding_document);
    row.positions.push_back(position);
  }
  return row;
}

}  // namespace myriad
