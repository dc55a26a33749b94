// Ranks as tasks of one process. A transfer is a meeting of its members with one counter of signals
// that only grows: a member signals that it has arrived (its parts may be read), then after each
// phase that it has done its share, and goes on when all have signalled as often as it has. So a
// receiver reads its peers' memory in place, and nobody leaves before all have read. `start` is the
// first of these signals; all work is done inside `finish`, so that a rank's finish waits until its
// peers have reached theirs. In a send the source signals at the start and the destination when it
// has taken the part. Nothing here can be lost: it never says that it has failed.

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/digest.h"
#include "comm/boxes.h"
#include "comm/communicator.h"
#include "comm/transfers.h"

namespace myriad {

namespace {

struct Member;

struct Meeting {
  int order = 0;  // of its group
  std::vector<Member*> members;
  alignas(64) std::atomic<int64_t> signals{0};  // of all members, since the beginning
};

struct Share {  // of the work of a phase
  Boxes boxes;
  Reduction reduction = Reduction::none;
};

// The same for parts whose rows are known when it runs: row by row.
struct RowShare {
  Boxes row;                          // of the dims after the first
  std::vector<const RowList*> lists;  // by view
  std::vector<int64_t> stride;        // by view, bytes between rows
  Reduction reduction = Reduction::none;
  int part = 0, parts = 1;  // of the rows, for all_reduce

  void work(DType dtype) const {
    const int64_t n = lists[0]->n, begin = n * part / parts, end = n * (part + 1) / parts;
    for (const RowList* list : lists) CHECK(list->n == n, "{} rows and {}", list->n, n);
    Boxes boxes = row;
    for (int64_t r = begin; r < end; ++r) {
      for (size_t v = 0; v < lists.size(); ++v) {
        const int64_t at = lists[v]->index ? lists[v]->index[r] : r;
        boxes.data[v] = row.data[v] + at * stride[v];
      }
      if (reduction == Reduction::none) {
        copy(boxes, dtype);
      } else {
        reduce(boxes, dtype, reduction);
      }
    }
  }
};

RowShare row_share(const std::vector<View>& views, DType dtype, Reduction reduction, int part = 0,
                   int parts = 1) {
  std::vector<View> rest = views;
  std::vector<const RowList*> lists;
  std::vector<int64_t> stride;
  for (View& v : rest) {
    lists.push_back(v.rows);
    stride.push_back(v.stride[0] * static_cast<int64_t>(size_of(dtype)));
    std::copy(v.size + 1, v.size + v.dims, v.size);
    std::copy(v.stride + 1, v.stride + v.dims, v.stride);
    --v.dims;
  }
  return {Boxes(rest), std::move(lists), std::move(stride), reduction, part, parts};
}

struct Member {
  Transfer transfer;
  Traffic sent;  // in one step
  Meeting* meeting = nullptr;
  std::vector<Share> shares[2];  // by phase
  std::vector<RowShare> row_shares[2];
  bool by_rows = false;  // parts are rows known when it runs
  bool inside = false;   // has started and not finished
  std::atomic<int64_t> signals{0};

  CommKind kind() const { return transfer.kind; }
  int64_t members() const { return static_cast<int64_t>(transfer.group.size()); }
  bool all_signalled(int64_t count) const {
    return meeting->signals.load(std::memory_order_acquire) >= count;
  }
  void signal() {
    signals.store(signals.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    meeting->signals.fetch_add(1, std::memory_order_acq_rel);
    note_progress();
  }
  void work(int phase) const {
    for (const Share& share : shares[phase]) {
      if (share.reduction == Reduction::none) {
        copy(share.boxes, transfer.dtype);
      } else {
        reduce(share.boxes, transfer.dtype, share.reduction);
      }
    }
    for (const RowShare& share : row_shares[phase]) share.work(transfer.dtype);
  }
};

struct alignas(64) Rank {
  std::vector<std::unique_ptr<Member>> members;  // by handle
  Traffic traffic;
  std::atomic<int> waits_in{-1};  // handle
};

using Key = std::pair<bool, std::vector<int>>;  // a send?, group

class ThreadsCommunicator : public Communicator {
 public:
  ThreadsCommunicator(int ranks, int ranks_per_node)
      : ranks_(ranks), ranks_per_node_(ranks_per_node) {}

  int prepare(int rank, Transfer transfer) override;
  void seal() override;
  Progress start(int rank, int handle) override;
  Progress finish(int rank, int handle) override;
  Progress run(int rank, int handle) override;
  std::string failure() const override { return ""; }
  const Traffic& traffic(int rank) const override { return ranks_[rank].traffic; }
  void reset_traffic() override {
    for (Rank& rank : ranks_) rank.traffic = {};
  }
  std::string waiting() const override;

 private:
  Member& member(int rank, int handle);
  Progress blocked(int rank, int handle);
  Progress done(int rank);
  Progress receive(int rank, int handle, Member& m);
  Progress complete(int rank, int handle, Member& m);
  void enter(int rank, Member& m);

  std::vector<Rank> ranks_;
  const int ranks_per_node_;
  std::mutex mutex_;                                           // of prepare
  std::map<Key, std::vector<std::vector<Member*>>> prepared_;  // since seal, by place in the group
  std::map<Key, int> sealed_;                                  // how many transfers
  std::vector<std::unique_ptr<Meeting>> meetings_;
};

std::vector<Share> copies_of(const Member& m) {
  std::vector<Share> shares;
  const Transfer& t = m.transfer;
  for (size_t i = 0; i < t.group.size(); ++i) {
    if (t.recv[i].absent() || (t.kind == CommKind::send && (i != 0 || t.me != 1))) continue;
    shares.push_back({Boxes({t.recv[i], m.meeting->members[i]->transfer.send[t.me]})});
  }
  return shares;
}

std::vector<Share> sums_of(const Member& m) {
  const Transfer& t = m.transfer;
  std::vector<View> views(1);
  for (size_t i = 0; i < t.group.size(); ++i) {
    if (t.recv[i].absent()) continue;
    views[0] = t.recv[i];
    views.push_back(m.meeting->members[i]->transfer.send[t.me]);
  }
  if (views[0].absent()) return {};
  return {{Boxes(views), t.reduction}};
}

void share_all_reduce(Member& m) {
  const Transfer& t = m.transfer;
  const int n = static_cast<int>(t.group.size());
  std::vector<View> views = {part_of(t.recv[0], t.dtype, t.me, n)};
  for (const Member* peer : m.meeting->members) {
    views.push_back(part_of(peer->transfer.send[0], t.dtype, t.me, n));
  }
  m.shares[0].push_back({Boxes(views), t.reduction});
  for (int i = 0; i < n; ++i) {
    const View& whole = m.meeting->members[i]->transfer.recv[0];
    if (i == t.me) continue;
    m.shares[1].push_back(
        {Boxes({part_of(t.recv[0], t.dtype, i, n), part_of(whole, t.dtype, i, n)})});
  }
}

void share_rows(Member& m) {
  const Transfer& t = m.transfer;
  const auto peer = [&](size_t i) -> const Transfer& { return m.meeting->members[i]->transfer; };
  const int n = static_cast<int>(t.group.size());
  if (m.kind() == CommKind::all_reduce) {
    std::vector<View> views = {t.recv[0]};
    for (int i = 0; i < n; ++i) views.push_back(peer(i).send[0]);
    m.row_shares[0].push_back(row_share(views, t.dtype, t.reduction, t.me, n));
    for (int i = 0; i < n; ++i) {
      if (i != t.me)
        m.row_shares[1].push_back(
            row_share({t.recv[0], peer(i).recv[0]}, t.dtype, Reduction::none, i, n));
    }
  } else if (m.kind() == CommKind::reduce_scatter) {
    std::vector<View> views = {t.recv[0]};
    for (int i = 0; i < n; ++i) views.push_back(peer(i).send[t.me]);
    m.row_shares[0].push_back(row_share(views, t.dtype, t.reduction));
  } else {
    for (int i = 0; i < n; ++i) {
      m.row_shares[0].push_back(
          row_share({t.recv[i], peer(i).send[t.me]}, t.dtype, Reduction::none));
    }
  }
}

void settle(Meeting& meeting) {
  std::vector<const Transfer*> transfers;
  for (const Member* m : meeting.members) transfers.push_back(&m->transfer);
  check_agreement(meeting.order, transfers);
  for (Member* m : meeting.members) {
    m->meeting = &meeting;
    if (m->by_rows) {
      share_rows(*m);
    } else if (m->kind() == CommKind::all_reduce) {
      share_all_reduce(*m);
    } else {
      m->shares[0] = m->kind() == CommKind::reduce_scatter ? sums_of(*m) : copies_of(*m);
    }
  }
}

int ThreadsCommunicator::prepare(int rank, Transfer transfer) {
  const int ranks = static_cast<int>(ranks_.size());
  CHECK(rank >= 0 && rank < ranks, "rank {} of {}", rank, ranks);
  auto m = std::make_unique<Member>();
  m->transfer = checked(rank, ranks, std::move(transfer));
  m->by_rows = has_rows(m->transfer);
  if (!m->by_rows) m->sent = sent_by(m->transfer, ranks_per_node_);
  std::lock_guard lock(mutex_);
  auto& by_member = prepared_[{m->kind() == CommKind::send, m->transfer.group}];
  by_member.resize(m->transfer.group.size());
  by_member[m->transfer.me].push_back(m.get());
  ranks_[rank].members.push_back(std::move(m));
  return static_cast<int>(ranks_[rank].members.size()) - 1;
}

void ThreadsCommunicator::seal() {
  for (const auto& [key, by_member] : prepared_) {
    const auto& group = key.second;
    for (size_t i = 1; i < group.size(); ++i) {
      if (by_member[i].size() == by_member[0].size()) continue;
      throw Error(fmt::format("group {}: rank {} has {} {}, rank {} has {}", text_of(group),
                              group[0], by_member[0].size(), key.first ? "sends" : "collectives",
                              group[i], by_member[i].size()));
    }
    int& order = sealed_[key];
    for (size_t k = 0; k < by_member[0].size(); ++k) {
      Meeting& meeting = *meetings_.emplace_back(std::make_unique<Meeting>());
      meeting.order = order++;
      for (const auto& transfers : by_member) meeting.members.push_back(transfers[k]);
      settle(meeting);
    }
  }
  prepared_.clear();
}

Member& ThreadsCommunicator::member(int rank, int handle) {
  CHECK(rank >= 0 && rank < static_cast<int>(ranks_.size()), "rank {} of {}", rank, ranks_.size());
  auto& members = ranks_[rank].members;
  CHECK(handle >= 0 && handle < static_cast<int>(members.size()), "handle {} of {}", handle,
        members.size());
  CHECK(members[handle]->meeting != nullptr, "rank {} runs handle {} before seal", rank, handle);
  return *members[handle];
}

Progress ThreadsCommunicator::blocked(int rank, int handle) {
  ranks_[rank].waits_in.store(handle, std::memory_order_relaxed);
  return Progress::blocked;
}

Progress ThreadsCommunicator::done(int rank) {
  ranks_[rank].waits_in.store(-1, std::memory_order_relaxed);
  note_progress();
  return Progress::done;
}

void ThreadsCommunicator::enter(int rank, Member& m) {
  m.inside = true;
  const Traffic sent = m.by_rows ? sent_by(m.transfer, ranks_per_node_) : m.sent;
  Traffic& traffic = ranks_[rank].traffic;
  traffic += sent;
  traffic.order = digest_transfer(traffic.order, name_of(m.kind()), m.transfer.group,
                                  sent.bytes[static_cast<int>(m.kind())]);
  m.signal();
}

Progress ThreadsCommunicator::start(int rank, int handle) {
  Member& m = member(rank, handle);
  CHECK(m.kind() != CommKind::send || m.transfer.me == 0, "rank {} starts what it does not send",
        rank);
  CHECK(!m.inside, "rank {} starts {} #{} of group {} again before it has finished", rank,
        name_of(m.kind()), m.meeting->order, text_of(m.transfer.group));
  enter(rank, m);
  return Progress::done;
}

Progress ThreadsCommunicator::finish(int rank, int handle) {
  Member& m = member(rank, handle);
  CHECK(m.inside, "rank {} finishes {} #{} of group {}, which it has not started", rank,
        name_of(m.kind()), m.meeting->order, text_of(m.transfer.group));
  if (m.kind() != CommKind::send) return complete(rank, handle, m);
  if (!m.all_signalled(2 * m.signals.load(std::memory_order_relaxed))) return blocked(rank, handle);
  m.inside = false;
  return done(rank);
}

Progress ThreadsCommunicator::run(int rank, int handle) {
  Member& m = member(rank, handle);
  if (m.kind() == CommKind::send) return receive(rank, handle, m);
  if (!m.inside) enter(rank, m);
  return complete(rank, handle, m);
}

// Goes through the phases of a collective that has been started.
Progress ThreadsCommunicator::complete(int rank, int handle, Member& m) {
  const int phases = m.kind() == CommKind::all_reduce ? 3 : 2;
  for (;;) {
    const int64_t mine = m.signals.load(std::memory_order_relaxed);
    if (!m.all_signalled(mine * m.members())) return blocked(rank, handle);
    const int passed = static_cast<int>(mine % phases);
    if (passed == 0) break;
    m.work(passed - 1);
    m.signal();
  }
  m.inside = false;
  return done(rank);
}

Progress ThreadsCommunicator::receive(int rank, int handle, Member& m) {
  CHECK(m.transfer.me == 1, "rank {} runs a send of which it is the source", rank);
  if (!m.all_signalled(2 * m.signals.load(std::memory_order_relaxed) + 1))
    return blocked(rank, handle);
  m.work(0);
  m.signal();
  return done(rank);
}

std::string ThreadsCommunicator::waiting() const {
  std::string text;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const int handle = ranks_[rank].waits_in.load(std::memory_order_relaxed);
    if (handle < 0) continue;
    const Member& m = *ranks_[rank].members[handle];
    const Transfer& t = m.transfer;
    std::vector<int> late;
    for (const Member* peer : m.meeting->members) {
      const bool behind = t.kind == CommKind::send || peer->signals.load() < m.signals.load();
      if (peer != &m && behind) late.push_back(peer->transfer.group[peer->transfer.me]);
    }
    text +=
        fmt::format("rank {} waits in {} #{} of group {} for {}\n", rank, name_of(t.kind),
                    m.meeting->order, text_of(t.group),
                    late.size() == 1 ? fmt::format("rank {}", late[0]) : "ranks " + text_of(late));
  }
  return text;
}

}  // namespace

std::unique_ptr<Communicator> make_threads_communicator(int ranks, int ranks_per_node) {
  if (ranks < 1) throw Error(fmt::format("a communicator cannot have {} ranks", ranks));
  return std::make_unique<ThreadsCommunicator>(ranks, ranks_per_node);
}

}  // namespace myriad
