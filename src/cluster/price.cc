// The price of a body on one rank, step by step. Kernels are formed as a compiler would fuse them:
// a matrix product, an attention or a collective ends the running kernel (flush), and what stands
// between two of them is one kernel that reads each value made elsewhere once and writes each value
// needed elsewhere once. Time comes from cluster/cost.h, element sizes from ByteMap, the busiest
// owner of experts from cluster/load.h. Read cluster/price.h first.
#include "cluster/price.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "ir/flight.h"
#include "ir/local.h"
#include "ir/rows.h"

namespace myriad {

int64_t ByteMap::of(const Value& v, char state) const {
  if (v.dtype != DType::f32) return static_cast<int64_t>(size_of(v.dtype));
  switch (state) {
    case 'p':
      return parameter;
    case 'm':
      return moment + master;
    case 'v':
      return moment;
    case 'g':
      return gradient;
    default:
      return v.name.find("/g") != std::string::npos ? gradient : activation;
  }
}

Pricing pricing_for(const Cluster& c, const std::string& asked) {
  std::string dtype = asked;
  const auto& peaks = c.device.peak_flops;
  for (const char* t : {"bf16", "fp16", "fp32", "fp64"}) {
    if (dtype.empty() && peaks.count(t)) dtype = t;
  }
  if (dtype == "fp16" && !peaks.count("fp16")) dtype = "bf16";
  if (dtype == "bf16" && !peaks.count("bf16")) dtype = "fp16";
  if (!peaks.count(dtype)) {
    std::vector<std::string> there;
    for (const auto& [t, flops] : peaks) there.push_back(t);
    throw Error(fmt::format("{} has no peak_flops of {}", c.name, asked), c.file,
                fmt::format("dtype: {}", fmt::join(there, ", ")));
  }
  Pricing p{.dtype = dtype};
  if (dtype == "fp32") p.bytes = ByteMap::fp32();
  if (dtype == "fp64") p.bytes = ByteMap::fp64();
  return p;
}

const char* name_of(Cost c) {
  constexpr const char* kNames[] = {
      "matrix",         "attention",  "memory",     "host", "all_gather",
      "reduce_scatter", "all_reduce", "all_to_all", "send", "idle"};
  static_assert(std::size(kNames) == kCosts);
  return kNames[static_cast<int>(c)];
}

Cost cost_of(MoveKind kind) {
  switch (kind) {
    case MoveKind::all_gather:
      return Cost::all_gather;
    case MoveKind::reduce_scatter:
      return Cost::reduce_scatter;
    case MoveKind::all_reduce:
      return Cost::all_reduce;
    case MoveKind::all_to_all:
      return Cost::all_to_all;
    default:
      return Cost::memory;
  }
}

namespace {

// How much of a body a rank holds, as prices count it: routed rows are those of the busiest owner
// of experts, in one round.
class LocalBody {
 public:
  // letters: by value, of the state it is read from or written to.
  LocalBody(const Mesh& mesh, const LoweredBody& body, int rank, const Pricing& pricing,
            const std::vector<char>& letters)
      : mesh_(mesh), body_(body), rank_(rank), pricing_(pricing), letters_(letters) {
    if (body.loop) count_rounds();
  }

  double rounds() const { return rounds_; }

  double elements(int version) const {
    const Version& v = body_.versions[version];
    const Value& value = (*body_.graph)[v.value];
    if (!value.sparse())
      return static_cast<double>(local_elements(mesh_, v.layout, value.sizes, rank_));
    double n = rows_of(version);
    for (int d = 3; d < v.layout.dims; ++d)
      n *= static_cast<double>(local_range(mesh_, v.layout, value.sizes, d, rank_).size());
    return n;
  }

  double element_bytes(int version) const {
    const int value = body_.versions[version].value;
    return static_cast<double>(pricing_.bytes.of((*body_.graph)[value], letters_[value]));
  }
  double bytes_of(int version) const { return elements(version) * element_bytes(version); }

  // The sizes of an op's labels.
  LabelSizes labels(const Op& op, const Step& s) const {
    LabelSizes l = local_labels(mesh_, op, s, rank_);
    const bool on_rows = works_on_rows(op),
               sums_rows = op.row == Row::combine || op.row == Row::collapse;
    const int routed = on_rows || sums_rows ? routed_version(body_, s) : -1;
    if (routed < 0) return l;
    int64_t& experts = l.sizes[l.find('e')];  // as many products, each of its share of the rows
    if (!on_rows) experts = 1;
    l.sizes[l.find('b')] = 1;
    l.sizes[l.find('s')] =
        std::llround(rows_of(routed) / static_cast<double>(std::max<int64_t>(1, experts)));
    return l;
  }

 private:
  // How many rounds the busiest owner of experts needs.
  void count_rounds() {
    for (const Step& s : body_.steps) {
      if (s.kind != StepKind::run || body_.ops[s.op].row != Row::window || body_.bound <= 0)
        continue;
      const Version& choices = body_.versions[s.outs[0]];
      const Value& v = (*body_.graph)[choices.value];
      const double rows =
          static_cast<double>(local_elements(mesh_, choices.layout, v.sizes, rank_)) *
          busiest(pricing_.load, body_.ops[s.op].attrs.experts, body_.parts) /
          static_cast<double>(body_.parts);
      rounds_ = std::max(1.0, std::ceil(rows / static_cast<double>(body_.bound) - 1e-9));
    }
  }

  // The routed rows of a version in a round, on the rank that has most of them.
  double rows_of(int version) const {
    const Version& v = body_.versions[version];
    const Value& value = (*body_.graph)[v.value];
    const auto size = [&](int d) {
      return static_cast<double>(local_range(mesh_, v.layout, value.sizes, d, rank_).size());
    };
    const AtomList& cut = v.layout.cuts[0];
    const int64_t owners = mesh_.parts(cut), experts = value.sizes[0];
    const double here = cut.set() & kOfNodes
                            ? size(0)  // nodes that hold unlike shares
                            : static_cast<double>(experts) / static_cast<double>(owners);
    return size(1) * size(2) * here * value.density * busiest(pricing_.load, experts, owners) /
           rounds_;
  }

  const Mesh& mesh_;
  const LoweredBody& body_;
  const int rank_;
  const Pricing& pricing_;
  const std::vector<char>& letters_;
  double rounds_ = 1;  // of a loop body
};

class BodyPricer {
 public:
  BodyPricer(const Device& device, const Pricing& pricing, const Mesh& mesh,
             const LoweredBody& body, int rank, bool first)
      : d_(device),
        pricing_(pricing),
        body_(body),
        rank_(rank),
        first_(first),
        peak_(device.peak_flops.at(pricing.dtype)),
        vector_peak_(device.vector_flops.at(pricing.dtype)),
        letters_(body.graph->values.size(), 0),
        held_(mesh, body, rank, pricing, letters_) {
    const size_t n = body.versions.size();
    uses_.assign(n, 0);
    last_use_.assign(n, -1);
    for (size_t t = 0; t < body.steps.size(); ++t) {
      const Step& s = body.steps[t];
      if (s.kind == StepKind::read)
        letters_[body.versions[s.outs[0]].value] = letter_of(body.states[s.state].name.kind);
      if (s.kind == StepKind::write)
        letters_[body.versions[s.ins[0]].value] = letter_of(body.states[s.state].name.kind);
      for (int v : s.ins) {
        ++uses_[v];
        last_use_[v] = static_cast<int>(t);
      }
    }
    for (int v : body.outputs) {
      ++uses_[v];
      last_use_[v] = static_cast<int>(body.steps.size());
    }
    by_product_.assign(n, false);
  }

  BodyPrice run(const CollectivePrice& collective) {
    price_.steps.resize(body_.steps.size());
    for (size_t t = 0; t < body_.steps.size(); ++t) {
      const Step& s = body_.steps[t];
      if (s.kind == StepKind::run) {
        op(static_cast<int>(t), s);
      } else if (s.kind == StepKind::accum) {
        accumulate(static_cast<int>(t), s);
      } else if (begins_collective(s)) {  // whole at its start: its finish is free
        flush();
        StepPrice& p = price_.steps[t];
        p.cost = cost_of(s.what);
        p.atoms = s.atoms;
        p.bytes = std::max(held_.bytes_of(s.ins[0]), held_.bytes_of(s.outs[0]));
        p.seconds = collective(s.what, s.atoms, p.bytes, rank_);
        ++price_.kernels;
      } else if (s.kind == StepKind::move && !pricing_.fused) {  // a copy
        const double bytes = 2 * held_.bytes_of(s.outs[0]);
        price_.steps[t].seconds = bytes > 0 ? kernel_seconds(d_, 0, bytes) : 0;
        price_.kernels += bytes > 0;
      } else if (s.kind == StepKind::move) {  // a view
        if (made_in_kernel_.contains(s.ins[0])) made_in_kernel_.insert(s.outs[0]);
      }
    }
    flush();
    if (held_.rounds() > 1) {
      for (size_t t = 0; t < price_.steps.size(); ++t) {
        if (body_.steps[t].once) continue;
        price_.steps[t].seconds *= held_.rounds();
        price_.steps[t].bytes *= held_.rounds();
      }
      price_.flops *= held_.rounds();
      price_.kernels = static_cast<int>(price_.kernels * held_.rounds());
    }
    return std::move(price_);
  }

 private:
  void op(int t, const Step& s) {
    const Op& op = body_.ops[s.op];
    const RowInfo& row = info(op.row);
    const LabelSizes sizes = held_.labels(op, s);
    const double work = row.work(op, sizes);
    if (row.engine == Engine::attention) {
      flush();
      if (pricing_.scores) {
        written_attention(t, row.gradient != nullptr, sizes);
        return;
      }
      const bool causal = op.size.at('s') == op.size.at('t');
      const double flops = causal ? work / 2 : work;
      const double share = row.gradient ? d_.attention_forward : d_.attention_backward;
      device_kernel(t, Cost::attention, flops, flops / (peak_ * share), s);
      return;
    }
    if (is_product(op)) {
      flush();
      const MatrixSize m = matrix_of(op, sizes);
      device_kernel(t, Cost::matrix, m.flops(), m.flops() > 0 ? matrix_seconds(d_, peak_, m) : 0,
                    s);
      return;
    }
    if (!pricing_.fused) flush();
    kernel_flops_ += work;
    if (op.row == Row::sum_exact && d_.exact_rate > 0) {
      double most = 0;
      for (int v : s.ins) most = std::max(most, held_.elements(v));
      kernel_seconds_ += most / d_.exact_rate;
    }
    double written = 0;
    for (int v : s.outs) written += held_.elements(v);
    for (int v : s.ins) {  // an op without work moves data: it reads no more than it writes
      if (!made_in_kernel_.count(v))
        note_read(v, work > 0 ? held_.elements(v) : std::min(held_.elements(v), written));
    }
    for (int v : s.outs) made_in_kernel_.insert(v);
    kernel_end_ = t;
  }

  void written_attention(int t, bool forward, const LabelSizes& sizes) {
    const auto of = [&](char l) { return static_cast<double>(sizes.at(l)); };
    const double batch = of('b') * of('g') * of('r'), s = of('s'), t_keys = of('t');
    const double scores = batch * s * t_keys * static_cast<double>(pricing_.bytes.activation);
    const auto product = [&](double m, double n, double k) {
      const double bytes =
          static_cast<double>(pricing_.bytes.activation) * batch * (m * n + m * k + n * k);
      const MatrixSize size{.m = m, .n = n, .k = k, .batch = batch};
      price_.flops += size.flops();
      ++price_.kernels;
      return size.flops() > 0 ? kernel_seconds(d_, matrix_seconds(d_, peak_, size), bytes) : 0;
    };
    const auto passes = [&](double n) {
      price_.kernels += n > 0 ? 2 : 0;
      return scores > 0
                 ? 2 * d_.launch_seconds + n * scores / (d_.memory_bandwidth * d_.memory_share)
                 : 0;
    };
    double seconds = 0;
    if (forward || pricing_.scores->recomputed) {
      seconds += product(s, t_keys, of('h')) + product(s, of('u'), t_keys);
      seconds += passes(pricing_.scores->passes_forward);
    }
    if (!forward) {
      seconds += product(s, t_keys, of('u')) + product(t_keys, of('u'), s);
      seconds += product(s, of('h'), t_keys) + product(t_keys, of('h'), s);
      seconds += passes(pricing_.scores->passes_backward);
    }
    price_.steps[t] = {.seconds = seconds, .cost = Cost::attention};
  }

  static MatrixSize matrix_of(const Op& op, const LabelSizes& sizes) {
    MatrixSize m;
    for (size_t i = 0; i < sizes.labels.size(); ++i) {
      const char l = sizes.labels[i];
      const auto in = [&](const std::string& labels) {
        return labels.find(l) != std::string::npos;
      };
      const bool a = in(op.in_labels[0]), b = in(op.in_labels[1]);
      const double n = static_cast<double>(sizes.sizes[i]);
      if (a && b) (in(op.out_labels[0]) ? m.batch : m.k) *= n;
      if (a && !b) m.m *= n;
      if (b && !a) m.n *= n;
    }
    return m;
  }

  void device_kernel(int t, Cost cost, double flops, double compute_seconds, const Step& s) {
    double bytes = 0;
    for (int v : s.ins) bytes += held_.bytes_of(v);
    for (int v : s.outs) {
      const bool accumulated = pricing_.fused && uses_[v] == 1 &&
                               last_use_[v] < static_cast<int>(body_.steps.size()) &&
                               body_.steps[last_use_[v]].kind == StepKind::accum;
      if (accumulated) by_product_[v] = true;
      if (!accumulated) bytes += held_.bytes_of(v);
    }
    price_.steps[t] = {.seconds = flops > 0 ? kernel_seconds(d_, compute_seconds, bytes) : 0,
                       .cost = cost};
    price_.flops += flops;
    price_.kernels += flops > 0;
  }

  void accumulate(int t, const Step& s) {
    const int v = s.ins[0];
    const char letter = letter_of(body_.states[s.state].name.kind);
    const double state =
        held_.elements(v) *
        static_cast<double>(pricing_.bytes.of((*body_.graph)[body_.versions[v].value], letter)) *
        (first_ ? 1 : 2);
    if (by_product_[v]) {
      price_.steps[t] = {.seconds = state / (d_.memory_bandwidth * d_.memory_share),
                         .cost = Cost::memory};
      return;
    }
    if (!pricing_.fused) flush();
    if (!made_in_kernel_.count(v)) note_read(v, held_.elements(v));
    kernel_bytes_ += state;
    kernel_flops_ += first_ ? 0 : held_.elements(v);
    kernel_end_ = t;
  }

  void note_read(int version, double n) {
    double& most = read_[version];
    most = std::max(most, n * held_.element_bytes(version));
  }

  void flush() {
    if (kernel_end_ >= 0) {
      double bytes = kernel_bytes_;
      for (const auto& [version, read] : read_) bytes += read;
      for (int v : made_in_kernel_) {
        if (last_use_[v] > kernel_end_) bytes += held_.bytes_of(v);
      }
      StepPrice& p = price_.steps[kernel_end_];
      const double compute = std::max(kernel_flops_ / vector_peak_, kernel_seconds_);
      p.seconds += bytes > 0 ? kernel_seconds(d_, compute, bytes) : 0;
      price_.kernels += bytes > 0;
    }
    kernel_end_ = -1;
    kernel_bytes_ = kernel_flops_ = kernel_seconds_ = 0;
    read_.clear();
    made_in_kernel_.clear();
  }

  const Device& d_;
  const Pricing& pricing_;
  const LoweredBody& body_;
  const int rank_;
  const bool first_;
  const double peak_, vector_peak_;
  std::vector<char> letters_;  // by value: of the state it is read from or written to
  const LocalBody held_;
  std::vector<int> uses_, last_use_;  // by version
  std::vector<bool> by_product_;      // by version: never written, added to a sum as it is made
  std::map<int, double> read_;        // version -> bytes, of the open kernel
  std::set<int> made_in_kernel_;
  double kernel_bytes_ = 0, kernel_flops_ = 0;
  double kernel_seconds_ = 0;  // that it takes at least, for what FLOPs do not tell
  int kernel_end_ = -1;
  BodyPrice price_;
};

}  // namespace

BodyPrice price_body(const Device& device, const Pricing& pricing, const Mesh& mesh,
                     const LoweredBody& body, int rank, bool first,
                     const CollectivePrice& collective) {
  return BodyPricer(device, pricing, mesh, body, rank, first).run(collective);
}

}  // namespace myriad
