// A step's timeline as HTML, one row a rank, from a Chrome trace (train/timeline.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace myriad {

// Process 0 of the trace; adds what the page's script needs to name a bar to `data[id]`. Empty if
// the trace is null or has no bars.
std::string timeline_html(const std::string& id, const nlohmann::json& trace, nlohmann::json& data);

std::string show_time(double seconds);  // "1.23 s", "4.5 ms", "12 us"

}  // namespace myriad
