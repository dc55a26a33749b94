// Schedules as text, a line for each stage and a word for each pass, and that text read back.
#include "train/show_schedule.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "base/error.h"

namespace myriad {

namespace {

constexpr int kForward = 1, kBackward = 2;  // lengths in columns

// When each pass begins if all wait for what they need; check_schedule has proved that it ends.
std::vector<std::vector<int>> begins_of(const Schedule& schedule, int chunks) {
  const int stages = static_cast<int>(schedule.size()), last = stages * chunks - 1;
  std::map<std::tuple<bool, int, int>, int> ends;  // forward, virtual stage, micro-batch
  std::vector<std::vector<int>> begins(stages);
  std::vector<int> free(stages, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < stages; ++s) {
      while (begins[s].size() < schedule[s].size()) {
        const Slot& slot = schedule[s][begins[s].size()];
        const int k = slot.chunk * stages + s;
        int ready = 0;
        if (!(slot.forward && k == 0)) {
          const auto need = slot.forward ? std::tuple(true, k - 1, slot.micro_batch)
                                         : (k == last ? std::tuple(true, k, slot.micro_batch)
                                                      : std::tuple(false, k + 1, slot.micro_batch));
          const auto at = ends.find(need);
          if (at == ends.end()) break;
          ready = at->second;
        }
        const int begin = std::max(ready, free[s]);
        begins[s].push_back(begin);
        free[s] = begin + (slot.forward ? kForward : kBackward);
        ends[{slot.forward, k, slot.micro_batch}] = free[s];
        moved = true;
      }
    }
  }
  return begins;
}

std::string cell(const Slot& slot) {
  return fmt::format("{}{}.{}", slot.forward ? 'f' : 'b', slot.chunk, slot.micro_batch);
}

}  // namespace

std::string schedule_text(const Schedule& schedule, int chunks) {
  const std::vector<std::vector<int>> begins = begins_of(schedule, chunks);
  size_t width = 0;
  for (const auto& slots : schedule) {
    for (const Slot& slot : slots) width = std::max(width, cell(slot).size());
  }
  std::string out;
  for (size_t s = 0; s < schedule.size(); ++s) {
    std::vector<std::string> line;
    for (size_t i = 0; i < schedule[s].size(); ++i) {
      line.resize(begins[s][i], ".");
      line.push_back(cell(schedule[s][i]));
      if (!schedule[s][i].forward) line.resize(line.size() + kBackward - 1, "~");
    }
    out += fmt::format("stage {}:", s);
    for (const std::string& text : line) out += fmt::format(" {:<{}}", text, width);
    out.resize(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  return out;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  std::istringstream in{std::string(text)};
  std::string line, word;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    const std::string begin = fmt::format("stage {}:", schedule.size());
    if (!line.starts_with(begin))
      throw Error(fmt::format("expected \"{}\"", begin), fmt::format("line {}", number));
    words.seekg(static_cast<std::streamoff>(begin.size()));
    schedule.emplace_back();
    while (words >> word) {
      if (word == "." || word == "~") continue;
      Slot slot{.forward = word[0] == 'f', .chunk = 0, .micro_batch = 0};
      const char* end = word.data() + word.size();
      const auto chunk = std::from_chars(word.data() + 1, end, slot.chunk);
      const bool dot = chunk.ec == std::errc() && chunk.ptr != end && *chunk.ptr == '.';
      const auto mb = dot ? std::from_chars(chunk.ptr + 1, end, slot.micro_batch) : chunk;
      if ((word[0] != 'f' && word[0] != 'b') || !dot || mb.ec != std::errc() || mb.ptr != end) {
        throw Error(fmt::format("\"{}\" is no pass", word), fmt::format("line {}", number),
                    "for instance f0.1: forward, chunk 0, micro-batch 1");
      }
      schedule.back().push_back(slot);
    }
  }
  return schedule;
}

}  // namespace myriad
