// Counted bytes against closed formulae, at real widths, from lowering alone: nothing here is
// executed.
//
// For a value of S bytes over n ranks a gather or scatter sends (n - 1) S bytes in n (n - 1)
// messages, an all_reduce twice that.
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "ir/flight.h"
#include "machine/profile.h"
#include "model/emit.h"
#include "passes/lower.h"

namespace myriad {
namespace {

constexpr int64_t kWidth = 4;  // f32

// The widths of a model of 100 B parameters.
ModelConfig wide(int layers) {
  return {.hidden = 8192,
          .layers = layers,
          .heads = 64,
          .kv_heads = 8,
          .head_dim = 128,
          .ffn = 40960,
          .vocabulary = 131072,
          .norm_eps = 1e-5};
}

Program lowered(const ModelConfig& model, Plan plan, int64_t rows, int64_t sequence) {
  plan = resolve(plan, static_cast<int>(model.layers), rows);
  const Emit emit = [&](int64_t n) { return emit_model(model, n, sequence, DType::f32, {}); };
  return lower(emit, plan, {.rows = rows});
}

using Counts = std::map<std::string, Count>;

Count operator*(int64_t n, Count c) { return {n * c.bytes, n * c.messages}; }
Count operator+(Count a, Count b) { return {a.bytes + b.bytes, a.messages + b.messages}; }

Count gather(int64_t n, int64_t bytes) { return {(n - 1) * bytes, n * (n - 1)}; }
Count scatter(int64_t n, int64_t bytes) { return gather(n, bytes); }
Count all_reduce(int64_t n, int64_t bytes) { return 2 * gather(n, bytes); }

// What one run of a body sends, over all ranks of one stage, by kind.
Counts sent_by(const Program& p, const std::string& name) {
  Counts out;
  for (const LoweredBody& body : p.bodies) {
    if (body.name != name) continue;
    for (const Step& step : body.steps) {
      if (!begins_collective(step)) continue;
      for (int r = 0; r < p.mesh.ranks() / p.stages; ++r)
        out[name_of(step.what)] = out[name_of(step.what)] + sent_in(p.mesh, body, step, r);
    }
  }
  return out;
}

std::string text(const Counts& counts) {
  std::string out;
  for (const auto& [kind, c] : counts)
    out += fmt::format("{}: {} bytes, {} messages; ", kind, c.bytes, c.messages);
  return out;
}

void expect(const Counts& got, const Counts& wanted, const std::string& what) {
  EXPECT_TRUE(got == wanted) << what << "\n  counted " << text(got) << "\n  formula "
                             << text(wanted);
}

// Sums of a model's parameters, in bytes.
struct Weights {
  int64_t layer, embedding, norm, head;
  explicit Weights(const ModelConfig& c)
      : layer(kWidth * (c.hidden * c.head_dim * 2 * (c.heads + c.kv_heads) + 3 * c.hidden * c.ffn +
                        2 * c.hidden)),
        embedding(kWidth * c.vocabulary * c.hidden),
        norm(kWidth * c.hidden),
        head(kWidth * c.vocabulary * c.hidden) {}
  int64_t all(int64_t layers) const { return layers * layer + embedding + norm + head; }
};
constexpr int64_t kTensorsOfALayer = 9, kOtherTensors = 3;

// Traffic of tensor parallelism: a residual stream of [rows, 8192, 8192].
constexpr int64_t kSequence = 8192;
int64_t stream_bytes(int64_t rows) { return rows * kSequence * 8192 * kWidth; }

TEST(Formulae, TensorParallelLayer) {
  for (int tp : {2, 4, 8}) {
    const Program p = lowered(wide(2), {.tp = tp}, 1, kSequence);
    const Count two = 2 * all_reduce(tp, stream_bytes(1));
    expect(sent_by(p, "layer.forward"), {{"all_reduce", two}}, fmt::format("forward, tp {}", tp));
    expect(sent_by(p, "layer.backward"), {{"all_reduce", two}}, fmt::format("backward, tp {}", tp));
  }
}

TEST(Formulae, SequenceParallelLayer) {
  for (int tp : {2, 4, 8}) {
    const Program p = lowered(wide(2), {.tp = tp, .sp = true}, 1, kSequence);
    const Count one = gather(tp, stream_bytes(1));
    expect(sent_by(p, "layer.forward"), {{"all_gather", 2 * one}, {"reduce_scatter", 2 * one}},
           fmt::format("forward, sp over {}", tp));
    expect(sent_by(p, "layer.backward"), {{"all_gather", 4 * one}, {"reduce_scatter", 2 * one}},
           fmt::format("backward, sp over {}", tp));
  }
}

// Keys and values are gathered, and with them the positions and documents that say who sees whom;
// their gradients are scattered back.
TEST(Formulae, ContextParallelLayer) {
  for (int cp : {2, 4, 8}) {
    const Program p = lowered(wide(2), {.cp = cp}, 1, kSequence);
    const Count keys = gather(cp, kSequence * 8 * 128 * kWidth),
                places = gather(cp, kSequence * kWidth);
    expect(sent_by(p, "layer.forward"), {{"all_gather", 2 * keys + 2 * places}},
           fmt::format("forward, cp {}", cp));
    expect(sent_by(p, "layer.backward"),
           {{"all_gather", 2 * keys + 2 * places}, {"reduce_scatter", 2 * keys}},
           fmt::format("backward, cp {}", cp));
  }
}

// Recompute runs a layer's forward collectives again, but for the last, whose result is the next
// layer's input.
TEST(Formulae, RecomputedLayer) {
  const Program plain = lowered(wide(2), {.tp = 8, .sp = true}, 1, kSequence);
  const Program again =
      lowered(wide(2), {.tp = 8, .sp = true, .recompute = Recompute::full}, 1, kSequence);
  const Count one = gather(8, stream_bytes(1));
  expect(sent_by(again, "layer.forward"), sent_by(plain, "layer.forward"), "forward");
  expect(sent_by(again, "layer.backward"), {{"all_gather", 4 * one}, {"reduce_scatter", 3 * one}},
         "backward with recompute");
}

// What a layer keeps from its forward to its backward pass, in elements. Selective recompute sends
// nothing again, and saves both normed inputs (with a number a token each), the SiLU and the
// product of the SwiGLU. Queries, keys and the middle of the residual stream are kept before they
// are turned or added, in the same room.
TEST(Formulae, SelectivelyRecomputedLayer) {
  const ModelConfig model = wide(2);
  for (const bool sp : {false, true}) {
    const auto run = [&](Recompute how) {
      return lowered(model, {.tp = 8, .sp = sp, .recompute = how}, 1, kSequence);
    };
    const Program plain = run(Recompute::none), selective = run(Recompute::selective);
    for (const char* body : {"layer.forward", "layer.backward"})
      expect(sent_by(selective, body), sent_by(plain, body), body);
    const auto kept = [&](const Program& p) {
      int64_t elements = 0;
      for (const LoweredBody& body : p.bodies) {
        if (body.name != "layer.forward") continue;
        for (int out : body.outputs) {
          const Version& v = body.versions[out];
          elements += local_elements(p.mesh, v.layout, (*body.graph)[v.value].sizes, 0);
        }
      }
      return elements;
    };
    const int64_t stream = kSequence / (sp ? 8 : 1);
    EXPECT_EQ(kept(plain) - kept(selective),
              2 * stream * (model.hidden + 1) + 2 * kSequence * model.ffn / 8);
  }
}

// Vocabulary cut over tp: the embedding's partial rows are added; the loss sends numbers a token
// only; backward, the gradient of the head's input is added.
TEST(Formulae, CutVocabulary) {
  const Program p = lowered(wide(2), {.tp = 8}, 1, kSequence);
  const int64_t token_bytes = kSequence * kWidth;
  expect(sent_by(p, "emb.forward"), {{"all_reduce", all_reduce(8, stream_bytes(1))}}, "embedding");
  const Counts head = sent_by(p, "head.forward");
  for (const auto& [kind, count] : head)
    EXPECT_LE(count.bytes, 3 * all_reduce(8, token_bytes).bytes) << kind;
  expect(sent_by(p, "head.backward"), {{"all_reduce", all_reduce(8, stream_bytes(1))}},
         "head backward");
}

// Traffic of data parallelism: what the program sends but for exact scalars, whose number does not
// depend on the model's width.

Counts of_step(const ModelConfig& model, Plan plan, int64_t rows, int64_t sequence) {
  return profile(lowered(model, plan, rows, sequence), {}).collectives;
}

// norm and loss, each one all_reduce over all ranks of a stage.
Count scalars(int64_t n) { return 2 * all_reduce(n, static_cast<int64_t>(sizeof(ExactSum))); }

TEST(Formulae, DataParallelGradients) {
  for (int dp : {2, 8}) {
    for (int layers : {2, 5}) {
      const ModelConfig model = wide(layers);
      const int64_t tensors = layers * kTensorsOfALayer + kOtherTensors;
      Count sum = all_reduce(dp, Weights(model).all(layers));
      sum.messages *= tensors;
      expect(of_step(model, {.dp = dp}, dp, 64), {{"all_reduce", sum + scalars(dp)}},
             fmt::format("dp {}, {} layers", dp, layers));
    }
  }
}

TEST(Formulae, ZeroOneScattersGradientsAndGathersParameters) {
  const int layers = 2;
  const ModelConfig model = wide(layers);
  Count once = gather(8, Weights(model).all(layers));
  once.messages *= layers * kTensorsOfALayer + kOtherTensors;
  for (int micro_batches : {1, 4}) {
    expect(of_step(model, {.dp = 8, .micro_batches = micro_batches, .zero = 1}, 32, 64),
           {{"reduce_scatter", once}, {"all_gather", once}, {"all_reduce", scalars(8)}}, "zero 1");
  }
}

TEST(Formulae, ZeroTwoScattersGradientsOfEachMicroBatch) {
  const int layers = 2;
  const ModelConfig model = wide(layers);
  Count once = gather(8, Weights(model).all(layers));
  once.messages *= layers * kTensorsOfALayer + kOtherTensors;
  for (int micro_batches : {1, 4}) {
    expect(of_step(model, {.dp = 8, .micro_batches = micro_batches, .zero = 2}, 32, 64),
           {{"reduce_scatter", micro_batches * once},
            {"all_gather", once},
            {"all_reduce", scalars(8)}},
           "zero 2");
  }
}

// Forward and backward gather each weight they use; the embedding's backward uses none.
TEST(Formulae, ZeroThreeGathersParametersForEachUse) {
  const int layers = 2;
  const ModelConfig model = wide(layers);
  const Weights w(model);
  for (int micro_batches : {1, 4}) {
    Count forward = gather(8, w.all(layers)), backward = gather(8, w.all(layers) - w.embedding);
    Count gradients = scatter(8, w.all(layers));
    const int64_t tensors = layers * kTensorsOfALayer + kOtherTensors;
    forward.messages *= tensors;
    gradients.messages *= tensors;
    backward.messages *= tensors - 1;
    expect(of_step(model, {.dp = 8, .micro_batches = micro_batches, .zero = 3}, 32, 64),
           {{"reduce_scatter", micro_batches * gradients},
            {"all_gather", micro_batches * (forward + backward)},
            {"all_reduce", scalars(8)}},
           "zero 3");
  }
}

// Each boundary between virtual stages is crossed by every micro-batch, once a direction; without
// sp by a copy a tp rank.
TEST(Formulae, PipelineSends) {
  struct Case {
    Plan plan;
    int64_t copies;
  };
  const Case cases[] = {{{.pp = 4, .micro_batches = 8}, 1},
                        {{.pp = 2, .vpp = 4, .micro_batches = 4}, 1},
                        {{.dp = 2, .tp = 4, .pp = 2, .micro_batches = 4}, 4},
                        {{.dp = 2, .tp = 4, .pp = 2, .micro_batches = 4, .sp = true}, 1}};
  for (const auto& [plan, copies] : cases) {
    const int64_t rows = 8, sequence = 64,
                  crossings = 2 * plan.micro_batches * (plan.pp * plan.vpp - 1);
    const int64_t micro_batch = rows / plan.micro_batches * sequence * 8192 * kWidth;
    const Count sent = of_step(wide(8), plan, rows, sequence).at("send");
    EXPECT_EQ(sent.bytes, crossings * copies * micro_batch);
    EXPECT_EQ(sent.messages, crossings * plan.dp * plan.tp);
  }
}

// The last stage sends its sum of a tied weight's gradient to the first, and the other way round.
TEST(Formulae, TiedWeightsAreExchangedOnce) {
  ModelConfig model = wide(4);
  const Plan plan{.pp = 2};
  const Count untied = of_step(model, plan, 1, 64).at("send");
  model.tied = true;
  const Count tied = of_step(model, plan, 1, 64).at("send");
  EXPECT_EQ(tied.bytes - untied.bytes, 2 * Weights(model).embedding);
  EXPECT_EQ(tied.messages - untied.messages, 2);
}

TEST(Formulae, LoweringOfAHundredLayersOnThousandsOfRanks) {
  const auto begin = std::chrono::steady_clock::now();
  const Plan plan{.dp = 64, .tp = 8, .pp = 8, .vpp = 3, .micro_batches = 8, .zero = 1, .sp = true};
  const Program p = lowered(wide(96), plan, 512, kSequence);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  size_t decisions = 0, steps = 0, actions = 0;
  for (const LoweredBody& b : p.bodies) {
    decisions += b.ops.size();
    steps += b.steps.size();
  }
  for (const auto& a : p.actions) actions += a.size();
  fmt::print(
      "96 layers on {} ranks: {:.2f} s, {} ops laid out in {} bodies of {} steps, {} actions\n",
      p.mesh.ranks(), seconds, decisions, p.bodies.size(), steps, actions);
  EXPECT_EQ(p.mesh.ranks(), 4096);
  EXPECT_LT(decisions, 500u);  // does not grow with layers or ranks
}

}  // namespace
}  // namespace myriad
