#include "passes/sharder.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "ir/rows.h"

namespace myriad {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

template <class T>
void append(std::string& key, const T& x) {
  key.append(reinterpret_cast<const char*>(&x), sizeof(T));
}

void append(std::string& key, const Layout& l) {
  key += static_cast<char>(l.dims);
  for (int d = 0; d < l.dims; ++d) append(key, l.cuts[d]);
  append(key, l.pending);
  key += l.max ? 'm' : 's';
}

// Bytes an element counts for in a price: independent of the precision chosen, so that layouts are.
double weight(DType t) { return t == DType::exact ? static_cast<double>(sizeof(ExactSum)) : 4; }

}  // namespace

Sharder::Sharder(const Mesh& mesh, const Wanted& wanted, LayoutMemory& memory,
                 std::shared_ptr<Graph> graph, int piece, std::map<StateName, Layout>& states,
                 AtomSet pending_scalars)
    : mesh_(mesh),
      wanted_(wanted),
      memory_(memory),
      graph_(std::move(graph)),
      piece_(piece),
      states_(states),
      pending_scalars_(pending_scalars) {}

const Want& Sharder::want(int value) {
  if (wants_.size() < graph_->values.size()) wants_.resize(graph_->values.size());
  auto& w = wants_[value];
  if (!w) w = wanted_((*graph_)[value]);
  return *w;
}

int Sharder::size_id(int value) {
  if (size_ids_.size() < graph_->values.size()) size_ids_.resize(graph_->values.size(), -1);
  int& id = size_ids_[value];
  if (id < 0) {
    Sizes key = (*graph_)[value].sizes;
    key.push_back((*graph_)[value].dtype == DType::exact);
    key.push_back(std::bit_cast<int64_t>((*graph_)[value].density));
    id = memory_.sizes.try_emplace(key, static_cast<int>(memory_.sizes.size())).first->second;
  }
  return id;
}

// Wanted layout of a value made in `natural`: what is pending may stay so unless it is to be
// settled or cut.
Layout Sharder::target(int value, const Layout& natural) {
  const Want& w = want(value);
  if (!w.asked) return natural;
  Layout t(natural.dims);
  t.cuts = w.cuts;
  t.pending = w.settle ? 0 : static_cast<AtomSet>(natural.pending & ~t.cut_atoms());
  t.max = t.pending && natural.max;
  return t;
}

// Cuts to which an unnamed contribution to d.X is priced.
std::optional<std::array<AtomList, kMaxLayoutDims>> Sharder::heading(int value) {
  const Value& v = (*graph_)[value];
  if (v.heading < 0 || want(value).asked) return std::nullopt;
  Value d = (*graph_)[v.heading];
  d.name = "d." + d.name;
  const Want w = wanted_(d);
  if (!w.asked) return std::nullopt;
  return w.cuts;
}

LayoutMemory::Cost Sharder::cost(const Layout& from, const Layout& to, int value) {
  if (from.max && !to.max && (from.pending & to.pending)) return {kNever, 0};
  if (!from.max && to.max) return {kNever, 0};
  if (from == to) return {0, 0};
  std::string key;
  append(key, from);
  append(key, to);
  append(key, size_id(value));
  const auto [at, fresh] = memory_.costs.try_emplace(std::move(key));
  if (!fresh) return at->second;
  LayoutMemory::Cost c{0, 0};
  const Value& v = (*graph_)[value];
  Layout cur = from;
  for (const MoveStep& step : reshard(from, to)) {
    c.bytes += mesh_.price(step.atoms) * weight(v.dtype) * v.density *
               elements_sent(mesh_, step, cur, v.sizes);
    c.messages += sends(step.what);
    cur = step.after;
  }
  at->second = c;
  return c;
}

int Sharder::add_version(int value, const Layout& layout) {
  out_.versions.push_back({value, layout});
  return static_cast<int>(out_.versions.size()) - 1;
}

// The version of `value` in this layout; adds the moves from the cheapest one there is.
int Sharder::get(int value, const Layout& layout) {
  auto& held = held_[value];
  for (const Held& h : held) {
    if (h.layout == layout) return h.version;
  }
  const Held* best = nullptr;
  LayoutMemory::Cost least{kNever, 0};
  for (const Held& h : held) {
    const auto c = cost(h.layout, layout, value);
    if (!best || std::pair(c.bytes, c.messages) < std::pair(least.bytes, least.messages)) {
      best = &h;
      least = c;
    }
  }
  CHECK(best && least.bytes < kNever, "{} cannot be brought to {}", (*graph_)[value].name,
        show(layout, (*graph_)[value].labels, mesh_));
  int version = best->version;
  for (const MoveStep& step : reshard(Layout(best->layout), layout)) {
    const auto known = std::find_if(held.begin(), held.end(),
                                    [&](const Held& h) { return h.layout == step.after; });
    if (known != held.end()) {
      version = known->version;
      continue;
    }
    const int next = add_version(value, step.after);
    out_.steps.push_back({.kind = StepKind::move,
                          .ins = {version},
                          .outs = {next},
                          .what = step.what,
                          .atoms = step.atoms});
    held.push_back({next, step.after});
    version = next;
  }
  return version;
}

// Moves a value just made to its wanted layout, which becomes its primary version.
void Sharder::settle(int value) {
  const Layout natural = held_[value][0].layout;
  const Layout t = target(value, natural);
  if (t == natural) return;
  const int version = get(value, t);
  auto& held = held_[value];
  const auto at =
      std::find_if(held.begin(), held.end(), [&](const Held& h) { return h.version == version; });
  std::rotate(held.begin(), at, at + 1);
}

// Where ops of this row are to be made.
Want Sharder::place_of(const Op& op) {
  if (op.size.labels.size() > kMaxLayoutDims) return {};
  return wanted_({.name = fmt::format("@{}", info(op.row).name),
                  .labels = op.size.labels,
                  .sizes = op.size.sizes});
}

// The search for the layout of one op.
struct Sharder::Search {
  Sharder& s;
  const Op& op;
  const RowInfo& row = info(op.row);
  std::vector<uint32_t> linear = row.linear(op);
  std::string whole = row.whole(op);
  int labels = static_cast<int>(op.size.labels.size());
  Want placed = s.place_of(op);
  std::vector<std::vector<AtomList>> candidates = {};
  std::vector<std::optional<AtomList>> agreed = {};
  std::vector<std::optional<std::array<AtomList, kMaxLayoutDims>>> headings = {}, stays = {};
  std::vector<Atom> pending = {};
  std::vector<AtomList> cut = {};
  std::vector<int> keep = {};  // by pending atom: linear set, or -1: settled
  AtomSet used = 0;
  using Score = std::tuple<int, double, int, int, double, int>;
  std::optional<Score> best = {};
  std::vector<AtomList> best_order = {};
  Decision decision = {};

  void prepare() {
    AtomSet atoms = 0;
    for (int i : op.ins) {
      for (const Held& h : s.held_[i]) atoms = static_cast<AtomSet>(atoms | h.layout.pending);
    }
    for (Atom a = 0; a < kMaxAtoms; ++a) {
      if (atoms >> a & 1) pending.push_back(a);
    }
    for (int o : op.outs) {
      headings.push_back(s.heading(o));
      const Value& v = (*s.graph_)[o];
      const bool of_fixed = v.gradient_of >= 0 && s.want(v.gradient_of).fixed && s.want(o).asked;
      stays.push_back(of_fixed ? std::optional(s.want(o).cuts) : std::nullopt);
    }
    cut.resize(labels);
    keep.resize(pending.size());
    agreed.resize(labels);
    for (int l = 0; l < labels; ++l) candidates.push_back(of_label(l));
  }

  std::vector<AtomList> of_label(int l) {
    const char label = op.size.labels[l];
    std::vector<AtomList> list = {AtomList{}};
    if (placed.asked) return {placed.cuts[l]};
    if (whole.find(label) != std::string::npos) return list;
    if (row.as_wanted) {
      const Want& w = s.want(op.ins[0]);
      const size_t d = op.in_labels[0].find(label);
      return {w.asked && d != std::string::npos ? w.cuts[d] : AtomList{}};
    }
    const auto offer = [&](AtomList t) {
      if (t.set() & kOfNodes)
        return;  // these are ranks that other atoms name too: only where asked
      for (int k = 1; k <= t.n; ++k) list.push_back(t.prefix(k));
    };
    std::vector<AtomList> primary, wished;
    for (size_t i = 0; i < op.ins.size(); ++i) {
      const size_t d = op.in_labels[i].find(label);
      if (d == std::string::npos) continue;
      const auto& held = s.held_[op.ins[i]];
      for (const Held& h : held) offer(h.layout.cuts[d]);
      primary.push_back(held[0].layout.cuts[d]);
    }
    for (size_t o = 0; o < op.outs.size(); ++o) {
      const size_t d = op.out_labels[o].find(label);
      if (d == std::string::npos) continue;
      const Want& w = s.want(op.outs[o]);
      if (!headings[o] && !w.asked) continue;
      wished.push_back(headings[o] ? (*headings[o])[d] : w.cuts[d]);
      offer(wished.back());
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    std::sort(wished.begin(), wished.end());
    wished.erase(std::unique(wished.begin(), wished.end()), wished.end());
    int both = 0;
    for (AtomList t : wished) {
      if (t.empty() || std::find(primary.begin(), primary.end(), t) == primary.end()) continue;
      agreed[l] = t;
      ++both;
    }
    if (both != 1) agreed[l].reset();
    return list;
  }

  void assign(int l) {
    if (l == labels) return choose(0);
    for (AtomList t : candidates[l]) {
      if (used & t.set()) continue;
      cut[l] = t;
      used = static_cast<AtomSet>(used | t.set());
      assign(l + 1);
      used = static_cast<AtomSet>(used & ~t.set());
    }
  }

  void choose(size_t i) {
    if (i == pending.size()) return score();
    keep[i] = -1;
    choose(i + 1);
    if (used >> pending[i] & 1) return;
    for (size_t k = 0; k < linear.size(); ++k) {
      keep[i] = static_cast<int>(k);
      choose(i + 1);
    }
  }

  Layout laid(const std::string& by) const {
    Layout l(static_cast<int>(by.size()));
    for (size_t d = 0; d < by.size(); ++d) l.cuts[d] = cut[op.size.find(by[d])];
    return l;
  }

  void score() {
    double bytes = 0;
    int messages = 0, violations = 0, kept = 0, disagreement = 0;
    AtomSet kept_atoms = 0;
    for (size_t i = 0; i < pending.size(); ++i) {
      if (keep[i] < 0) continue;
      kept_atoms = static_cast<AtomSet>(kept_atoms | 1u << pending[i]);
      ++kept;
    }
    std::vector<Layout> naturals;
    for (size_t o = 0; o < op.outs.size(); ++o) {
      Layout natural = laid(op.out_labels[o]);
      if (stays[o] && natural.cuts != *stays[o]) ++violations;
      natural.pending = static_cast<AtomSet>(kept_atoms | (used & ~natural.cut_atoms()));
      natural.max = row.reduces_max && natural.pending;
      naturals.push_back(natural);
    }
    if (best && violations > std::get<0>(*best)) return;
    const auto too_dear = [&] {
      return best &&
             std::pair(violations, bytes) > std::pair(std::get<0>(*best), std::get<1>(*best));
    };
    std::vector<Layout> needs;
    for (size_t j = 0; j < op.ins.size(); ++j) {
      Layout need = laid(op.in_labels[j]);
      for (size_t i = 0; i < pending.size(); ++i) {
        if (keep[i] >= 0 && (linear[keep[i]] >> j & 1))
          need.pending = static_cast<AtomSet>(need.pending | 1u << pending[i]);
      }
      const auto c = cheapest(op.ins[j], need);
      if (c.bytes == kNever) return;
      bytes += c.bytes;
      messages += c.messages;
      if (too_dear()) return;
      needs.push_back(need);
    }
    for (size_t o = 0; o < op.outs.size(); ++o) {
      Layout after = s.target(op.outs[o], naturals[o]);
      if (headings[o]) {
        after = Layout(naturals[o].dims);
        after.cuts = *headings[o];
      }
      const auto c = s.cost(naturals[o], after, op.outs[o]);
      bytes += c.bytes;
      messages += c.messages;
    }
    if (too_dear()) return;
    double work = 1;
    for (int l = 0; l < labels; ++l) {
      disagreement += agreed[l] && cut[l] != *agreed[l];
      work *= static_cast<double>(op.size.sizes[l]) / static_cast<double>(s.mesh_.parts(cut[l]));
    }
    const Score now{violations, bytes, messages, disagreement, work, kept};
    if (best && (now > *best || (now == *best && cut >= best_order))) return;
    best = now;
    best_order = cut;
    decision = {cut, std::move(needs), std::move(naturals)};
  }

  LayoutMemory::Cost cheapest(int value, const Layout& need) {
    LayoutMemory::Cost least{kNever, 0};
    for (const Held& h : s.held_[value]) {
      const auto c = s.cost(h.layout, need, value);
      if (std::pair(c.bytes, c.messages) < std::pair(least.bytes, least.messages)) least = c;
    }
    if (s.want(value).fixed && least.messages) return {kNever, 0};  // may be sliced, not moved
    return least;
  }
};

std::string Sharder::key_of(const Op& op) {
  std::string key;
  key += static_cast<char>(op.row);
  for (const auto& l : op.in_labels) key += l + ',';
  for (const auto& l : op.out_labels) key += l + ';';
  for (int64_t n : op.size.sizes) append(key, n);
  for (const auto* types : {&op.in_types, &op.out_types}) {
    for (DType t : *types) key += static_cast<char>(t);
  }
  key += op.attrs.label;
  key += op.attrs.to;
  for (int i : op.ins) {
    key += want(i).fixed ? 'f' : '-';
    if (info(op.row).as_wanted) append(key, want(i).cuts);
    append(key, size_id(i));
    append(key, held_[i].size());
    for (const Held& h : held_[i]) append(key, h.layout);
  }
  for (int o : op.outs) {
    const Want& w = want(o);
    append(key, size_id(o));
    key += static_cast<char>(w.asked | w.settle << 1);
    append(key, w.cuts);
    const auto h = heading(o);
    key += h ? 'h' : '-';
    if (h) append(key, *h);
    const Value& v = (*graph_)[o];
    key += v.gradient_of >= 0 && want(v.gradient_of).fixed ? 'g' : '-';
  }
  return key;
}

const Decision& Sharder::decide(const Op& op) {
  const auto [at, fresh] = memory_.decisions.try_emplace(key_of(op));
  if (fresh) {
    Search search{*this, op};
    search.prepare();
    search.assign(0);
    CHECK(search.best, "no layout for {}", myriad::show(op, *graph_));
    at->second = std::move(search.decision);
  }
  return at->second;
}

void Sharder::lower_op(Op op) {
  auto at = decided_.find(op.outs[0]);
  if (at == decided_.end()) at = decided_.emplace(op.outs[0], decide(op)).first;
  const Decision& d = at->second;
  Step step{.kind = StepKind::run, .cuts = d.cuts};
  for (size_t i = 0; i < op.ins.size(); ++i) step.ins.push_back(get(op.ins[i], d.needs[i]));
  for (size_t o = 0; o < op.outs.size(); ++o) {
    const int version = add_version(op.outs[o], d.naturals[o]);
    held_[op.outs[o]] = {{version, d.naturals[o]}};
    step.outs.push_back(version);
  }
  step.op = static_cast<int>(out_.ops.size());
  out_.steps.push_back(std::move(step));
  const std::vector<int> outs = op.outs;
  out_.ops.push_back(std::move(op));
  for (int o : outs) settle(o);
}

// Operands of an n-ary add that lie alike, if to sum those first leaves one reshard for the rest.
Sharder::Alike Sharder::alike(const Op& op) {
  Alike groups;
  bool any_pending = false;
  for (int i : op.ins) {
    const Layout& l = held_[i][0].layout;
    any_pending |= l.pending != 0;
    auto g =
        std::find_if(groups.begin(), groups.end(), [&](const auto& x) { return x.first == l; });
    if (g == groups.end()) g = groups.insert(groups.end(), {l, {}});
    g->second.push_back(i);
  }
  if (groups.size() == 1 || groups.size() == op.ins.size() || !any_pending) return {};
  return groups;
}

// An n-ary add: sums the operands of equal layout first. A recomputed one groups them as its
// original did.
Op Sharder::sum_alike_first(const Op& op) {
  auto at = alike_.find(op.outs[0]);
  if (at == alike_.end()) at = alike_.emplace(op.outs[0], alike(op)).first;
  const Alike& groups = at->second;
  if (groups.empty()) return op;
  Op rest = op;
  rest.ins.clear();
  for (const auto& [layout, members] : groups) {
    if (members.size() == 1) {
      rest.ins.push_back(members[0]);
      continue;
    }
    Value v = (*graph_)[members[0]];
    v.name = graph_->fresh();
    v.labels = op.out_labels[0];
    v.gradient_of = v.heading = -1;
    const int t = graph_->add(std::move(v));
    Op part = op;
    part.ins = members;
    part.outs = {t};
    part.in_labels.resize(members.size());
    part.in_types.resize(members.size());
    Step step{.kind = StepKind::run, .op = static_cast<int>(out_.ops.size())};
    for (char l : part.size.labels) step.cuts.push_back(layout.cuts[op.out_labels[0].find(l)]);
    for (int i : members) step.ins.push_back(get(i, layout));
    step.outs = {add_version(t, layout)};
    held_[t] = {{step.outs[0], layout}};
    out_.steps.push_back(std::move(step));
    out_.ops.push_back(std::move(part));
    rest.ins.push_back(t);
  }
  rest.in_labels.resize(rest.ins.size());
  rest.in_types.resize(rest.ins.size());
  return rest;
}

int Sharder::state_index(const StateName& name, int value, const Layout& layout) {
  for (size_t i = 0; i < out_.states.size(); ++i) {
    if (out_.states[i].name == name) return static_cast<int>(i);
  }
  out_.states.push_back({name, value, layout});
  return static_cast<int>(out_.states.size()) - 1;
}

Layout Sharder::state_at_rest(const StateName& name, int value) {
  const auto known = states_.find(name);
  if (known != states_.end()) return known->second;
  Value v = (*graph_)[value];
  v.name = show(name);
  v.gradient_of = -1;
  Layout layout(static_cast<int>(v.sizes.size()));
  if (name.kind == StateKind::scalar) {
    layout.pending = pending_scalars_;
  } else {
    layout.cuts = wanted_(v).cuts;
  }
  return states_.emplace(name, layout).first->second;
}

void Sharder::lower_read(const Op& op) {
  const int value = op.outs[0];
  const Layout layout = state_at_rest(op.attrs.state, value);
  const int version = add_version(value, layout);
  held_[value] = {{version, layout}};
  out_.steps.push_back({.kind = StepKind::read,
                        .outs = {version},
                        .state = state_index(op.attrs.state, value, layout)});
  settle(value);
}

void Sharder::lower_store(const Op& op) {
  const int value = op.ins[0];
  const StateName& name = op.attrs.state;
  if (op.row == Row::accum && name.kind != StateKind::scalar &&
      !states_.count(name)) {  // sums of micro-batches may stay pending
    Value v = (*graph_)[value];
    v.name = show(name);
    v.gradient_of = -1;
    const Layout natural = held_[value][0].layout;
    const Want w = wanted_(v);
    Layout rest = natural;
    if (w.asked) {
      rest.cuts = w.cuts;
      rest.pending = w.settle ? 0 : static_cast<AtomSet>(natural.pending & ~rest.cut_atoms());
    }
    states_.emplace(name, rest);
  }
  const Layout layout = state_at_rest(name, value);
  const int version = get(value, layout);
  out_.steps.push_back({.kind = op.row == Row::accum ? StepKind::accum : StepKind::write,
                        .ins = {version},
                        .state = state_index(name, value, layout)});
}

void Sharder::input(int value, const Layout& layout) {
  const int version = add_version(value, layout);
  out_.inputs.push_back(version);
  held_[value] = {{version, layout}};
}

// The version that later bodies see: the primary, or a settled one of no greater size if there is
// one.
int Sharder::carried(int value) {
  const auto& held = held_[value];
  const auto size = [&](const Held& h) {
    return average_elements(mesh_, h.layout, (*graph_)[value].sizes);
  };
  const Held* best = &held[0];
  for (const Held& h : held) {
    if (size(h) > size(held[0])) continue;
    const auto rank = [&](const Held& x) {
      return std::pair(mesh_.parts(x.layout.pending), size(x));
    };
    if (rank(h) < rank(*best)) best = &h;
  }
  return best->version;
}

LoweredBody Sharder::lower(const Body& body, const std::map<int, Layout>& given,
                           const std::vector<Output>& outputs) {
  out_ = {.name = body.name, .piece = piece_, .graph = graph_};
  held_.clear();
  for (const auto& [value, layout] : given) input(value, layout);
  for (const Op& op : body.ops) {
    if (op.row == Row::read) {
      lower_read(op);
      continue;
    }
    for (int i : op.ins) {
      if (held_.count(i)) continue;
      Layout layout(static_cast<int>((*graph_)[i].sizes.size()));
      layout.cuts = want(i).cuts;
      input(i, layout);
    }
    if (op.row == Row::write || op.row == Row::accum) {
      lower_store(op);
    } else {
      lower_op(op.row == Row::add && op.ins.size() > 2 ? sum_alike_first(op) : op);
    }
  }
  for (const Output& o : outputs)
    out_.outputs.push_back(o.layout ? get(o.value, *o.layout) : carried(o.value));
  return std::move(out_);
}

Layout Sharder::layout_of(const LoweredBody& body, int value, bool output) {
  for (int v : output ? body.outputs : body.inputs) {
    if (body.versions[v].value == value) return body.versions[v].layout;
  }
  CHECK(false, "{} is not at the edge of {}", (*body.graph)[value].name, body.name);
}

}  // namespace myriad
