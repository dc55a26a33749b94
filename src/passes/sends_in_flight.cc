// How long the wait for a send may be put off. A send holds its buffer until it is waited for, so
// the earliest wait is the best one; but a stage that waits for a receiver which itself waits for
// this stage has a deadlock. Which of both it is follows from the order of the slots alone: of all
// that a stage does only sends, receives and waits involve another stage before the optimizer, and
// the optimizer begins once every send has been waited for. So this file turns slots into those
// three kinds of events, exactly as passes/actions.cc emits them, and lets all stages go on until
// none can (as passes/check.cc does with the finished program).
#include <map>

#include "base/error.h"
#include "passes/schedule.h"

namespace myriad {

namespace {

struct Event {
  enum Kind : uint8_t { send, wait, receive } kind;
  int channel;  // 2 k forward from virtual stage k to k + 1, 2 k + 1 backward from k + 1 to k
};
using Events = std::vector<Event>;

// The events of one stage where `limit` sends of a channel may be under way.
Events events_of(const std::vector<Slot>& slots, int stage, int stages, int chunks, int limit) {
  Events events;
  std::map<int, int> under_way;  // by channel
  const int last = stages * chunks - 1;
  const auto receive = [&](int from, int channel) {
    if (from % stages != stage) events.push_back({Event::receive, channel});
  };
  const auto send = [&](int to, int channel) {
    if (to % stages == stage) return;  // virtual stages on one stage hand over in place
    int& n = under_way[channel];
    if (n < limit) {
      ++n;
    } else {
      events.push_back({Event::wait, channel});
    }
    events.push_back({Event::send, channel});
  };
  for (const Slot& slot : slots) {
    const int k = slot.chunk * stages + stage;
    if (slot.forward) {
      if (k > 0) receive(k - 1, 2 * (k - 1));
      if (k < last) send(k + 1, 2 * k);
    } else {
      if (k < last) receive(k + 1, 2 * k + 1);
      if (k > 0) send(k - 1, 2 * (k - 1) + 1);
    }
  }
  for (const auto& [channel, n] : under_way) events.insert(events.end(), n, {Event::wait, channel});
  return events;
}

// Messages of one channel are received in the order of their sends, and waited for in that order.
struct Channel {
  int sent = 0, received = 0, waited = 0;

  // Whether the event can happen now; then it has.
  bool happens(Event::Kind kind) {
    switch (kind) {
      case Event::send:
        ++sent;
        return true;
      case Event::receive:
        return received < sent && ++received > 0;
      case Event::wait:
        return waited < received && ++waited > 0;
    }
    return false;
  }
};

bool runs_to_the_end(const std::vector<Events>& events) {
  std::vector<size_t> next(events.size(), 0);
  std::map<int, Channel> channels;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < events.size(); ++s) {
      while (next[s] < events[s].size() &&
             channels[events[s][next[s]].channel].happens(events[s][next[s]].kind)) {
        ++next[s];
        moved = true;
      }
    }
  }
  for (size_t s = 0; s < events.size(); ++s) {
    if (next[s] < events[s].size()) return false;
  }
  return true;
}

}  // namespace

int sends_in_flight(const Schedule& schedule, int chunks) {
  const int stages = static_cast<int>(schedule.size());
  size_t most = 1;
  for (const auto& slots : schedule) most = std::max(most, slots.size());
  for (int limit = 1;; limit *= 2) {
    std::vector<Events> events;
    for (int s = 0; s < stages; ++s)
      events.push_back(events_of(schedule[s], s, stages, chunks, limit));
    if (runs_to_the_end(events)) return limit;
    // With as many as there are slots, no wait comes before the end.
    if (static_cast<size_t>(limit) > most) throw Error("the stages of the schedule deadlock");
  }
}

}  // namespace myriad
