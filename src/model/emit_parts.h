// The parts that emit_model puts together; used inside model/ only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/builder.h"
#include "ir/pieces.h"
#include "model/config.h"
#include "model/emit.h"

namespace myriad {

// How often each expert of a layer was chosen in the step.
inline const StateName kCounts{StateKind::counter, "counts"};

// The forward body of one piece in the making. The piece must outlive it and stay where it is.
class Emitter {
 public:
  Emitter(Piece& piece, const ModelConfig& config, int64_t rows, int64_t sequence,
          const CacheShape& cache);

  Builder b;
  const ModelConfig& config;
  const int64_t rows, sequence;
  const CacheShape cache;

  // A parameter, noted in the piece, and read. Published names come without the layer's prefix,
  // which in_layer adds.
  // used_as: the type it is computed with; none: that of activations.
  int weight(Param param, std::optional<DType> used_as = {});
  int matrix(std::string name, std::string labels, Sizes sizes, std::string published,
             double scale = 1, std::optional<DType> used_as = {});
  // A bias NAME of these labels, spread over b and s as NAME.spread: where that is wanted, not
  // whole.
  int bias(const std::string& name, std::string labels, Sizes sizes, std::string published);
  // Layer norm over d (Ba et al. 2016, arXiv:1607.06450), weight NAME.w, bias NAME.b; published
  // names are `published`.weight and .bias.
  int layer_norm(int x, const std::string& name, const std::string& published);
  // Root mean square norm over the last label, weight NAME.w (Zhang and Sennrich 2019,
  // arXiv:1910.07467).
  int norm(int x, std::string name, std::string published);
  int tokens(std::string name);                    // an i32 input "bs"
  int places(std::string name);                    // an i32 input "bt", of a cache
  int hidden(std::string name);                    // an input "bsd" of activations
  int scalar(std::string name);                    // a real input ""
  Builder::Options named(std::string name) const;  // of one output
  Builder::Options real(std::string name)
      const;  // the same, of the graph's real type: a statistic, a part of the loss
  // The sum of a real value over all its labels, exactly, added to the state; named and returned.
  int exact_sum(int x, std::string name, StateName state);
  std::string in_layer(std::string_view published) const;
  // Standard deviation factor of matrices whose product is added to the residual stream, two a
  // layer (GPT-2: Radford et al. 2019, section 2.3).
  double residual_scale() const;
  bool telechat() const;
  bool gpt2() const { return config.family == Family::gpt2; }
  // The output `name` starts a backward pass; its gradient is the scalar input `coefficient`.
  void seed(std::string name, std::string coefficient);

 private:
  Piece& piece_;
};

// o "bsgru" of q "bsgrh", k and v "bsgh": over themselves, or over the cache that they join.
int emit_attend(Emitter& e, int q, int k, int v);
// x1 = x + attention(norm(x)); TeleChat2 has a bias there.
int emit_attention(Emitter& e, int x);
// The same of GPT-2: layer norm, one product for q, k and v, biases.
int emit_gpt2_attention(Emitter& e, int x);
// y = x1 + MLP(norm(x1)), GELU between two products with biases.
int emit_gpt2_mlp(Emitter& e, int x1);
// Token and learned position embeddings, added.
int emit_gpt2_embedding(Emitter& e);
// SwiGLU (Shazeer 2020, arXiv:2002.05202) of width f, not added to anything. Values and weights are
// PREFIXu, PREFIXup.w, ...; published names begin with `published`.
int emit_swiglu(Emitter& e, int xn, int64_t f, const std::string& prefix,
                const std::string& published);
// y = x1 + SwiGLU(norm(x1)).
int emit_mlp(Emitter& e, int x1);
// y = x1 + experts(norm(x1)): parts 0, 1 (the loop) and 2 of the piece, see moe.cc.
int emit_experts(Emitter& e, int x1);

// How the step moves correction biases; rate 0: not.
struct Balance {
  double rate = 0, mean_count = 0;
};

// settle, square and update of the piece's own (not tied) parameters.
void emit_optimizer(Piece& piece, const OptimizerConfig& optimizer, const Balance& balance,
                    bool embedding_is_tied);
// The piece of a weight that embedding and head share: sums of both, one norm, one update.
Piece tied_piece(const Param& param, DType real, const OptimizerConfig& optimizer);
// Norm, clipping factor, loss and router losses of the step.
Piece finish_piece(DType real, const OptimizerConfig& optimizer, const RoutingConfig& routing);

}  // namespace myriad
