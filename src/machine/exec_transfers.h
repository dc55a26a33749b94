// Moves as one rank sees them: transfers for the communicator, and changes of layout that send
// nothing.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "machine/exec_memory.h"

namespace myriad {

// Prepares all transfers of a rank with the communicator. Handles by flat position
// (machine/walker.h); a finish has that of its start, the wait of a send that of the send, and -1
// stands where nothing is sent.
std::vector<int> prepare_transfers(const Program& program, int rank, RankMemory& memory,
                                   Communicator& comm);

// Says which rows the parts of a collective on routed rows are, before each start. mine, theirs:
// rows of the source and the destination on this rank, in this round.
void list_rows(const Mesh& mesh, const LoweredBody& body, const Step& step, int rank,
               const BoxRows& mine, const BoxRows& theirs, PreparedBody::Rows& rows);

// Copies the part of `from` that lies where `to` does.
void copy_part(const Tensor& from, const Tensor& to);
// The same for routed rows: those of `from` that `chosen` lists.
void copy_rows(const Tensor& from, const Tensor& to, const RowList& chosen);

}  // namespace myriad
