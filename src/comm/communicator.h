// Moves data between ranks. A transfer is described once, in `prepare`, by strided views of the
// parts that its rank sends to and gets from each member of a group; running it allocates nothing.
// Bytes and messages are counted here, from these views, and nowhere else.
//
// Collectives are direct: each rank sends every peer its part; a receiver adds in group order, its
// own part included at its place: ((part 0 + part 1) + part 2) ..., bf16 in float, rounded once.
// all_reduce = reduce_scatter + all_gather over [i S / n, (i + 1) S / n) of the flat value.
// Messages of zero size are sent and counted. A part that is absent (View{}: no data, no dims) is
// neither sent nor counted: permute and any partial exchange leave parts out; both ends must. A sum
// of nothing is 0, a maximum of nothing the least value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/pool.h"
#include "ir/dtype.h"

namespace myriad {

enum class CommKind : uint8_t { all_gather, reduce_scatter, all_reduce, all_to_all, permute, send };
constexpr int kCommKinds = 6;
const char* name_of(CommKind kind);

// Rows of a tensor whose number is known only when it runs; owned by the rank, filled before it
// enters the transfer, left alone until the transfer is done.
struct RowList {
  int64_t n = 0;
  const int32_t* index = nullptr;  // [n]; null: rows 0 to n - 1
};

// A box of a row-major local tensor. stride is in elements. No dims: one element, or absent if
// there is no data.
struct View {
  std::byte* data = nullptr;
  int dims = 0;
  int64_t size[8] = {};
  int64_t stride[8] = {};
  const RowList* rows = nullptr;  // then dim 0 is these rows, and its size here is 0
  int64_t elements() const;       // without `rows`
  bool absent() const { return data == nullptr && dims == 0; }
};

struct Traffic {
  std::array<int64_t, kCommKinds> bytes{}, messages{};
  // Of them what goes to ranks of other nodes; rows: of parts that say how wide a row is.
  std::array<int64_t, kCommKinds> between_nodes_bytes{}, between_nodes_rows{};
  uint64_t order = 0;  // base/digest.h, of the transfers this rank sent in, in order
  void operator+=(const Traffic& other);
  bool operator==(const Traffic&) const = default;
};

enum class Reduction : uint8_t { none, sum, max };

// As one rank describes it. For kind send: group = {source, destination}; the source gives send[1],
// the destination recv[0]. all_reduce: one flat view each, send[0] and recv[0]: the whole local
// value, equal sizes on all members; the communicator cuts it. Trailing parts may be left out: they
// are absent. Both ends of a part give the same sizes (dims of size 1 aside). What is received may
// lie over what is sent only as the own part at the same addresses, or in all_reduce as the whole
// value.
struct Transfer {
  CommKind kind;
  DType dtype;
  Reduction reduction = Reduction::none;
  std::vector<int> group;       // ranks in mesh order, this one included
  int me = 0;                   // index of this rank in group
  std::vector<View> send = {};  // by member: the part it gets of what I have (mine included)
  std::vector<View> recv = {};  // by member: where its part goes (reductions: all the same box)
  int64_t row_elements = 0;     // of a token's hidden row on its way to or from experts; 0: no such
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  // Transfers of one group are matched by the order in which its members prepare them (sends: of
  // one pair of source and destination). Returns a handle of this rank. More may be prepared after
  // seal, and sealed in turn. Throws Error where the transfer itself is wrong.
  virtual int prepare(int rank, Transfer transfer) = 0;
  // All ranks have prepared: checks that members agree on kind, dtype and sizes of every part;
  // throws Error naming group, order and sizes.
  virtual void seal() = 0;
  // A collective, or the receiving end of a send: `blocked` until it is complete and its buffers
  // may be reused. Called again it goes on; called after it was done it begins the next step.
  // Completions are noted (note_progress).
  virtual Progress run(int rank, int handle) = 0;
  // The sending end: start never blocks; wait is `blocked` until the receiver has taken the part.
  // One wait per start.
  virtual void start(int rank, int handle) = 0;
  virtual Progress wait(int rank, int handle) = 0;
  // What this rank has sent since the last reset, counted when it takes part. Written by the worker
  // that runs the rank.
  virtual const Traffic& traffic(int rank) const = 0;
  virtual void reset_traffic() = 0;
  // For messages about a stall: what each rank waits for, a line each. From any thread.
  virtual std::string waiting() const = 0;
};

// Ranks as tasks in this process: a receiver reads its peers' memory in place. Rank r counts as on
// node r / ranks_per_node (0: all are on one).
std::unique_ptr<Communicator> make_threads_communicator(int ranks, int ranks_per_node = 0);

}  // namespace myriad
