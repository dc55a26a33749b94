// What every kind of communicator asks of transfers: checks, cuts and counts.
#pragma once

#include <span>
#include <string>

#include "comm/communicator.h"

namespace myriad {

// Sizes of a view: "[4,8]", "absent".
std::string sizes_of(const View& view);
// "{0,2,4}"
std::string text_of(std::span<const int> group);

// Checks one rank's description alone and gives it all its parts (absent ones at the end). Throws
// Error.
Transfer checked(int rank, int ranks, Transfer transfer);

// Checks the descriptions of all members, by group order, against each other: kind, dtype,
// reduction, sizes of every part. `order` says which transfer of its group it is, for messages.
// Throws Error.
void check_agreement(int order, std::span<const Transfer* const> members);

// Part i of n of a flat view: [i S / n, (i + 1) S / n).
View part_of(const View& flat, DType dtype, int i, int n);

// Whether its parts are rows known only when it runs.
bool has_rows(const Transfer& transfer);

// What the rank of this description sends in one step; of rows with the lists as they stand. Rank r
// is on node r / ranks_per_node (0: all are on one).
Traffic sent_by(const Transfer& transfer, int ranks_per_node);

}  // namespace myriad
