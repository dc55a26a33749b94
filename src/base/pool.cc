// The workers behind Pool::run and parallel_for. Workers enter a run or a parallel_for through a
// Gate, which also tells the caller when the last one has left; after that, the caller's tasks or
// its function may end. A task's state changes by compare-and-swap, so one worker at a time resumes
// it, and acquire and release hand what it wrote to the next. A stall is reported only if every
// worker in the run has completed a whole round of the tasks long after the last progress; a worker
// inside a long resume has not. A parallel_for takes one of 64 slots, offers it to idle workers and
// works itself, so it ends even if nobody helps; without a free slot it is a plain loop. Read Gate
// first, then Impl::work and Pool::share.

#include "base/pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace myriad {

namespace {

constexpr size_t kLine = 64;  // bytes of a cache line
constexpr int kJobs = 64;     // bits of a word

thread_local uint64_t t_advances = 0;  // calls of note_progress on this thread
thread_local bool t_in_task = false;   // inside Task::resume
thread_local bool t_in_call = false;   // inside f of a parallel_for

int64_t nanoseconds() {
  using namespace std::chrono;
  return duration_cast<std::chrono::nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// Waits longer and longer: returns at once a few times, then yields, then sleeps.
class Backoff {
 public:
  void reset() { waits_ = 0; }
  bool asleep() const { return waits_ > kSpins && nanoseconds() - since_ > kYieldNanoseconds; }
  void wait() {
    if (++waits_ < kSpins) return;
    if (waits_ == kSpins) since_ = nanoseconds();
    if (asleep()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else {
      std::this_thread::yield();
    }
  }

 private:
  static constexpr int64_t kSpins = 64, kYieldNanoseconds = 200'000;
  int64_t waits_ = 0, since_ = 0;
};

// Lets workers in while it is open. What was written before open() is seen by those inside, and
// what they wrote by whoever returns from drain(). All in one order (seq_cst): a worker either sees
// the gate shut or is waited for.
class Gate {
 public:
  void open() { open_ = true; }
  void shut() { open_ = false; }
  bool is_open() const { return open_; }
  bool enter() {
    ++inside_;
    if (open_) return true;
    leave();
    return false;
  }
  void leave() { --inside_; }
  void drain() {
    for (Backoff backoff; inside_ != 0;) backoff.wait();
  }

 private:
  std::atomic<bool> open_{false};
  std::atomic<int> inside_{0};
};

// Keeps the first exception of the workers, for the caller to throw again.
struct Fault {
  std::atomic<bool> set{false};
  std::exception_ptr error;

  void keep() {
    if (!set.exchange(true)) error = std::current_exception();
  }
  void rethrow() {  // when no worker is inside any more
    if (!set) return;
    set = false;
    std::rethrow_exception(std::exchange(error, nullptr));
  }
};

struct alignas(kLine) Job {  // one parallel_for
  Gate gate;
  Fault fault;
  void (*call)(const void*, int64_t) = nullptr;
  const void* f = nullptr;
  int64_t n = 0, grain = 1;
  alignas(kLine) std::atomic<int64_t> next{0};

  bool work() {  // takes calls until none is left
    if (next >= n) return false;
    t_in_call = true;
    for (int64_t begin; (begin = next.fetch_add(grain)) < n;) {
      try {
        for (int64_t i = begin; i < std::min(begin + grain, n); ++i) call(f, i);
      } catch (...) {
        fault.keep();
        next = n;
      }
    }
    t_in_call = false;
    return true;
  }
};

struct alignas(kLine) Place {  // of a task in a run
  enum State : uint8_t { fresh, ready, running, done };
  std::atomic<uint8_t> state{fresh};
};

struct alignas(kLine) Seat {  // of a worker
  static constexpr int64_t kAway = std::numeric_limits<int64_t>::max();
  std::atomic<uint64_t> advances{0};  // written by this worker alone
  std::atomic<int64_t> returned{
      kAway};  // end of its last fruitless round, in nanoseconds; kAway: not in the run
};

}  // namespace

void note_progress() { ++t_advances; }

struct Pool::Impl {
  explicit Impl(int workers) : seats(workers) {
    for (int seat = 1; seat < workers; ++seat) threads.emplace_back([this, seat] { live(seat); });
  }
  ~Impl() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    called.notify_all();
    for (auto& thread : threads) thread.join();
  }

  void live(int seat);
  void sleep();
  void wake();
  bool help(int seat);
  void start(std::span<Task* const> list, double stall_seconds);
  void work(int seat);
  bool resume(int64_t at, Seat& seat);
  bool stalled_since(int64_t since) const;

  std::vector<Seat> seats;
  std::vector<std::thread> threads;
  std::mutex mutex;  // only for going to sleep between runs
  std::condition_variable called;
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};

  // The run. Worker w begins at its own stretch of the tasks and goes round: a task that was
  // blocked comes last again.
  std::atomic<bool> running{false}, stalled{false};
  Gate gate;
  Fault fault;
  std::span<Task* const> tasks;
  std::unique_ptr<Place[]> places;
  size_t places_size = 0;
  std::atomic<int64_t> left{0};
  std::atomic<int64_t> failed{-1};  // the first task that failed
  int64_t stall_nanoseconds = 0;

  Job jobs[kJobs];
  std::atomic<uint64_t> taken{0}, offered{0};  // bit j: jobs[j] is in use; is worth a visit
};

void Pool::Impl::live(int seat) {
  Backoff backoff;
  while (!stop) {
    if (gate.is_open() && gate.enter()) {
      work(seat);
      gate.leave();
      backoff.reset();
    } else if (help(seat)) {
      backoff.reset();
    } else {
      backoff.wait();
      if (backoff.asleep()) sleep();
    }
  }
}

void Pool::Impl::sleep() {
  std::unique_lock lock(mutex);
  ++sleepers;
  called.wait(lock, [this] { return stop || gate.is_open() || offered != 0; });
  --sleepers;
}

void Pool::Impl::wake() {
  if (sleepers == 0) return;
  { std::lock_guard lock(mutex); }
  called.notify_all();
}

bool Pool::Impl::help(int seat) {
  bool any = false;
  const int first = seat % kJobs;  // helpers spread over the jobs
  for (uint64_t open = std::rotr(offered.load(), first); open != 0; open &= open - 1) {
    Job& job = jobs[(std::countr_zero(open) + first) % kJobs];
    if (!job.gate.enter()) continue;
    any |= job.work();
    job.gate.leave();
  }
  return any;
}

void Pool::Impl::start(std::span<Task* const> list, double stall_seconds) {
  tasks = list;
  if (places_size < tasks.size()) {
    places = std::make_unique<Place[]>(tasks.size());
    places_size = tasks.size();
  }
  for (size_t i = 0; i < tasks.size(); ++i) places[i].state = Place::fresh;
  left = static_cast<int64_t>(tasks.size());
  stall_nanoseconds = static_cast<int64_t>(stall_seconds * 1e9);
  stalled = false;
  failed = -1;
  gate.open();
  wake();
}

// Resumes task `at` if no other worker has it, and returns whether it advanced. The first time it
// is resumed counts as an advance.
bool Pool::Impl::resume(int64_t at, Seat& seat) {
  auto& state = places[at].state;
  uint8_t was = state.load(std::memory_order_relaxed);
  if (was >= Place::running ||
      !state.compare_exchange_strong(was, Place::running, std::memory_order_acquire)) {
    return false;
  }
  const uint64_t before = t_advances;
  Progress progress = Progress::done;
  t_in_task = true;
  try {
    progress = tasks[at]->resume();
  } catch (...) {
    fault.keep();
    gate.shut();
  }
  t_in_task = false;
  if (progress == Progress::failed) {
    int64_t none = -1;
    failed.compare_exchange_strong(none, at);
    gate.shut();
  }
  state.store(progress == Progress::done ? Place::done : Place::ready, std::memory_order_release);
  if (progress == Progress::done && left.fetch_sub(1) == 1) gate.shut();
  if (progress == Progress::blocked && t_advances == before && was != Place::fresh) return false;
  seat.advances.store(seat.advances.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return true;
}

// A worker inside a long resume has not returned lately, so that it keeps the others from calling a
// stall.
bool Pool::Impl::stalled_since(int64_t since) const {
  return std::all_of(seats.begin(), seats.end(), [&](const Seat& seat) {
    return seat.returned.load() - since > stall_nanoseconds;
  });
}

void Pool::Impl::work(int index) {
  Seat& seat = seats[index];
  const int64_t count = static_cast<int64_t>(tasks.size());
  int64_t at = index * count / static_cast<int64_t>(seats.size());
  int64_t since = nanoseconds();  // when progress was last seen
  uint64_t seen = 0;
  Backoff backoff;
  seat.returned = since;
  for (int64_t fruitless = 0; gate.is_open(); at = at + 1 == count ? 0 : at + 1) {
    fruitless = resume(at, seat) ? 0 : fruitless + 1;
    if (fruitless < count) continue;
    fruitless = 0;
    const bool helped = help(index);
    uint64_t advances = 0;
    for (const Seat& other : seats) advances += other.advances.load(std::memory_order_relaxed);
    const int64_t now = nanoseconds();
    seat.returned = now;
    if (helped || advances != seen) {
      since = now;
      seen = advances;
      backoff.reset();
    } else if (now - since > stall_nanoseconds && stalled_since(since)) {
      stalled = true;
      gate.shut();
    } else {
      backoff.wait();
    }
  }
  seat.returned = Seat::kAway;
}

Pool::Pool(int workers) {
  if (workers < 0) throw Error(fmt::format("a pool cannot have {} workers", workers));
  if (workers == 0) workers = std::max(1u, std::thread::hardware_concurrency());
  impl_ = std::make_unique<Impl>(workers);
}

Pool::~Pool() = default;

int Pool::workers() const { return static_cast<int>(impl_->seats.size()); }

Outcome Pool::run(std::span<Task* const> tasks, double stall_seconds) {
  Impl& pool = *impl_;
  if (tasks.empty()) return {};
  CHECK(!t_in_task && !t_in_call && !pool.running.exchange(true),
        "one run at a time, from outside");
  pool.start(tasks, stall_seconds);
  pool.work(0);
  pool.gate.drain();
  pool.running = false;
  pool.fault.rethrow();
  if (pool.failed >= 0) return {fmt::format("task {} failed", pool.failed.load())};
  if (!pool.stalled || pool.left == 0) return {};
  return {fmt::format("no task advanced for {} s; {} of {} are not done", stall_seconds,
                      pool.left.load(), tasks.size())};
}

void Pool::share(int64_t n, void (*call)(const void*, int64_t), const void* f) {
  Impl& pool = *impl_;
  const int64_t workers = static_cast<int64_t>(pool.seats.size());
  uint64_t taken = pool.taken;
  while (n > 1 && workers > 1 && !t_in_call && ~taken != 0) {
    const int j = std::countr_one(taken);
    const uint64_t bit = uint64_t{1} << j;
    taken = pool.taken.fetch_or(bit);
    if (taken & bit) continue;
    Job& job = pool.jobs[j];
    job.call = call;
    job.f = f;
    job.n = n;
    job.grain = std::max<int64_t>(1, n / (8 * workers));
    job.next = 0;
    job.gate.open();
    pool.offered |= bit;
    pool.wake();
    job.work();
    pool.offered &= ~bit;
    job.gate.shut();
    job.gate.drain();
    Fault fault;
    fault.error = std::exchange(job.fault.error, nullptr);
    fault.set = job.fault.set.exchange(false);
    pool.taken &= ~bit;
    fault.rethrow();
    return;
  }
  for (int64_t i = 0; i < n; ++i) call(f, i);
}

}  // namespace myriad
