// The batches of steps in order, each made on another thread while the step before it runs.
#pragma once

#include <functional>
#include <future>

#include "train/job.h"

namespace myriad {

class ReadAhead {
 public:
  // make: the batch of a step, called for first, first + 1, ... last, one call at a time. What it
  // throws is thrown by next().
  ReadAhead(std::function<Batch(int64_t step)> make, int64_t first, int64_t last)
      : make_(std::move(make)), step_(first), last_(last) {
    begin();
  }

  // Of the first step, of the second, ...: waits until it is ready. Not after the last.
  Batch next() {
    Batch batch = ready_.get();
    ++step_;
    begin();
    return batch;
  }

 private:
  void begin() {
    if (step_ <= last_) ready_ = std::async(std::launch::async, make_, step_);
  }

  std::function<Batch(int64_t)> make_;
  int64_t step_, last_;
  std::future<Batch> ready_;  // its end waits for the thread
};

}  // namespace myriad
