#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <array>

#include "base/random.h"
#include "comm/rank_task.h"

namespace myriad {
namespace {

template <class T>
View view_of(std::vector<T>& data, std::vector<int64_t> sizes) {
  View view{.data = reinterpret_cast<std::byte*>(data.data()),
            .dims = static_cast<int>(sizes.size())};
  int64_t stride = 1;
  for (int d = view.dims - 1; d >= 0; --d) {
    view.size[d] = sizes[d];
    view.stride[d] = stride;
    stride *= sizes[d];
  }
  return view;
}

// ---- Closed formulae, with parts that do not divide evenly.

// One f32 transfer of all n ranks on one value of S elements, run once.
struct OneTransfer {
  OneTransfer(CommKind kind, int n, int64_t size, bool in_place, int ranks_per_node = 0)
      : comm(make_threads_communicator(n, ranks_per_node)), tasks(n) {
    const bool reduces = kind != CommKind::all_gather;
    for (int me = 0; me < n; ++me) {
      value.emplace_back(size);
      for (int64_t k = 0; k < size; ++k) value[me][k] = static_cast<float>(normal(1, me, k));
    }
    original = out = value;
    const auto part = [&](std::vector<float>& data, int i) {
      const int64_t begin = size * i / n, end = size * (i + 1) / n;
      View view{.data = reinterpret_cast<std::byte*>(data.data() + begin),
                .dims = 1,
                .size = {end - begin}};
      view.stride[0] = 1;
      return view;
    };
    for (int me = 0; me < n; ++me) {
      auto& to = in_place ? value[me] : out[me];
      Transfer t{.kind = kind, .dtype = DType::f32, .group = {}, .me = me};
      if (reduces) t.reduction = Reduction::sum;
      t.row_elements = 4;
      for (int i = 0; i < n; ++i) {
        t.group.push_back(i);
        if (kind == CommKind::all_reduce) continue;
        t.send.push_back(part(value[me], reduces ? i : me));
        t.recv.push_back(part(to, reduces ? me : i));
      }
      if (kind == CommKind::all_reduce) {
        t.send = {view_of(value[me], {size})};
        t.recv = {view_of(to, {size})};
      }
      const int handle = comm->prepare(me, t);
      tasks[me].steps.push_back([this, me, handle] { return comm->run(me, handle); });
    }
    comm->seal();
    Pool pool(2);
    EXPECT_TRUE(run_all(pool, tasks).ok());
    for (int me = 0; me < n; ++me) total += comm->traffic(me);
  }
  std::unique_ptr<Communicator> comm;
  std::vector<RankTask> tasks;
  std::vector<std::vector<float>> value, original, out;
  Traffic total;
};

TEST(Communicator, CountsAreTheClosedFormulae) {
  for (const CommKind kind :
       {CommKind::all_gather, CommKind::reduce_scatter, CommKind::all_reduce}) {
    for (const int n : {1, 2, 3, 5, 8}) {
      for (const int64_t size : {0, 1, 7, 64, 1001}) {
        const int64_t times = kind == CommKind::all_reduce ? 2 : 1;
        const Traffic total = OneTransfer(kind, n, size, false).total;
        EXPECT_EQ(total.bytes[static_cast<int>(kind)], times * (n - 1) * size * 4);
        EXPECT_EQ(total.messages[static_cast<int>(kind)], times * n * (n - 1));
      }
    }
  }
}

// Six ranks on nodes of 4: {0, 1, 2, 3} and {4, 5}. A part of 8 elements is two rows of 4.
TEST(Communicator, WhatGoesToOtherNodesIsCounted) {
  for (const CommKind kind : {CommKind::all_gather, CommKind::reduce_scatter}) {
    const auto k = static_cast<size_t>(kind);
    const Traffic total = OneTransfer(kind, 6, 48, false, 4).total;
    EXPECT_EQ(total.between_nodes_bytes[k], 2 * 4 * 2 * 8 * 4);  // each way 4 x 2 parts
    EXPECT_EQ(total.between_nodes_rows[k], 2 * 4 * 2 * 2);
    EXPECT_EQ(OneTransfer(kind, 6, 48, false).total.between_nodes_bytes[k], 0);
  }
}

TEST(Communicator, InPlace) {
  constexpr int64_t size = 3001;
  for (const int n : {1, 3, 4}) {
    for (const CommKind kind :
         {CommKind::all_gather, CommKind::reduce_scatter, CommKind::all_reduce}) {
      const OneTransfer one(kind, n, size, true);
      for (int me = 0; me < n; ++me) {
        for (int64_t k = 0; k < size; ++k) {
          int owner = 0;
          while (k >= size * (owner + 1) / n) ++owner;
          float expected = one.original[0][k];
          for (int i = 1; i < n; ++i) expected += one.original[i][k];
          if (kind == CommKind::all_gather) expected = one.original[owner][k];
          if (kind == CommKind::reduce_scatter && owner != me) expected = one.original[me][k];
          ASSERT_EQ(one.value[me][k], expected) << name_of(kind) << " rank " << me << " at " << k;
        }
      }
    }
  }
}

// ---- Sends.

TEST(Communicator, PingPong) {
  constexpr int rounds = 500, ranks = 3;
  for (const int workers : {1, 2, 4}) {
    auto comm = make_threads_communicator(ranks);
    std::vector<int32_t> cell(ranks, 0);
    std::vector<RankTask> tasks(ranks);
    std::vector<std::array<int, 2>> handle(ranks);  // to the next rank, from the one before
    for (int rank = 0; rank < ranks; ++rank) {
      const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
      const View view{.data = reinterpret_cast<std::byte*>(&cell[rank]), .dims = 0};
      handle[rank][0] = comm->prepare(rank, {.kind = CommKind::send,
                                             .dtype = DType::i32,
                                             .group = {rank, next},
                                             .me = 0,
                                             .send = {{}, view}});
      handle[rank][1] = comm->prepare(rank, {.kind = CommKind::send,
                                             .dtype = DType::i32,
                                             .group = {before, rank},
                                             .me = 1,
                                             .recv = {view}});
    }
    comm->seal();
    for (int round = 0; round < rounds; ++round) {
      for (int rank = 0; rank < ranks; ++rank) {
        auto& steps = tasks[rank].steps;
        const auto send = [&, rank] {
          steps.push_back([&, rank] { return ++cell[rank], comm->start(rank, handle[rank][0]); });
          steps.push_back([&, rank] { return comm->finish(rank, handle[rank][0]); });
        };
        if (rank == 0) send();
        steps.push_back([&, rank] { return comm->run(rank, handle[rank][1]); });
        if (rank != 0) send();
      }
    }
    Pool pool(workers);
    EXPECT_TRUE(run_all(pool, tasks).ok());
    EXPECT_EQ(cell[0], ranks * rounds);
    EXPECT_EQ(comm->traffic(1).messages[static_cast<int>(CommKind::send)], rounds);
    EXPECT_EQ(comm->traffic(1).bytes[static_cast<int>(CommKind::send)], 4 * rounds);
  }
}

// ---- What must be refused.

class Refusals : public testing::Test {
 protected:
  Transfer gather(int me, int64_t mine, int64_t other) {
    Transfer t{.kind = CommKind::all_gather, .dtype = DType::f32, .group = {2, 3}, .me = me};
    const View own = view_of(data_, {2, mine}), its = view_of(data_, {2, other});
    t.send = {own, own};
    t.recv = me == 0 ? std::vector{own, its} : std::vector{its, own};
    return t;
  }
  std::string refusal(const std::vector<Transfer>& transfers) {
    auto comm = make_threads_communicator(4);
    try {
      for (const Transfer& t : transfers) comm->prepare(t.group[t.me], t);
      comm->seal();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::vector<float> data_ = std::vector<float>(100);
};

TEST_F(Refusals, MismatchedTransfers) {
  EXPECT_EQ(refusal({gather(0, 3, 4), gather(1, 4, 3)}), "");
  EXPECT_EQ(refusal({gather(0, 3, 4), gather(0, 3, 4), gather(1, 4, 3), gather(1, 4, 5)}),
            "transfer #1 of group {2,3}: all_gather f32: rank 2 sends [2,3] to rank 3, which takes "
            "[2,5]");
  Transfer t = gather(1, 4, 3);
  t.dtype = DType::i32;
  EXPECT_EQ(refusal({gather(0, 3, 4), t}),
            "transfer #0 of group {2,3}: rank 2 has all_gather f32, rank 3 has all_gather i32");
  t = gather(1, 4, 3);
  t.kind = CommKind::all_to_all;
  EXPECT_EQ(refusal({gather(0, 3, 4), t}),
            "transfer #0 of group {2,3}: rank 2 has all_gather f32, rank 3 has all_to_all f32");
  t = gather(1, 4, 3);
  t.send[0] = {};
  EXPECT_EQ(refusal({gather(0, 3, 4), t}),
            "transfer #0 of group {2,3}: all_gather f32: rank 3 sends absent to rank 2, which "
            "takes [2,4]");
  EXPECT_EQ(refusal({gather(0, 3, 4), gather(1, 4, 3), gather(1, 4, 3)}),
            "group {2,3}: rank 2 has 1 collectives, rank 3 has 2");
}

TEST_F(Refusals, ReductionsMustAgree) {
  const View view = view_of(data_, {10});
  Transfer sum{.kind = CommKind::all_reduce,
               .dtype = DType::f32,
               .reduction = Reduction::sum,
               .group = {0, 1},
               .me = 0,
               .send = {view},
               .recv = {view}};
  Transfer max = sum;
  max.me = 1;
  max.reduction = Reduction::max;
  EXPECT_EQ(
      refusal({sum, max}),
      "transfer #0 of group {0,1}: rank 0 has all_reduce f32 sum, rank 1 has all_reduce f32 max");
  max.reduction = Reduction::sum;
  EXPECT_EQ(refusal({sum, max}), "");
  max.send = max.recv = {view_of(data_, {9})};
  EXPECT_EQ(
      refusal({sum, max}),
      "transfer #0 of group {0,1}: all_reduce f32: rank 0 sends [10] to rank 1, which takes [9]");
  sum.reduction = Reduction::none;
  EXPECT_NE(refusal({sum}).find("only reduce_scatter and all_reduce reduce"), std::string::npos);
  sum.reduction = Reduction::sum;
  sum.recv[0].stride[0] = 2;
  EXPECT_NE(refusal({sum}).find("not one flat view"), std::string::npos);
}

TEST_F(Refusals, WrongByThemselves) {
  Transfer t = gather(0, 3, 4);
  t.me = 1;
  EXPECT_THROW(make_threads_communicator(4)->prepare(2, t), Error);
  EXPECT_THROW(make_threads_communicator(3)->prepare(2, gather(0, 3, 4)), Error);
  t = gather(0, 3, 4);
  t.group = {2, 2};
  EXPECT_THROW(make_threads_communicator(4)->prepare(2, t), Error);
  t = gather(0, 3, 4);
  t.send[1].data = nullptr;
  EXPECT_EQ(refusal({t}), "rank 2: all_gather of group {2,3}: a part of sizes [2,3] has no memory");
  t = gather(0, 3, 4);
  t.send.emplace_back();
  EXPECT_THROW(make_threads_communicator(4)->prepare(2, t), Error);
  EXPECT_THROW(make_threads_communicator(0), Error);
}

TEST_F(Refusals, StallSaysWhoWaitsForWhom) {
  auto comm = make_threads_communicator(4);
  const Transfer first = gather(0, 3, 3), second = gather(1, 3, 3);
  comm->prepare(2, first);
  comm->prepare(3, second);
  const int late = comm->prepare(2, first);
  comm->prepare(3, second);
  const View view = view_of(data_, {5});
  const int take = comm->prepare(
      1, {.kind = CommKind::send, .dtype = DType::f32, .group = {0, 1}, .me = 1, .recv = {view}});
  comm->prepare(
      0,
      {.kind = CommKind::send, .dtype = DType::f32, .group = {0, 1}, .me = 0, .send = {{}, view}});
  comm->seal();
  std::vector<RankTask> tasks(4);
  tasks[1].steps = {[&] { return comm->run(1, take); }};
  tasks[2].steps = {[&] { return comm->run(2, late); }};
  Pool pool(2);
  EXPECT_FALSE(run_all(pool, tasks, 0.1).ok());
  EXPECT_EQ(comm->waiting(),
            "rank 1 waits in send #0 of group {0,1} for rank 0\n"
            "rank 2 waits in all_gather #1 of group {2,3} for rank 3\n");
}

}  // namespace
}  // namespace myriad
