// An expert layer. Part 0 routes; part 1, once a round, dispatches a window of the chosen rows,
// runs the experts and combines; part 2 adds. What part 1 hands on ("m") is summed over rounds.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/emit_parts.h"

namespace myriad {

namespace {

constexpr int kRoute = 0, kLoop = 1, kJoin = 2;

struct Names {
  std::string block, gate, up, down;
};

Names published(Family family) {
  if (family == Family::mixtral) return {"block_sparse_moe", "w1", "w3", "w2"};
  return {"mlp", "gate_proj", "up_proj", "down_proj"};
}

struct Routing {
  int logits, scores;  // bsx
  int choices;         // bsj
};

Builder::Options integers(std::string name, LabelSizes sizes, Attrs attrs) {
  return {.names = {std::move(name)},
          .sizes = std::move(sizes),
          .attrs = std::move(attrs),
          .dtypes = {DType::i32}};
}

Routing emit_router(Emitter& e, int xn, const std::string& block) {
  const MoeConfig& m = e.config.moe;
  const DType real = e.b.graph().real;  // narrower scores would choose other experts
  const int w = e.matrix("router.w", "xd", {m.experts, e.config.hidden},
                         e.in_layer(block + ".gate.weight"), 1, real);
  const int z = e.b.contract("bsd,xd->bsx", {xn, w}, "rz", 1, 0, real);
  const int scores =
      e.b.elementwise(m.scores == Scores::sigmoid ? Row::sigmoid : Row::softmax, {z}, "rp");
  std::vector<int> ins = {scores};
  if (m.correction_bias) {
    ins.push_back(e.weight({.name = "router.bias",
                            .labels = "x",
                            .sizes = {m.experts},
                            .published = e.in_layer(block + ".gate.e_score_correction_bias"),
                            .init = Init::zeros,
                            .trained = false},
                           real));
  }
  Attrs attrs{.k = m.top_k};
  if (m.groups > 1) {
    attrs.groups = m.groups;
    attrs.kept_groups = m.kept_groups;
  }
  const int choices = e.b.op(Row::topk, ins, m.correction_bias ? "bsx,x->bsj" : "bsx->bsj",
                             integers("idx", {"j", {m.top_k}}, attrs))[0];
  return {z, scores, choices};
}

// ceil(factor tokens k / experts). A factor such as 1.1 is not exact in binary: what exceeds a
// whole number only by that is not rounded up.
int64_t capacity(const MoeConfig& m, int64_t tokens) {
  const double share = m.routing.capacity_factor * static_cast<double>(tokens) *
                       static_cast<double>(m.top_k) / static_cast<double>(m.experts);
  return static_cast<int64_t>(
      std::ceil(std::min(share, static_cast<double>(tokens)) * (1 - 1e-12)));
}

// "bsj": what each choice counts for in the sum over the token's experts.
int emit_weights(Emitter& e, const Routing& r) {
  const MoeConfig& m = e.config.moe;
  const bool drops = m.routing.capacity_factor > 0;
  int w = e.b.op1(Row::pick, {r.scores, r.choices}, "bsx,bsj->bsj", e.named("rk"));
  if (m.renormalise) {
    const int total = e.b.elementwise(Row::recip, {e.b.contract("bsj->bs", {w})});
    w = e.b.contract("bsj,bs->bsj", {w, total}, "rw", m.scaling);
  } else if (m.scaling != 1) {
    w = e.b.contract("bsj->bsj", {w}, "rw", m.scaling);
  }
  if (!drops) return w;
  Builder::Options options = e.named("fit");
  options.attrs = {.capacity = capacity(m, e.rows * e.sequence), .experts = m.experts};
  const int fit = e.b.op1(Row::fits, {r.choices}, "bsj->bsj", std::move(options));
  return e.b.contract("bsj,bsj->bsj", {w, fit}, "rwf", 1, 1u << 1);
}

// Experts x sum over experts of (share of the tokens that chose it) x (mean probability), over the
// micro-batch or the mean of that over its rows. Sigmoid scores are first made to sum to 1
// (DeepSeek-AI 2024, arXiv:2412.19437, equations 17 to 20). An even router gives k.
void emit_balance_loss(Emitter& e, const Routing& r, int counts) {
  const MoeConfig& m = e.config.moe;
  const bool rows = m.routing.scope == BalanceScope::sequence;
  const std::string to = rows ? "bx" : "x";
  int sums;
  if (m.scores == Scores::sigmoid) {
    const int total = e.b.elementwise(Row::recip, {e.b.contract("bsx->bs", {r.scores})});
    sums = e.b.contract("bsx,bs->" + to, {r.scores, total}, "psum");
  } else {
    sums = e.b.contract("bsx->" + to, {r.scores}, "psum");
  }
  const double tokens = static_cast<double>(rows ? e.sequence : e.rows * e.sequence);
  const double scale =
      static_cast<double>(m.experts) / (tokens * tokens * (rows ? static_cast<double>(e.rows) : 1));
  const int loss = e.b.contract(to + "," + to + "->", {counts, sums}, "", scale, 1u << 0);
  e.exact_sum(loss, "aux", StateName{StateKind::scalar, "aux"});
  e.seed("aux", "balance_coef");
}

// Mean over tokens of the squared log-sum-exp of the router's logits (Zoph et al. 2022,
// arXiv:2202.08906, equation 5).
void emit_z_loss(Emitter& e, int logits) {
  const int m = e.b.op1(Row::max_stop, {logits}, "bsx->bs", e.named("rm"));
  const int s = e.b.op1(Row::sum_exp, {logits, m}, "bsx,bs->bs", e.named("rs"));
  const int lse = e.b.add({e.b.elementwise(Row::log, {s}), m}, "rlse");
  const double tokens = static_cast<double>(e.rows * e.sequence);
  e.exact_sum(e.b.contract("bs,bs->bs", {lse, lse}, "", 1 / tokens), "zloss",
              StateName{StateKind::scalar, "zloss"});
  e.seed("zloss", "z_coef");
}

void emit_reports(Emitter& e, const Routing& r) {
  const MoeConfig& m = e.config.moe;
  const bool rows = m.routing.load_balance > 0 && m.routing.scope == BalanceScope::sequence;
  Builder::Options options = e.named(rows ? "cntb" : "cnt");
  options.sizes = {"x", {m.experts}};
  const int of_loss =
      e.b.op1(Row::count, {r.choices}, rows ? "bsj->bx" : "bsj->x", std::move(options));
  const int counts = rows ? e.b.contract("bx->x", {of_loss}, "cnt") : of_loss;
  e.b.write(Row::accum, counts, kCounts);
  if (m.routing.load_balance > 0) emit_balance_loss(e, r, of_loss);
  if (m.routing.z > 0) emit_z_loss(e, r.logits);
}

// One round. The weight multiplies a row before the last product: its gradient then needs no row of
// the output, which so is neither kept nor sent back.
int emit_round(Emitter& e, int xn, int weights, int choices, const Names& names) {
  const MoeConfig& m = e.config.moe;
  const int64_t n = m.experts, f = m.expert_ffn, d = e.config.hidden;
  const auto expert = [&](const char* name, const char* labels, Sizes sizes,
                          const std::string& stem, double scale = 1) {
    return e.matrix(name, labels, std::move(sizes),
                    e.in_layer(fmt::format("{}.experts.{{e}}.{}.weight", names.block, stem)),
                    scale);
  };
  const auto rows = [&](const char* name) {
    Builder::Options options = e.named(name);
    options.sizes = {"e", {n}};
    return options;
  };
  const int now = e.b.op1(Row::window, {choices}, "bsj->bsj", integers("idr", {}, {.experts = n}));
  const int x = e.b.op1(Row::dispatch, {xn, now}, "bsd,bsj->ebsd", rows("ex"));
  const int w = e.b.op1(Row::dispatch_w, {weights, now}, "bsj,bsj->ebs", rows("ew"));
  const int gate = expert("eg.w", "efd", {n, f, d}, names.gate);
  const int g = e.b.contract("ebsd,efd->ebsf", {x, gate}, "eg");
  const int up = expert("eu.w", "efd", {n, f, d}, names.up);
  const int u = e.b.contract("ebsd,efd->ebsf", {x, up}, "eu");
  const int a = e.b.contract("ebsf,ebsf->ebsf", {e.b.elementwise(Row::silu, {g}), u}, "ea");
  const int aw = e.b.contract("ebsf,ebs->ebsf", {a, w}, "eaw");
  const int down = expert("ed.w", "edf", {n, d, f}, names.down, e.residual_scale());
  const int y = e.b.contract("ebsf,edf->ebsd", {aw, down}, "ey");
  return e.b.op1(Row::combine, {y, now}, "ebsd,bsj->bsd", e.named("m"));
}

}  // namespace

int emit_experts(Emitter& e, int x1) {
  const MoeConfig& m = e.config.moe;
  const Names names = published(e.config.family);
  e.b.part = kRoute;
  const int xn = e.norm(x1, "xn2", e.in_layer("post_attention_layernorm.weight"));
  const Routing r = emit_router(e, xn, names.block);
  const int weights = emit_weights(e, r);
  emit_reports(e, r);
  e.b.op1(Row::rounds, {r.choices}, "bsj->", integers("rounds", {}, {.experts = m.experts}));
  e.b.part = kLoop;
  std::vector<int> terms = {x1, emit_round(e, xn, weights, r.choices, names)};
  e.b.part = kJoin;
  if (m.shared_experts > 0) {
    terms.push_back(emit_swiglu(e, xn, m.shared_experts * m.expert_ffn, "sh.",
                                names.block + ".shared_experts"));
  }
  return e.b.add(terms, "y");
}

}  // namespace myriad
