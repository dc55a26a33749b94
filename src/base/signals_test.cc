#include "base/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "base/pool.h"

namespace myriad {
namespace {

using namespace std::chrono_literals;

bool is_blocked_here(int signal) {
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  return sigismember(&now, signal) == 1;
}

template <class Condition>
bool comes_true(Condition&& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

TEST(Signals, AreBlockedWhereThreadsComputeAndOpenAfterwards) {
  EXPECT_FALSE(is_blocked_here(SIGTERM));
  {
    SignalThread signals;
    Pool pool(3);
    std::atomic<int> open{0};
    pool.parallel_for(1000, [&](int64_t) {
      for (const int signal :
           {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPROF, SIGWINCH, SIGALRM,
            SIGVTALRM, SIGIO, SIGURG, SIGXCPU, SIGPWR, SIGRTMIN, SIGRTMAX})
        open += !is_blocked_here(signal);
      for (const int signal :
           {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPIPE, SIGTSTP, SIGCONT})
        open += is_blocked_here(signal);
    });
    EXPECT_EQ(open, 0);
  }
  EXPECT_FALSE(is_blocked_here(SIGTERM));
}

// Each is taken, in a mixture of those sent to the process and to a thread that blocks them.
TEST(Signals, CallWhatWasAskedForOnTheirOwnThread) {
  SignalThread signals;
  std::atomic<int> hang_ups{0}, others{0}, elsewhere{0};
  const pthread_t here = pthread_self();
  signals.on({SIGHUP}, [&](int) { ++hang_ups; });
  signals.on({SIGINT, SIGUSR1}, [&](int signal) {
    others += signal;
    elsewhere += pthread_equal(pthread_self(), here) == 0;
  });
  kill(getpid(), SIGHUP);
  EXPECT_TRUE(comes_true([&] { return hang_ups == 1; }));
  kill(getpid(), SIGINT);
  EXPECT_TRUE(comes_true([&] { return others == SIGINT; }));
  kill(getpid(), SIGUSR1);
  EXPECT_TRUE(comes_true([&] { return others == SIGINT + SIGUSR1; }));
  EXPECT_EQ(elsewhere, 2);
  EXPECT_EQ(hang_ups, 1);
  signals.on({SIGINT}, [&](int) { others = -1; });  // replaces
  kill(getpid(), SIGINT);
  EXPECT_TRUE(comes_true([&] { return others == -1; }));
}

TEST(Signals, RefuseWhatAThreadBringsOnItself) {
  EXPECT_DEATH(SignalThread().on({SIGSEGV}, [](int) {}), "asynchronous");
}

TEST(Signals, NotAskedForDoWhatTheyAlwaysDo) {
  for (const int fatal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPROF, SIGALRM, SIGRTMIN}) {
    EXPECT_EXIT(
        {
          SignalThread signals;
          signals.on({SIGUSR2}, [](int) {});
          kill(getpid(), fatal);
          std::this_thread::sleep_for(10s);
          _exit(0);
        },
        testing::KilledBySignal(fatal), "");
  }
  for (const int harmless : {SIGCHLD, SIGWINCH, SIGURG}) {
    EXPECT_EXIT(
        {
          SignalThread signals;
          std::atomic<bool> taken{false};
          signals.on({SIGUSR2}, [&](int) { taken = true; });
          kill(getpid(), harmless);
          kill(getpid(), SIGUSR2);
          _exit(comes_true([&] { return taken.load(); }) ? 7 : 1);
        },
        testing::ExitedWithCode(7), "");
  }
}

TEST(Signals, IgnoredFromTheStartAreIgnored) {
  EXPECT_FALSE(is_ignored(SIGHUP));
  EXPECT_EXIT(
      {
        signal(SIGHUP, SIG_IGN);
        SignalThread signals;
        std::atomic<bool> taken{false};
        signals.on({SIGUSR2}, [&](int) { taken = true; });
        kill(getpid(), SIGHUP);
        kill(getpid(), SIGUSR2);
        _exit(is_ignored(SIGHUP) && comes_true([&] { return taken.load(); }) ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
}

// Sent while the thread ends, a signal is taken by it or ends the process afterwards: it is not
// lost. The pause before the end gets shorter, through the moment in which the two meet.
TEST(Signals, AreNotLostWhenTheThreadEnds) {
  EXPECT_EXIT(
      {
        for (int i = 200; i >= 0; --i) {
          std::atomic<int> taken{0};
          {
            SignalThread signals;
            signals.on({SIGUSR1}, [&](int) { ++taken; });
            kill(getpid(), SIGUSR1);
            std::this_thread::sleep_for(std::chrono::microseconds(i));
          }
          if (taken != 1) _exit(1);
        }
        _exit(0);
      },
      [](int status) {
        return (WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1) ||
               (WIFEXITED(status) && WEXITSTATUS(status) == 0);
      },
      "");
}

}  // namespace
}  // namespace myriad
