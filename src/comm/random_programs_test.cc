// Random programs of transfers, with uneven, empty and absent parts, against an oracle that looks
// at everything.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>

#include "base/random.h"
#include "comm/communicator.h"
#include "comm/rank_task.h"

namespace myriad {
namespace {

struct Op {  // one transfer, as all its members see it
  CommKind kind;
  DType dtype;
  Reduction reduction;
  std::vector<int> group;
  int64_t high = 0, deep = 0;  // parts are [high, deep, width]
  std::vector<std::vector<int>>
      width;  // by sender, receiver; -1: absent. all_reduce: [0][0] of the flat value
};

struct Random {
  uint64_t seed, index = 0;
  int below(int n) { return static_cast<int>(random_bits(seed, 0, index++) % n); }
};

Op random_op(Random& random, int ranks) {
  Op op{.kind = static_cast<CommKind>(random.below(kCommKinds)),
        .dtype = static_cast<DType>(random.below(4)),
        .reduction = Reduction::none,
        .group = {},
        .width = {}};
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  for (int i = ranks - 1; i > 0; --i) std::swap(all[i], all[random.below(i + 1)]);
  const int n = op.kind == CommKind::send ? 2 : 1 + random.below(ranks);
  op.group.assign(all.begin(), all.begin() + n);
  const bool reduces = op.kind == CommKind::reduce_scatter || op.kind == CommKind::all_reduce;
  const bool max = op.dtype != DType::exact && random.below(3) == 0;
  if (reduces) op.reduction = max ? Reduction::max : Reduction::sum;
  op.high = random.below(5);
  op.deep = 1 + random.below(3);
  op.width.assign(n, std::vector<int>(n, -1));
  const int most = random.below(5) == 0 ? 700 : 12;
  const int shift = random.below(n);
  std::vector<int> by_member(n);
  for (int& width : by_member) width = random.below(most);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      switch (op.kind) {
        case CommKind::all_gather:
          op.width[i][j] = by_member[i];
          break;
        case CommKind::reduce_scatter:
          op.width[i][j] = by_member[j];
          break;
        case CommKind::all_reduce:
          op.width[i][j] = by_member[0];
          break;
        case CommKind::all_to_all:
          op.width[i][j] = random.below(most);
          break;
        case CommKind::permute:
          op.width[i][j] = j == (i + shift) % n ? by_member[i] : -1;
          break;
        case CommKind::send:
          op.width[i][j] = i == 0 && j == 1 ? by_member[0] : -1;
          break;
      }
    }
  }
  return op;
}

template <class T>
void fill(std::vector<std::byte>& bytes, uint64_t stream) {
  auto* data = reinterpret_cast<T*>(bytes.data());
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    const double x = std::ldexp(uniform(3, stream, i) - 0.5, static_cast<int>(i % 40));
    if constexpr (std::is_same_v<T, ExactSum>) {
      data[i] = {};
      data[i].add(x);
      data[i].add(1 / x);
    } else {
      data[i] = static_cast<T>(x);
    }
  }
}

void fill(std::vector<std::byte>& bytes, DType dtype, uint64_t stream) {
  switch (dtype) {
    case DType::f32:
      return fill<float>(bytes, stream);
    case DType::f64:
      return fill<double>(bytes, stream);
    case DType::i32:
      return fill<int32_t>(bytes, stream);
    case DType::exact:
      return fill<ExactSum>(bytes, stream);
  }
}

// Memory of one member: parts to send side by side in one tensor, parts received one above the
// other.
struct Buffers {
  std::vector<std::byte> send, recv;
  Transfer transfer;
};

Buffers buffers_of(const Op& op, int me) {
  Buffers b;
  const int n = static_cast<int>(op.group.size());
  const auto element = static_cast<int64_t>(size_of(op.dtype));
  b.transfer = {.kind = op.kind,
                .dtype = op.dtype,
                .reduction = op.reduction,
                .group = op.group,
                .me = me,
                .send = std::vector<View>(n),
                .recv = std::vector<View>(n)};
  if (op.kind == CommKind::all_reduce) {
    const int64_t size = op.high * op.deep * op.width[0][0];
    b.send.resize(size * element);
    b.recv.resize(size * element);
    b.transfer.send[0] = View{.data = b.send.data(), .dims = 1, .size = {size}, .stride = {1}};
    b.transfer.recv[0] = View{.data = b.recv.data(), .dims = 1, .size = {size}, .stride = {1}};
    return b;
  }
  int64_t wide = 0, widest = 0, offset = 0;
  for (int j = 0; j < n; ++j) {
    wide += std::max(0, op.width[me][j]);
    widest = std::max<int64_t>(widest, op.width[j][me]);
  }
  const int64_t rows = op.high * op.deep;
  b.send.resize(rows * wide * element);
  b.recv.resize(n * rows * widest * element);
  for (int j = 0; j < n; ++j) {
    if (const int width = op.width[me][j]; width >= 0) {
      b.transfer.send[j] = View{.data = b.send.data() + offset * element,
                                .dims = 3,
                                .size = {op.high, op.deep, width},
                                .stride = {op.deep * wide, wide, 1}};
      offset += width;
    }
    if (const int width = op.width[j][me]; width >= 0) {
      const int64_t above = op.reduction == Reduction::none ? j * rows * widest : 0;
      b.transfer.recv[j] = View{.data = b.recv.data() + above * element,
                                .dims = 3,
                                .size = {op.high, op.deep, width},
                                .stride = {op.deep * widest, widest, 1}};
    }
  }
  return b;
}

std::vector<std::byte*> addresses(const View& v, size_t element) {
  std::vector<std::byte*> out;
  for (int64_t k = 0; k < v.elements(); ++k) {
    int64_t rest = k, offset = 0;
    for (int d = v.dims - 1; d >= 0; --d) {
      offset += rest % v.size[d] * v.stride[d];
      rest /= v.size[d];
    }
    out.push_back(v.data + offset * static_cast<int64_t>(element));
  }
  return out;
}

template <class T>
void fold(T& sum, const T& x, Reduction reduction) {
  if constexpr (std::is_same_v<T, ExactSum>) {
    sum.add(x);
  } else if constexpr (std::is_same_v<T, int32_t>) {
    sum = reduction == Reduction::max ? std::max(sum, x)
                                      : static_cast<int32_t>(uint32_t(sum) + uint32_t(x));
  } else {
    sum = reduction == Reduction::max ? std::max(sum, x) : sum + x;
  }
}

// What member `me` must hold in the end, computed from the send buffers of all.
template <class T>
void expect(const Op& op, std::vector<Buffers>& all, int me) {
  const auto& mine = all[me].transfer;
  const int n = static_cast<int>(op.group.size());
  const bool flat = op.kind == CommKind::all_reduce;
  if (op.reduction == Reduction::none) {
    for (int i = 0; i < n; ++i) {
      const auto to = addresses(mine.recv[i], sizeof(T)),
                 from = addresses(all[i].transfer.send[me], sizeof(T));
      for (size_t k = 0; k < to.size(); ++k) std::memcpy(to[k], from[k], sizeof(T));
    }
    return;
  }
  const auto to = addresses(mine.recv[0], sizeof(T));
  std::vector<T> sums(to.size());
  for (int i = 0; i < n; ++i) {
    const auto from = addresses(all[i].transfer.send[flat ? 0 : me], sizeof(T));
    for (size_t k = 0; k < to.size(); ++k) {
      const T& x = *reinterpret_cast<T*>(from[k]);
      if (i == 0) {
        sums[k] = x;
      } else {
        fold(sums[k], x, op.reduction);
      }
    }
  }
  for (size_t k = 0; k < to.size(); ++k) {
    if constexpr (std::is_same_v<T, ExactSum>) sums[k].normalise();
    std::memcpy(to[k], &sums[k], sizeof(T));
  }
}

void expect(const Op& op, std::vector<Buffers>& all, int me) {
  switch (op.dtype) {
    case DType::f32:
      return expect<float>(op, all, me);
    case DType::f64:
      return expect<double>(op, all, me);
    case DType::i32:
      return expect<int32_t>(op, all, me);
    case DType::exact:
      return expect<ExactSum>(op, all, me);
  }
}

uint64_t stream_for(size_t op, int member, int step) { return (op * 100 + member) * 100 + step; }

using Results =
    std::vector<std::vector<std::byte>>;  // what each member of each op got, step by step

Results expected_results(const std::vector<Op>& ops, int steps) {
  Results results;
  for (size_t k = 0; k < ops.size(); ++k) {
    const int n = static_cast<int>(ops[k].group.size());
    std::vector<Buffers> all;
    for (int i = 0; i < n; ++i) all.push_back(buffers_of(ops[k], i));
    std::vector<std::vector<std::byte>> by_member(n);
    for (int step = 0; step < steps; ++step) {
      for (int i = 0; i < n; ++i) fill(all[i].send, ops[k].dtype, stream_for(k, i, step));
      for (int i = 0; i < n; ++i) {
        expect(ops[k], all, i);
        by_member[i].insert(by_member[i].end(), all[i].recv.begin(), all[i].recv.end());
      }
    }
    for (auto& bytes : by_member) results.push_back(std::move(bytes));
  }
  return results;
}

Traffic expected_traffic(const std::vector<Op>& ops, int rank) {
  Traffic traffic;
  for (const Op& op : ops) {
    const int n = static_cast<int>(op.group.size()), kind = static_cast<int>(op.kind);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        if (op.group[i] != rank || i == j || op.width[i][j] < 0) continue;
        int64_t elements = op.high * op.deep * op.width[i][j], messages = 1;
        if (op.kind == CommKind::all_reduce) {
          const auto part = [&](int k) { return elements * (k + 1) / n - elements * k / n; };
          elements = part(j) + part(i);
          messages = 2;
        }
        traffic.bytes[kind] += elements * static_cast<int64_t>(size_of(op.dtype));
        traffic.messages[kind] += messages;
      }
    }
  }
  return traffic;
}

// The steps of one member in one op; `sent` collects what has to be waited for at the end.
void add_steps(Communicator& comm, const Op& op, Buffers& b, int rank, size_t k, int step,
               std::vector<std::byte>& result, int handle, RankTask& task,
               std::vector<Step>& sent) {
  const int me = b.transfer.me;
  task.steps.push_back([&b, dtype = op.dtype, stream = stream_for(k, me, step)] {
    fill(b.send, dtype, stream);
    return Progress::done;
  });
  if (op.kind == CommKind::send && me == 0) {
    task.steps.push_back(
        [&comm, rank, handle] { return comm.start(rank, handle), Progress::done; });
    sent.push_back([&comm, rank, handle] { return comm.wait(rank, handle); });
  } else {
    task.steps.push_back([&comm, rank, handle] { return comm.run(rank, handle); });
  }
  task.steps.push_back([&b, &result] {
    result.insert(result.end(), b.recv.begin(), b.recv.end());
    return Progress::done;
  });
}

Results run_ops(const std::vector<Op>& ops, int ranks, int steps, int workers) {
  auto comm = make_threads_communicator(ranks);
  std::deque<Buffers> buffers;
  size_t members = 0;
  for (const Op& op : ops) members += op.group.size();
  Results results(members);
  std::vector<int> handles;
  for (const Op& op : ops) {
    for (size_t i = 0; i < op.group.size(); ++i) {
      Buffers& b = buffers.emplace_back(buffers_of(op, static_cast<int>(i)));
      handles.push_back(comm->prepare(op.group[i], b.transfer));
    }
  }
  comm->seal();
  std::vector<RankTask> tasks(ranks);
  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<Step>> sent(ranks);
    size_t at = 0;
    for (size_t k = 0; k < ops.size(); ++k) {
      for (size_t i = 0; i < ops[k].group.size(); ++i, ++at) {
        const int rank = ops[k].group[i];
        add_steps(*comm, ops[k], buffers[at], rank, k, step, results[at], handles[at], tasks[rank],
                  sent[rank]);
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (auto& wait : sent[rank]) tasks[rank].steps.push_back(wait);
    }
  }
  Pool pool(workers);
  const Outcome outcome = run_all(pool, tasks);
  EXPECT_TRUE(outcome.ok()) << outcome.reason << "\n" << comm->waiting();
  EXPECT_EQ(comm->waiting(), "");
  for (int rank = 0; rank < ranks; ++rank) {
    Traffic expected;
    for (int step = 0; step < steps; ++step) expected += expected_traffic(ops, rank);
    EXPECT_EQ(comm->traffic(rank).bytes, expected.bytes) << "rank " << rank;
    EXPECT_EQ(comm->traffic(rank).messages, expected.messages) << "rank " << rank;
  }
  comm->reset_traffic();
  EXPECT_EQ(comm->traffic(0), Traffic{});
  return results;
}

void compare(int seed, int count, int steps) {
  Random random{static_cast<uint64_t>(seed)};
  const int ranks = 2 + random.below(7);
  std::vector<Op> ops;
  for (int k = 0; k < count; ++k) ops.push_back(random_op(random, ranks));
  const Results expected = expected_results(ops, steps);
  for (const int workers : {1, 2, 4}) {
    const Results results = run_ops(ops, ranks, steps, workers);
    size_t at = 0;
    for (size_t k = 0; k < ops.size(); ++k) {
      for (size_t i = 0; i < ops[k].group.size(); ++i, ++at) {
        ASSERT_EQ(results[at].size(), expected[at].size());
        EXPECT_TRUE(results[at] == expected[at])
            << "seed " << seed << " workers " << workers << " op " << k << " "
            << name_of(ops[k].kind) << " " << name_of(ops[k].dtype) << " member " << i << " of "
            << ops[k].group.size();
      }
    }
  }
}

TEST(Communicator, RandomProgramsAgainstTheOracle) {
  for (int seed = 0; seed < 10; ++seed) compare(seed, 25, 3);
}

// Nothing but the transfer itself keeps its buffers from being used again too early.
TEST(Communicator, OneTransferManyTimes) {
  for (int seed = 100; seed < 125; ++seed) compare(seed, 1, 12);
}

}  // namespace
}  // namespace myriad
