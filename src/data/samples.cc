// Training and evaluation rows, made when they are asked for. An epoch's order is a sort of its
// parts by a hash of (seed, epoch, document), so any row can be computed on any thread and after
// any resume, without replaying the rows before it. With packing `cut`, a binary search finds the
// document that holds the row's first pair; at the end of an epoch the row continues with the order
// of the next. With packing `whole`, the packing depends on lengths only, and an epoch exchanges
// only parts of equal length, so one packing serves all epochs. Read Samples::order_of first, then
// cut_row_at and whole_row_at.

#include "data/samples.h"

#include <xxhash.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "data/whole_packing.h"

namespace myriad {

namespace {

constexpr size_t kOrdersKept = 3;

using Part = SampleRow::Part;

// Appends the pairs of a part to a row, as a new document of the row.
void append_part(std::span<const int32_t> document, const Part& part, SampleRow& row) {
  const auto number = static_cast<int32_t>(row.parts.size());
  const int32_t end_mark = document.back();
  for (int64_t k = part.first; k < part.first + part.count; ++k) {
    row.ids.push_back(k == 0 ? end_mark : document[k - 1]);
    row.targets.push_back(document[k]);
    row.documents.push_back(number);
    row.positions.push_back(static_cast<int32_t>(k - part.first));
  }
  row.parts.push_back(part);
}

void pad(int64_t length, int32_t end_mark, SampleRow& row) {
  const auto number = static_cast<int32_t>(row.parts.size());
  for (int32_t position = 0; std::ssize(row.ids) < length; ++position) {
    row.ids.push_back(end_mark);
    row.targets.push_back(kNoTarget);
    row.documents.push_back(number);
    row.positions.push_back(position);
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

// Depends on (seed, epoch, document) alone.
uint64_t key_of(uint64_t seed, int64_t epoch, int64_t document) {
  const uint64_t counter[2] = {static_cast<uint64_t>(epoch), static_cast<uint64_t>(document)};
  return XXH3_64bits_withSeed(counter, sizeof counter, seed);
}

}  // namespace

// The parts of an epoch in their order.
struct Samples::Order {
  int64_t epoch;
  std::vector<Part> parts;
  std::vector<int64_t> begins;  // of each part in the epoch's stream
};

struct Samples::Whole {
  std::vector<Part> parts;  // of all documents, the longest first
  WholePacking packing;
};

Samples::Samples(PackedFile file, int64_t length, uint64_t seed, Packing packing)
    : file_(std::move(file)), length_(length), seed_(seed) {
  check_rows(file_, length);
  if (packing == Packing::cut) return;
  auto whole = std::make_unique<Whole>();
  for (int64_t i = 0; i < file_.documents(); ++i) {
    const int64_t n = file_.document_tokens(i);
    for (int64_t first = 0; first < n; first += length)
      whole->parts.push_back({i, first, std::min(length, n - first)});
  }
  std::stable_sort(whole->parts.begin(), whole->parts.end(),
                   [](const Part& a, const Part& b) { return a.count > b.count; });
  std::vector<int64_t> lengths;
  for (const Part& part : whole->parts) lengths.push_back(part.count);
  whole->packing = pack_whole(lengths, length);
  whole_ = std::move(whole);
}

Samples::~Samples() = default;

int64_t Samples::rows_per_epoch() const {
  return whole_ ? whole_->packing.rows() : std::max<int64_t>(1, file_.tokens() / length_);
}

int64_t Samples::place(int64_t index) const {
  const int64_t n = rows_per_epoch(), epoch = index / n;
  const uint64_t stream = stream_of(fmt::format("rows of epoch {}", epoch));
  return epoch * n + static_cast<int64_t>(permuted(seed_, stream, static_cast<uint64_t>(index % n),
                                                   static_cast<uint64_t>(n)));
}

int64_t Samples::epoch_at(int64_t place) const {
  CHECK(place >= 0 && place <= INT64_MAX / length_ - 1, "row {}", place);
  return whole_ ? place / rows_per_epoch() : place * length_ / file_.tokens();
}

std::shared_ptr<const Samples::Order> Samples::order_of(int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  for (const auto& order : recent_) {
    if (order->epoch == epoch) return order;
  }
  std::vector<std::pair<uint64_t, Part>> keyed;
  const auto add = [&](const Part& part) {
    keyed.emplace_back(key_of(seed_, epoch, part.document), part);
  };
  if (whole_) {
    for (const Part& part : whole_->parts) add(part);
  } else {
    for (int64_t i = 0; i < file_.documents(); ++i) add({i, 0, file_.document_tokens(i)});
  }
  // Parts are sorted by key, those of equal keys by document. With packing `whole` the length comes
  // first, so that only parts of equal length change places.
  std::sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const auto order = [&](const std::pair<uint64_t, Part>& k) {
      return std::tuple(whole_ ? -k.second.count : 0, k.first, k.second.document, k.second.first);
    };
    return order(a) < order(b);
  });
  auto order = std::make_shared<Order>();
  order->epoch = epoch;
  int64_t begin = 0;
  for (const auto& [key, part] : keyed) {
    order->parts.push_back(part);
    order->begins.push_back(begin);
    begin += part.count;
  }
  if (recent_.size() == kOrdersKept) recent_.erase(recent_.begin());
  recent_.push_back(order);
  return order;
}

SampleRow Samples::row_at(int64_t place) const {
  return whole_ ? whole_row_at(place) : cut_row_at(place);
}

SampleRow Samples::cut_row_at(int64_t place) const {
  int64_t epoch = epoch_at(place);
  int64_t pair = place * length_ % file_.tokens();
  int64_t wanted = length_;
  SampleRow row = empty_row(length_);
  while (wanted > 0) {
    const auto order = order_of(epoch);
    const auto& begins = order->begins;
    size_t i = std::upper_bound(begins.begin(), begins.end(), pair) - begins.begin() - 1;
    for (; wanted > 0 && i < begins.size(); ++i) {
      const Part& whole = order->parts[i];
      const int64_t first = pair - begins[i], count = std::min(wanted, whole.count - first);
      append_part(file_.document(whole.document), {whole.document, first, count}, row);
      wanted -= count;
      pair += count;
    }
    ++epoch;
    pair = 0;
  }
  return row;
}

SampleRow Samples::whole_row_at(int64_t place) const {
  const auto order = order_of(epoch_at(place));
  const WholePacking& packing = whole_->packing;
  const auto at = static_cast<size_t>(place % packing.rows());
  SampleRow row = empty_row(length_);
  for (int64_t i = packing.row_begins[at]; i < packing.row_begins[at + 1]; ++i) {
    const Part& part = order->parts[static_cast<size_t>(packing.pieces[static_cast<size_t>(i)])];
    append_part(file_.document(part.document), part, row);
  }
  pad(length_, file_.tokenizer().end_of_text, row);
  return row;
}

MixedSamples::MixedSamples(const std::vector<PackedFile>& files, std::vector<int64_t> weights,
                           int64_t length, uint64_t seed, Packing packing)
    : mixture_(std::move(weights)) {
  CHECK(std::ssize(files) == mixture_.sources(), "{} files, {} weights", files.size(),
        mixture_.sources());
  for (const PackedFile& file : files)
    sources_.push_back(
        std::make_unique<const Samples>(file, length, seed + sources_.size(), packing));
}

SampleRow MixedSamples::row(int64_t index) const {
  const Mixture::Place place = mixture_.at(index);
  return source(place.source).row(place.row);
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
    append_part(file_.document(i), {i, from, count}, row);
    pair += count;
  }
  pad(length_, file_.tokenizer().end_of_text, row);
  return row;
}

}  // namespace myriad
