#include "passes/actions.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"

namespace myriad {

namespace {

class Actions {
 public:
  Actions(const LoweredPieces& lowered, const Plan& plan, const LowerOptions& options,
          Program& program)
      : lowered_(lowered), plan_(plan), options_(options), program_(program) {}

  void run(const Schedule& schedule, int lag) {
    program_.actions.assign(plan_.pp, {});
    program_.buffers.clear();
    program_.states.clear();
    std::vector<Stage> stages(plan_.pp);
    for (int n = 0; n < plan_.pp; ++n) {
      Stage& s = stages[n];
      s.number = n;
      begin_step(s);
      for (const Slot& slot : schedule[n]) {
        const int k = slot.chunk * plan_.pp + n;
        if (slot.forward) {
          forward_slot(s, k, slot.micro_batch, lag);
        } else {
          backward_slot(s, k, slot.micro_batch, lag);
        }
      }
      wait_for_all(s);
      options_.forward_only ? finish(s) : optimize(s);
    }
    sort_states();
  }

 private:
  using Key = std::tuple<int, int, std::string>;  // unit, micro-batch, value

  // Actions.

  int add_buffer(std::string name, int body, int version) {
    program_.buffers.push_back({std::move(name), body, version});
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  const std::string& name_of_version(int body, int version) const {
    const LoweredBody& b = program_.bodies[body];
    return (*b.graph)[b.versions[version].value].name;
  }

  static std::string place(int unit, int mb) {
    std::string text;
    if (unit >= 0) text += fmt::format("/{}", unit);
    if (mb >= 0) text += fmt::format(".mb{}", mb);
    return text;
  }

  int state_of(int body, int use, int unit, int stage) {
    const StateUse& s = program_.bodies[body].states[use];
    const Pieces& p = lowered_.first().pieces;
    const int piece = program_.bodies[body].piece;
    int owner = unit;
    if (s.name[0] == 's') {
      owner = -1;
    } else if (piece == p.tied) {
      owner = s.name[0] == 'g' && body == lowered_.optimizer.settle_other
                  ? static_cast<int>(p.units.size()) - 1
                  : 0;
    } else if (s.name[0] != 'g') {
      const int param = p.pieces[piece].find(s.name.substr(2));
      if (param >= 0 && p.pieces[piece].params[param].tied) owner = 0;
    }
    const auto [at, fresh] =
        state_index_.try_emplace({owner, s.name}, static_cast<int>(program_.states.size()));
    if (fresh) program_.states.push_back({owner, s.name, body, use, {}});
    State& state = program_.states[at->second];
    if (std::find(state.stages.begin(), state.stages.end(), stage) == state.stages.end())
      state.stages.push_back(stage);
    return at->second;
  }

  // What a stage knows while its actions are made.
  struct Stage {
    int number;
    std::map<Key, int> buffers;
    std::map<int, std::vector<int>> in_flight;  // channel -> buffers being sent
  };

  Action& act(Stage& s, Act what) {
    program_.actions[s.number].push_back({.act = what});
    return program_.actions[s.number].back();
  }

  void run_body(Stage& s, int body, int unit, int mb,
                const std::function<int(const std::string&)>& input, int made_by = -2) {
    Action a{.act = Act::run, .body = body, .unit = unit, .micro_batch = mb};
    const LoweredBody& b = program_.bodies[body];
    for (int v : b.inputs) a.ins.push_back(input(name_of_version(body, v)));
    for (size_t i = 0; i < b.states.size(); ++i)
      a.states.push_back(state_of(body, static_cast<int>(i), unit, s.number));
    for (int v : b.outputs) {
      const std::string& name = name_of_version(body, v);
      const int buffer = add_buffer(name + place(unit, mb), body, v);
      s.buffers[{made_by == -2 ? unit : made_by, mb, name}] = buffer;
      a.outs.push_back(buffer);
    }
    program_.actions[s.number].push_back(std::move(a));
  }

  int find(Stage& s, int unit, int mb, const std::string& name) {
    const auto at = s.buffers.find({unit, mb, name});
    CHECK(at != s.buffers.end(), "stage {} has no {}{}", s.number, name, place(unit, mb));
    return at->second;
  }

  // Units of virtual stage k in model order.
  std::vector<int> units_of(int k) const {
    int lo = 1;
    for (int i = 0; i < k; ++i) lo += plan_.stages[i];
    std::vector<int> units;
    if (k == 0) units.push_back(0);
    for (int i = 0; i < plan_.stages[k]; ++i) units.push_back(lo + i);
    if (k == plan_.pp * plan_.vpp - 1)
      units.push_back(static_cast<int>(lowered_.first().pieces.units.size()) - 1);
    return units;
  }

  const Variant& variant(int mb) const {
    return lowered_.variants.at(micro_batch_rows(options_.rows, plan_.micro_batches, mb).size());
  }

  // Inputs that come from the caller: of the micro-batch (unit -3 - k) or of the step (micro-batch
  // -1).
  void feed(Stage& s, int key_unit, int mb, const std::vector<std::pair<int, int>>& wanted) {
    Action a{.act = Act::feed, .micro_batch = mb};
    for (const auto& [body, version] : wanted) {
      const std::string& name = name_of_version(body, version);
      const auto [at, fresh] = s.buffers.try_emplace({key_unit, mb, name}, -1);
      if (!fresh) continue;
      at->second = add_buffer(name + place(-1, mb), body, version);
      a.outs.push_back(at->second);
    }
    if (!a.outs.empty()) program_.actions[s.number].push_back(std::move(a));
  }

  // Where a body of a unit finds an input: its own values of this micro-batch, the neighbours', the
  // caller's.
  std::function<int(const std::string&)> input_of(Stage& s, int k, int unit, int mb) {
    return [this, &s, k, unit, mb](const std::string& name) {
      if (name == "x") return find(s, unit - 1, mb, "y");
      if (name == "d.y") return find(s, unit + 1, mb, "d.x");
      if (const auto own = s.buffers.find({unit, mb, name}); own != s.buffers.end())
        return own->second;
      if (const auto scalar = s.buffers.find({-2, -1, name}); scalar != s.buffers.end())
        return scalar->second;
      return find(s, feed_key(k), mb, name);
    };
  }

  // Inputs of forward bodies that no part of the piece and no neighbour makes.
  std::vector<std::pair<int, int>> from_caller(const std::vector<int>& bodies) const {
    std::vector<std::pair<int, int>> wanted;
    std::set<std::string> made = {"x"};
    for (int body : bodies) {
      for (int v : program_.bodies[body].inputs) {
        if (!made.count(name_of_version(body, v))) wanted.emplace_back(body, v);
      }
      for (int v : program_.bodies[body].outputs) made.insert(name_of_version(body, v));
    }
    return wanted;
  }

  void forward_slot(Stage& s, int k, int mb, int lag) {
    const std::vector<int> units = units_of(k);
    const Variant& v = variant(mb);
    std::vector<std::pair<int, int>> wanted;
    for (int u : units) {
      for (const auto& input : from_caller(v.forward[v.pieces.units[u]])) wanted.push_back(input);
    }
    feed(s, feed_key(k), mb, wanted);
    if (k > 0)
      receive(s, k, mb, v.forward[v.pieces.units[units[0]]], "x", {units[0] - 1, mb, "y"},
              forward_channel(k - 1));
    for (int u : units) {
      for (int body : v.forward[v.pieces.units[u]]) run_body(s, body, u, mb, input_of(s, k, u, mb));
    }
    if (k + 1 < plan_.pp * plan_.vpp)
      send(s, find(s, units.back(), mb, "y"), k + 1, forward_channel(k), lag);
  }

  void backward_slot(Stage& s, int k, int mb, int lag) {
    const std::vector<int> units = units_of(k);
    const Variant& v = variant(mb);
    if (k + 1 < plan_.pp * plan_.vpp) {
      receive(s, k, mb, v.backward[v.pieces.units[units.back()]], "d.y",
              {units.back() + 1, mb, "d.x"}, backward_channel(k));
    }
    for (size_t i = units.size(); i-- > 0;) {
      const int u = units[i], piece = v.pieces.units[u];
      for (int body : v.again[piece]) run_body(s, body, u, mb, input_of(s, k, u, mb));
      for (int body : v.backward[piece]) {
        run_body(s, body, u, mb, input_of(s, k, u, mb));
        program_.actions[s.number].back().first = mb == 0 && sums_gradients(body);
      }
    }
    if (k > 0) send(s, find(s, units[0], mb, "d.x"), k - 1, backward_channel(k - 1), lag);
  }

  bool sums_gradients(int body) const {
    const LoweredBody& b = program_.bodies[body];
    return std::any_of(b.steps.begin(), b.steps.end(), [&](const Step& s) {
      return s.kind == StepKind::accum && b.states[s.state].name[0] == 'g';
    });
  }

  static int feed_key(int k) { return -3 - k; }
  static int forward_channel(int k) { return 2 * k; }
  static int backward_channel(int k) { return 2 * k + 1; }

  // Virtual stages on one stage hand over in place.
  void receive(Stage& s, int k, int mb, const std::vector<int>& bodies, const char* input, Key key,
               int channel) {
    const int from = channel % 2 == 0 ? k - 1 : k + 1;
    if (from % plan_.pp == s.number) return;  // already there
    for (int body : bodies) {
      if (receive_for(s, mb, body, input, key, from, channel)) return;
    }
    CHECK(false, "nobody takes {}", input);
  }

  bool receive_for(Stage& s, int mb, int body, const char* input, const Key& key, int from,
                   int channel) {
    const LoweredBody& b = program_.bodies[body];
    for (int v : b.inputs) {
      if (name_of_version(body, v) != input) continue;
      const int buffer = add_buffer(std::string(input) + place(std::get<0>(key), mb), body, v);
      s.buffers[key] = buffer;
      Action& a = act(s, Act::recv);
      a.micro_batch = mb;
      a.outs = {buffer};
      a.peer = from % plan_.pp;
      a.channel = channel;
      return true;
    }
    return false;
  }

  void send(Stage& s, int buffer, int to, int channel, int lag) {
    if (to % plan_.pp == s.number) return;
    auto& flying = s.in_flight[channel];
    if (static_cast<int>(flying.size()) >= lag) wait(s, channel, to % plan_.pp);
    Action& a = act(s, Act::send);
    a.ins = {buffer};
    a.peer = to % plan_.pp;
    a.channel = channel;
    s.in_flight[channel].push_back(buffer);
    peers_[channel] = to % plan_.pp;
  }

  void wait(Stage& s, int channel, int peer) {
    auto& flying = s.in_flight[channel];
    Action& a = act(s, Act::wait);
    a.ins = {flying.front()};
    a.peer = peer;
    a.channel = channel;
    flying.erase(flying.begin());
  }

  void wait_for_all(Stage& s) {
    for (auto& [channel, flying] : s.in_flight) {
      while (!flying.empty()) wait(s, channel, peers_.at(channel));
    }
  }

  static bool is_counter(const std::string& state) { return state[0] == 's' || state[0] == 'c'; }

  // Sums of the step start at zero; scalars that start backward passes come in.
  void begin_step(Stage& s) {
    std::set<int> counters;
    const auto look = [&](int body, int unit) {
      for (size_t i = 0; i < program_.bodies[body].states.size(); ++i) {
        if (is_counter(program_.bodies[body].states[i].name))
          counters.insert(state_of(body, static_cast<int>(i), unit, s.number));
      }
    };
    look(lowered_.finish, -1);
    std::vector<std::pair<int, int>> scalars;
    for (int u : units_of_stage(s.number)) {
      for (int body : lowered_.first().forward[lowered_.first().pieces.units[u]]) look(body, u);
      for (int body : lowered_.first().backward[lowered_.first().pieces.units[u]]) {
        for (int v : program_.bodies[body].inputs) {
          const std::string& name = name_of_version(body, v);
          if (name == "inv_n" || name.ends_with("_coef")) scalars.emplace_back(body, v);
        }
      }
    }
    for (int state : counters) act(s, Act::zero).states = {state};
    feed(s, -2, -1, scalars);
  }

  std::vector<int> units_of_stage(int stage) const {
    std::vector<int> units;
    for (int c = 0; c < plan_.vpp; ++c) {
      for (int u : units_of(c * plan_.pp + stage)) units.push_back(u);
    }
    return units;
  }

  void optimize(Stage& s) {
    const Pieces& p = lowered_.first().pieces;
    const std::vector<int> units = units_of_stage(s.number);
    const int head = static_cast<int>(p.units.size()) - 1;
    const bool has_first = units.front() == 0, has_last = units.back() == head;
    const auto none = [&](const std::string& name) -> int { CHECK(false, "{}", name); };
    for (int u : units) {
      if (lowered_.optimizer.settle[p.units[u]] >= 0)
        run_body(s, lowered_.optimizer.settle[p.units[u]], u, -1, none);
    }
    const bool tied = p.tied >= 0 && (has_first || has_last);
    if (tied) sum_tied(s, has_first, has_last, head);
    for (int u : units) {
      if (const int body = lowered_.optimizer.square[p.units[u]]; body >= 0) {
        run_body(s, body, u, -1, [&](const std::string& name) { return find(s, u, -1, name); });
      }
    }
    if (tied && has_first) {
      run_body(s, lowered_.optimizer.square[p.tied], kTied, -1,
               [&](const std::string& name) { return find(s, kTied, -1, name); });
    }
    finish(s);
    const auto scalar_or = [&](int unit) {
      return [&s, this, unit](const std::string& name) {
        const auto own = s.buffers.find({unit, -1, name});
        return own != s.buffers.end() ? own->second : find(s, -2, -1, name);
      };
    };
    for (int u : units) {
      if (const int body = lowered_.optimizer.update[p.units[u]]; body >= 0)
        update(s, body, u, scalar_or(u));
    }
    if (tied) update(s, lowered_.optimizer.update[p.tied], kTied, scalar_or(kTied));
  }

  // lr, left1, left2 come in once a stage, with the first update.
  void update(Stage& s, int body, int unit, const std::function<int(const std::string&)>& input) {
    std::vector<std::pair<int, int>> scalars;
    for (int v : program_.bodies[body].inputs) {
      const std::string& name = name_of_version(body, v);
      if (name == "lr" || name == "left1" || name == "left2") scalars.emplace_back(body, v);
    }
    feed(s, -2, -1, scalars);
    run_body(s, body, unit, -1, input);
  }

  void sum_tied(Stage& s, bool has_first, bool has_last, int head) {
    const auto none = [&](const std::string& name) -> int { CHECK(false, "{}", name); };
    const int settle[2] = {lowered_.optimizer.settle[lowered_.first().pieces.tied],
                           lowered_.optimizer.settle_other};
    const bool here[2] = {has_first, has_last};
    for (int use = 0; use < 2; ++use) {
      if (here[use]) run_body(s, settle[use], use == 0 ? 0 : head, -1, none, kTied);
    }
    if (!has_first || !has_last) {  // an exchange between the first and the last stage
      const int mine = has_first ? 0 : 1, peer = has_first ? plan_.pp - 1 : 0;
      const int channel = 2 * plan_.pp * plan_.vpp;
      Action& out = act(s, Act::send);
      out.ins = {program_.actions[s.number][program_.actions[s.number].size() - 2].outs[0]};
      out.peer = peer;
      out.channel = channel + mine;
      const std::vector<int> sent = out.ins;
      const LoweredBody& theirs = program_.bodies[settle[1 - mine]];
      Action in{.act = Act::recv};
      in.outs = {add_buffer(name_of_version(settle[1 - mine], theirs.outputs[0]) + "/tied",
                            settle[1 - mine], theirs.outputs[0])};
      in.peer = peer;
      in.channel = channel + 1 - mine;
      s.buffers[{kTied, -1, name_of_version(settle[1 - mine], theirs.outputs[0])}] = in.outs[0];
      program_.actions[s.number].push_back(std::move(in));
      Action& end = act(s, Act::wait);
      end.ins = sent;
      end.peer = peer;
      end.channel = channel + mine;
    }
    run_body(s, lowered_.optimizer.sum, kTied, -1,
             [&](const std::string& name) { return find(s, kTied, -1, name); });
  }

  void finish(Stage& s) {
    std::vector<std::pair<int, int>> scalars;
    for (int v : program_.bodies[lowered_.finish].inputs) scalars.emplace_back(lowered_.finish, v);
    feed(s, -2, -1, scalars);
    run_body(
        s, lowered_.finish, -1, -1, [&](const std::string& name) { return find(s, -2, -1, name); },
        -2);
    for (int v :
         program_.bodies[lowered_.finish].outputs) {  // factor, norm, loss are scalars of the step
      const std::string& name = name_of_version(lowered_.finish, v);
      s.buffers[{-2, -1, name}] = find(s, -1, -1, name);
    }
  }

  // Parameters first, then scalars, moments, gradient sums, key/value caches: programs over the
  // same parameters place them alike.
  void sort_states() {
    std::vector<int> order(program_.states.size()), rank(order.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    const auto key = [&](int i) {
      const State& s = program_.states[i];
      return std::tuple(std::string_view("pscmvgk").find(s.name[0]), s.unit, s.name);
    };
    std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
    std::vector<State> sorted;
    for (size_t i = 0; i < order.size(); ++i) {
      rank[order[i]] = static_cast<int>(i);
      sorted.push_back(std::move(program_.states[order[i]]));
      std::sort(sorted.back().stages.begin(), sorted.back().stages.end());
    }
    program_.states = std::move(sorted);
    for (auto& actions : program_.actions) {
      for (Action& a : actions) {
        for (int& s : a.states) s = rank[s];
      }
    }
  }

  static constexpr int kTied = -1000000;

  const LoweredPieces& lowered_;
  const Plan& plan_;
  const LowerOptions& options_;
  Program& program_;
  std::map<std::pair<int, std::string>, int> state_index_;
  std::map<int, int> peers_;  // channel -> receiving stage
};

}  // namespace

void make_actions(const LoweredPieces& lowered, const Plan& plan, const LowerOptions& options,
                  const Schedule& schedule, int lag, Program& program) {
  Actions(lowered, plan, options, program).run(schedule, lag);
}

}  // namespace myriad
