#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/emit_parts.h"

namespace myriad {

int emit_swiglu(Emitter& e, int xn, int64_t f, const std::string& prefix,
                const std::string& published) {
  const int64_t d = e.config.hidden;
  const auto matrix = [&](const char* name, const char* labels, Sizes sizes, double scale = 1) {
    return e.matrix(fmt::format("{}{}.w", prefix, name), labels, std::move(sizes),
                    e.in_layer(fmt::format("{}.{}_proj.weight", published, name)), scale);
  };
  const int up = matrix("up", "fd", {f, d});
  const int u = e.b.contract("bsd,fd->bsf", {xn, up}, prefix + "u");
  const int gate = matrix("gate", "fd", {f, d});
  const int g = e.b.contract("bsd,fd->bsf", {xn, gate}, prefix + "g");
  const int silu = e.b.elementwise(Row::silu, {g});
  const int a = e.b.contract("bsf,bsf->bsf", {silu, u}, prefix + "a");
  const int down = matrix("down", "df", {d, f}, e.residual_scale());
  return e.b.contract("bsf,df->bsd", {a, down}, prefix + "mo");
}

int emit_mlp(Emitter& e, int x1) {
  const int xn = e.norm(x1, "xn2", e.in_layer("post_attention_layernorm.weight"));
  std::vector<int> terms = {x1, emit_swiglu(e, xn, e.config.ffn, "", "mlp")};
  if (e.telechat()) {
    terms.push_back(e.bias("down.b", "d", {e.config.hidden}, e.in_layer("mlp.down_proj.bias")));
  }
  return e.b.add(terms, "y");
}

}  // namespace myriad
