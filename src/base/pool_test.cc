#include "base/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace myriad {
namespace {

using namespace std::chrono_literals;

struct Lambda : Task {
  explicit Lambda(std::function<Progress()> f) : f(std::move(f)) {}
  Progress resume() override { return f(); }
  std::function<Progress()> f;
};

std::vector<Task*> pointers(std::vector<Lambda>& tasks) {
  std::vector<Task*> out;
  for (auto& task : tasks) out.push_back(&task);
  return out;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class PoolTest : public testing::TestWithParam<int> {
 protected:
  Pool pool{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Workers, PoolTest, testing::Values(1, 2, 4));

TEST(Pool, WorkersOfTheMachine) {
  EXPECT_EQ(Pool(0).workers(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  EXPECT_THROW(Pool(-1), Error);
}

// Each task may take its turn k only after its left neighbour did: a token goes round a ring.
TEST_P(PoolTest, TokenRoundARing) {
  constexpr int n = 37, rounds = 50;
  for (const bool noted : {false, true}) {
    std::atomic<int64_t> token{0};
    int64_t plain = 0;  // handed on with the token: no race if runs are ordered
    std::vector<Lambda> tasks;
    for (int id = 0; id < n; ++id) {
      tasks.emplace_back([&, id, noted, turns = 0]() mutable {
        if (token.load(std::memory_order_acquire) % n != id) return Progress::blocked;
        ++plain;
        token.fetch_add(1, std::memory_order_release);
        if (++turns == rounds) return Progress::done;
        if (!noted) return Progress::advanced;
        note_progress();
        return Progress::blocked;
      });
    }
    const auto list = pointers(tasks);
    EXPECT_TRUE(pool.run(list).ok());
    EXPECT_EQ(plain, n * rounds);
  }
}

TEST_P(PoolTest, NoTasks) { EXPECT_TRUE(pool.run({}).ok()); }

TEST_P(PoolTest, ManyRuns) {
  std::atomic<int> count{0};
  for (int run = 0; run < 300; ++run) {
    std::vector<Lambda> tasks;
    for (int i = 0; i < run % 7 + 1; ++i)
      tasks.emplace_back([&] { return ++count, Progress::done; });
    const auto list = pointers(tasks);
    ASSERT_TRUE(pool.run(list).ok());
    if (run % 100 == 0) std::this_thread::sleep_for(2ms);  // workers go to sleep
  }
  int expected = 0;
  for (int run = 0; run < 300; ++run) expected += run % 7 + 1;
  EXPECT_EQ(count, expected);
}

TEST_P(PoolTest, StallIsFound) {
  std::vector<Lambda> tasks;
  for (int i = 0; i < 5; ++i)
    tasks.emplace_back([i] { return i ? Progress::blocked : Progress::done; });
  const auto list = pointers(tasks);
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = pool.run(list, 0.2);
  EXPECT_EQ(outcome.reason, "no task advanced for 0.2 s; 4 of 5 are not done");
  EXPECT_GE(seconds_since(start), 0.2);
  EXPECT_LT(seconds_since(start), 2);
}

// A task at work is no stall, nor is one that advances now and then.
TEST_P(PoolTest, SlowIsNoStall) {
  std::atomic<bool> ready{false};
  std::vector<Lambda> tasks;
  tasks.emplace_back([&, turn = 0]() mutable {
    std::this_thread::sleep_for(++turn == 1 ? 300ms : 60ms);
    if (turn < 5) return Progress::advanced;
    ready = true;
    return Progress::done;
  });
  for (int i = 0; i < 3; ++i) {
    tasks.emplace_back([&] { return ready ? Progress::done : Progress::blocked; });
  }
  const auto list = pointers(tasks);
  EXPECT_TRUE(pool.run(list, 0.1).ok());
}

TEST_P(PoolTest, ExceptionOfATask) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<Lambda> tasks;
    for (int i = 0; i < 8; ++i) {
      tasks.emplace_back([i]() -> Progress {
        if (i == 5) throw Error("five");
        return Progress::advanced;  // for ever, unless stopped
      });
    }
    const auto list = pointers(tasks);
    try {
      (void)pool.run(list);
      FAIL() << "no exception";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "five");
    }
  }
}

TEST_P(PoolTest, ParallelForFromOutside) {
  for (const int64_t n : {0, 1, 2, 63, 1000}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<int> hits(n);
      pool.parallel_for(n, [&](int64_t i) { ++hits[i]; });
      EXPECT_EQ(hits, std::vector<int>(n, 1));
    }
  }
}

TEST_P(PoolTest, ParallelForFromManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int64_t> sum{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        pool.parallel_for(10, [&](int64_t i) { sum += i; });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, 3 * 100 * 45);
}

TEST_P(PoolTest, ParallelForInTasksAndNested) {
  constexpr int ranks = 9, n = 20;
  std::vector<std::vector<int64_t>> out(ranks, std::vector<int64_t>(n));
  std::vector<Lambda> tasks;
  for (int rank = 0; rank < ranks; ++rank) {
    tasks.emplace_back([&, rank, turn = 0]() mutable {
      pool.parallel_for(n, [&](int64_t i) {
        pool.parallel_for(3, [&](int64_t k) { out[rank][i] += rank * i + k; });
      });
      return ++turn == 30 ? Progress::done : Progress::advanced;
    });
  }
  const auto list = pointers(tasks);
  EXPECT_TRUE(pool.run(list).ok());
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = 0; i < n; ++i) EXPECT_EQ(out[rank][i], 30 * (3 * rank * i + 3));
  }
}

TEST_P(PoolTest, ExceptionOfParallelFor) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    EXPECT_THROW(pool.parallel_for(40,
                                   [](int64_t i) {
                                     if (i == 17) throw Error("17");
                                   }),
                 Error);
    std::vector<Lambda> tasks;
    tasks.emplace_back([&]() -> Progress {
      pool.parallel_for(40, [](int64_t i) {
        if (i % 9 == 8) throw Error("8");
      });
      return Progress::done;
    });
    const auto list = pointers(tasks);
    EXPECT_THROW((void)pool.run(list), Error);
  }
  std::atomic<int> count{0};
  pool.parallel_for(40, [&](int64_t) { ++count; });
  EXPECT_EQ(count, 40);
}

// Idle workers do come and help.
TEST(Pool, WorkIsShared) {
  Pool pool(2);
  std::atomic<int> inside{0}, most{0};
  for (int repeat = 0; repeat < 20 && most < 2; ++repeat) {
    pool.parallel_for(8, [&](int64_t) {
      const int now = ++inside;
      if (now > most) most = now;
      std::this_thread::sleep_for(2ms);
      --inside;
    });
  }
  EXPECT_EQ(most, 2);
}

}  // namespace
}  // namespace myriad
