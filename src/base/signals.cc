// Asynchronous signals are blocked in the first thread before others start, which inherit the mask;
// one thread takes them with sigwait. No handler is installed, so no frame of one is ever laid on
// the stack of a thread that computes. A signal that nobody asked for is unblocked in the receiving
// thread alone and raised again, so that it does there what it does in any program. Read the header
// first: it says which signals are left unblocked, and why.
#include "base/signals.h"

#include <pthread.h>
#include <unistd.h>

#include "base/error.h"

namespace myriad {

namespace {

sigset_t g_before;  // mask of the first thread that called block_signals
bool g_blocked = false;

// Wakes the thread when it is to end. If another process sends this signal, it has its usual
// effect.
const int kWake = SIGURG;

sigset_t only(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

// Takes the kernel's own action, which may end the process, by raising the signal again while it is
// not blocked.
void act_by_default(int signal) {
  const sigset_t open = only(signal);
  pthread_sigmask(SIG_UNBLOCK, &open, nullptr);
  raise(signal);
  pthread_sigmask(SIG_BLOCK, &open, nullptr);
}

}  // namespace

sigset_t asynchronous_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int open : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPIPE,
                         SIGXFSZ, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGKILL})
    sigdelset(&set, open);
  return set;
}

void block_signals() noexcept {
  const sigset_t set = asynchronous_signals();
  pthread_sigmask(SIG_BLOCK, &set, g_blocked ? nullptr : &g_before);
  g_blocked = true;
}

bool is_ignored(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_IGN;
}

SignalThread::SignalThread() {
  block_signals();
  thread_ = std::thread([this] { live(); });
  pthread_setname_np(thread_.native_handle(), "signals");
}

SignalThread::~SignalThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  pthread_kill(thread_.native_handle(), kWake);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &g_before, nullptr);
  g_blocked = false;
}

void SignalThread::on(std::initializer_list<int> signals, std::function<void(int)> act) {
  const sigset_t blocked = asynchronous_signals();
  const std::lock_guard lock(mutex_);
  for (const int signal : signals) {
    CHECK(sigismember(&blocked, signal) == 1, "signal {} is not asynchronous", signal);
    acts_[signal] = act;
  }
}

void SignalThread::live() {
  const sigset_t set = asynchronous_signals();
  for (;;) {
    int signal = 0;
    const int failed = sigwait(&set, &signal);
    CHECK(failed == 0, "sigwait: error {}", failed);
    const std::lock_guard lock(mutex_);
    if (stop_) {
      if (signal != kWake) kill(getpid(), signal);  // waits until somebody takes it
      return;
    }
    take(signal);
  }
}

void SignalThread::take(int signal) {
  if (const auto act = acts_.find(signal); act != acts_.end()) {
    act->second(signal);
  } else {
    act_by_default(signal);
  }
}

}  // namespace myriad
