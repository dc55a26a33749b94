// Workers shared by the virtual ranks of a process. A rank is a resumable task, not a thread: when
// it must wait it says `blocked`, and its worker goes on with another. Results never depend on the
// number of workers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"

namespace myriad {

// failed: it can never go on, as when a peer is lost; who says so knows the reason.
enum class Progress : uint8_t { advanced, blocked, done, failed };

class Task {
 public:
  virtual ~Task() = default;
  // Runs until it is done or must wait; called by one worker at a time. `blocked` means that it
  // must wait, `advanced` that it must wait but did something since it was last resumed. A task
  // that says `blocked` again and again, without note_progress, is taken for one that stands still.
  // `failed` stops the whole run.
  virtual Progress resume() = 0;
};

// Called inside resume() by whoever completes something on the task's behalf (a Communicator): the
// task then counts as advanced, whatever it returns. Costs one increment.
void note_progress();

class Pool {
 public:
  explicit Pool(int workers);  // 0: as many as cores
  ~Pool();
  Pool(const Pool&) = delete;
  int workers() const;

  // Runs tasks until all are done; the calling thread is one of the workers. The first exception of
  // a task stops the others (they are not resumed again) and is rethrown here. If no task advances
  // for `stall_seconds` and none is being resumed, returns an Outcome that says so: a deadlock. A
  // task that fails stops the others likewise, and the Outcome says which it was. One run at a
  // time, never from inside a task.
  Outcome run(std::span<Task* const> tasks, double stall_seconds = 60);

  // Calls f(i) for i in [0, n), shared among idle workers; returns when all are done. May be called
  // from inside a task (its worker helps) or from any thread outside; inside another parallel_for
  // it is a plain loop. f must write disjoint memory for different i. The first exception of f is
  // rethrown here; calls not yet begun are then left out. No allocation.
  template <class F>
  void parallel_for(int64_t n, const F& f) {
    share(
        n, [](const void* g, int64_t i) { (*static_cast<const F*>(g))(i); }, &f);
  }

 private:
  void share(int64_t n, void (*call)(const void* f, int64_t i), const void* f);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace myriad
