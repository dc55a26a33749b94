// Puts rows of samples side by side into batches. A batch is nothing but its rows in order, so the
// batch of a step can be made at any time and on any thread. Read data/samples.h first: it says
// what a row is and which rows belong to a step.
#include "train/batches.h"

namespace myriad {

namespace {

void append(Batch& batch, const SampleRow& row) {
  const auto add = [](std::vector<int32_t>& to, const std::vector<int32_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  add(batch.ids, row.ids);
  add(batch.targets, row.targets);
  add(batch.positions, row.positions);
  add(batch.documents, row.documents);
}

// A row without targets, to fill up the last evaluation batch.
SampleRow blank_row(int64_t length) {
  SampleRow row{.ids = std::vector<int32_t>(length, 0),
                .targets = std::vector<int32_t>(length, kNoTarget),
                .documents = std::vector<int32_t>(length, 0),
                .positions = {}};
  for (int64_t i = 0; i < length; ++i) row.positions.push_back(static_cast<int32_t>(i));
  return row;
}

}  // namespace

Batch training_batch(const RunConfig& config, const MixedSamples& samples, int64_t step) {
  Batch batch{.rows = config.rows(), .sequence = config.train.sequence_length};
  for (int64_t r = 0; r < batch.rows; ++r) append(batch, samples.row((step - 1) * batch.rows + r));
  return batch;
}

Batch held_out_batch(const HeldOutRows& held_out, int64_t first, int64_t count, int64_t length) {
  Batch batch{.rows = count, .sequence = length};
  for (int64_t r = first; r < first + count; ++r)
    append(batch, r < held_out.rows() ? held_out.row(r) : blank_row(length));
  return batch;
}

}  // namespace myriad
