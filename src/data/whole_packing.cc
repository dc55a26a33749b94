#include "data/whole_packing.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace myriad {

WholePacking pack_whole(std::span<const int64_t> lengths, int64_t length) {
  CHECK(std::is_sorted(lengths.rbegin(), lengths.rend()), "the longest first");
  std::vector<std::vector<int64_t>> rows;
  std::map<int64_t, std::vector<size_t>> open;  // rows by the room that is left in them
  for (size_t i = 0; i < lengths.size(); ++i) {
    CHECK(lengths[i] >= 1 && lengths[i] <= length, "a piece of {} in rows of {}", lengths[i],
          length);
    int64_t room = length;
    size_t row = rows.size();
    if (const auto best = open.lower_bound(lengths[i]); best != open.end()) {
      room = best->first;
      row = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) open.erase(best);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(static_cast<int64_t>(i));
    if (room > lengths[i]) open[room - lengths[i]].push_back(row);
  }
  WholePacking packing{.row_begins = {0}};
  for (const auto& row : rows) {
    packing.pieces.insert(packing.pieces.end(), row.begin(), row.end());
    packing.row_begins.push_back(static_cast<int64_t>(packing.pieces.size()));
  }
  return packing;
}

}  // namespace myriad
