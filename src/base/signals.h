// Signals are taken on one thread that does not compute. A signal handler runs on the stack of the
// thread that the kernel picks, in the middle of whatever that thread does, and a matrix kernel is
// a bad place for it: those of oneDNN 2.6 keep data where the kernel puts the signal's frame (large
// on a processor with AVX-512), so that a run which was asked to stop crashed instead.
//
// So every thread blocks the asynchronous signals, and a SignalThread takes them with sigwait. No
// handler is ever installed: what is to happen on a signal is an ordinary function, called on an
// ordinary thread, and may do whatever such a function may do.
//
// Asynchronous signals are all but these, which stay open on every thread:
// - SEGV, BUS, FPE, ILL, TRAP, ABRT, SYS: a thread brings them on itself, and cannot go on if they
//   are blocked. So it is with PIPE and XFSZ, which tell a thread of its own write.
// - STOP, TSTP, TTIN, TTOU, CONT: the kernel itself stops and continues the process, and puts
//   nothing on any stack, so that Ctrl-Z works as everywhere. (With TTIN blocked, a read from the
//   terminal in the background would fail instead of waiting.)
// - KILL, which cannot be blocked.
//
// The mask is inherited by the threads that a thread starts (and, through fork and exec, by other
// programs: Myriad starts none). A profiler that samples by SIGPROF sees no thread that computes;
// perf needs no signal.
#pragma once

#include <signal.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <mutex>
#include <thread>

namespace myriad {

// The signals that are blocked, as above.
sigset_t asynchronous_signals();

// Blocks them in the calling thread and in all threads that it starts from then on. May be called
// before the constructors of global objects have run. The first call notes the mask of before.
void block_signals() noexcept;

// Whether the process was started to ignore the signal, as nohup does with SIGHUP.
bool is_ignored(int signal);

// The thread that takes the signals of the process; "signals" in the list of threads. At most one
// at a time. A signal that `on` did not name does what it would do in a program that knows nothing
// of signals: it ends the process, or nothing happens if it is ignored.
class SignalThread {
 public:
  SignalThread();  // calls block_signals()
  // Waits for a call that is running. Gives the calling thread the mask from before
  // block_signals(): what comes later acts at once, with no thread to take it.
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;

  // From now on each of the signals calls `act` on this thread, one call at a time. It must not
  // throw and not call `on`.
  void on(std::initializer_list<int> signals, std::function<void(int signal)> act);

 private:
  void live();
  void take(int signal);

  std::mutex mutex_;
  std::map<int, std::function<void(int)>> acts_;  // guarded by mutex_
  bool stop_ = false;                             // guarded by mutex_
  std::thread thread_;
};

}  // namespace myriad
