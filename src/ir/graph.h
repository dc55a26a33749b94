// Values, ops and bodies before they are laid out: nothing here knows a mesh.
//
// Labels, one letter a dim: b row, s position, d hidden; g kv group, r query in group, h head dim,
// u value head dim, t key position; f ffn; v vocabulary; i, y parts of a fused weight; x router's
// expert; e expert of rows; j choice.
//
// Routed rows: a sparse value "ebs..." holds the (expert; row, position) pairs that a router chose,
// ordered by (e, b, s); which pairs there are stands in its `routing` value, known when it runs.
// Cuts of e, b, s and the rest are ordinary cuts. A Graph owns the values of one piece of a model
// (embedding, layer, head); its bodies share them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.h"
#include "ir/nodes.h"
#include "ir/port.h"
#include "ir/state.h"

namespace myriad {

using Sizes = std::vector<int64_t>;

// label -> size, in order of first use.
struct LabelSizes {
  std::string labels;
  Sizes sizes;

  int find(char label) const {
    const size_t i = labels.find(label);
    return i == std::string::npos ? -1 : static_cast<int>(i);
  }
  int64_t at(char label) const;        // CHECKs that the label is there
  bool set(char label, int64_t size);  // false if it is there with another size
  bool operator==(const LabelSizes&) const = default;
};

struct Value {
  std::string name;  // unique in its graph; temporaries are "%n"
  std::string labels;
  Sizes sizes;
  DType dtype = DType::f32;
  int gradient_of = -1;     // a named gradient: of that value
  int heading = -1;         // an unnamed contribution to the gradient of that value
  int routing = -1;         // of a sparse value: the choices "bsj" (-1: none) that define its rows
  double density = 1;       // of a sparse value: expected share of pairs that exist; of choices: of
                            // those that are some
  bool from_state = false;  // read from a state, or its cast: the gradient has the state's type
  bool from_experts = false;  // made by combine
  std::string parameter;      // of a reduced gradient ("q.w/g"): the parameter, "q.w"
  Port port = Port::none;     // follows from the name; Graph::add and rename keep it
  bool sparse() const { return routing >= 0; }
  bool temporary() const { return name[0] == '%'; }
};

// clang-format off
enum class Row : uint8_t {
  contract,         // any einsum of 1 to 4 operands, times attrs.scale
  broadcast,        // "bs->bsd"
  add,              // n-ary, equal labels
  cast,             // to another real type; narrowing rounds to nearest, ties to even
  rsqrt,            // (a x + b)^-1/2
  recip,            // 1 / x
  log,
  silu,             // x sigmoid(x)
  silu_grad,        // (x, dy) -> dx
  sigmoid,
  sigmoid_grad,     // (y, dy) -> dx
  gelu,             // x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)): the tanh form
  gelu_grad,        // (x, dy) -> dx
  softmax,          // "bsx->bsx" over the last label
  max_stop,         // "bsv->bs", pending maximum; no gradient
  sum_exp,          // "bsv,bs->bs": sum over v of exp(z - m)
  exp_scale,        // "bsv,bs,bs->bsv": exp(z - m) dy
  pick,             // "bsv,bs->bs" or "bsx,bsj->bsj": z at the index, 0 where the index is not in
                    // the local range
  unpick,           // "bs,bs->bsv" or "bsj,bsj->bsx": its transpose
  topk,             // "bsx->bsj" or "bsx,x->bsj": the k largest (with the bias added), ties to the
                    // lower expert; attrs.k, groups
  count,            // "bsj->x" (or "bx"): how often each expert was chosen, as a real number
  fits,             // "bsj->bsj": 1 where the choice is within attrs.capacity of its expert, counted
                    // by row, position in it and j, else 0
  window,           // "bsj->bsj": the choices of the running round, -1 for others; attrs.parts,
                    // bound
  rounds,           // "bsj->": how many rounds there are (i32), pending maximum
  dispatch,         // "bsd,bsj->ebsd": rows of the chosen pairs
  combine,          // "ebsd,bsj->bsd": its transpose: sum over the chosen experts, in order of e
  leads,            // "bsj->bsj": of a token's choices on each node (attrs.parts etc.) the lowest
                    // expert, -1 for others
  spread,           // "ebsd,bsj,bsj->ebsd": from rows of leads those of all choices on the node; e
                    // cut by nodes at most
  collapse,         // "ebsd,bsj,bsj->ebsd": its transpose: sum over a token's rows on a node, in
                    // order of e
  dispatch_w,       // "bsj,bsj->ebs": the weight of each pair
  collect_w,        // "ebs,bsj->bsj": its transpose
  balance,          // "x,x,->x": bias + attrs.a x sign(attrs.b - counts); unchanged where clip's
                    // factor is NaN
  valid,            // "bs->bs": 1 where target >= 0, else 0
  gather_rows,      // "vd,bs->bsd"
  scatter_rows,     // "bsd,bs->vd": its transpose
  place_rows,       // "btgh,bsgh,bs->btgh": the first with the rows of the second at the places
                    // given; negative: nowhere. No gradient
  rope,             // "bsgrh,bs->bsgrh" (or bsgh)
  attention,        // q bsgrh, k btgh, v btgu, pos bs, pos bt, doc bs, doc bt -> o bsgru, lse bsgr
  attention_grad,   // q, k, v, o, lse, do, pos, pos, doc, doc -> dq, dk, dv
  slice,            // part [lo, lo + n) of dim attrs.label, renamed attrs.to
  pad,              // its transpose
  sum_exact,        // equal labels -> scalar of dtype exact: sum of the products of its operands
  clip,             // sum of squares (exact), live -> factor, norm (f64): min(1, max / (norm +
                    // 1e-6)); NaN (no update) if live is 0 or the norm is not finite
  settle_exact,     // exact scalar -> f64
  adamw,            // p, g, m, v, factor, lr, left1, left2 -> p, m, v; unchanged where factor is NaN
  read,             // state -> value
  write,            // value -> state
  accum,            // state += value; the first micro-batch of a step writes
  count_
};
// clang-format on
constexpr int kRows = static_cast<int>(Row::count_);

enum class RopeStyle : uint8_t { half, interleaved };
const char* name_of(RopeStyle style);

// Attributes; each row reads its own.
struct Attrs {
  double scale = 1;        // contract, attention
  uint32_t stop = 0;       // contract: operands (bit i) that get no gradient
  double a = 0, b = 0;     // rsqrt
  char label = 0, to = 0;  // slice, pad
  int64_t lo = 0;          // slice, pad
  std::shared_ptr<const std::vector<double>> frequencies;  // rope: radians a position, one a pair
  double mscale = 1;                                       // rope: factor on cos and sin
  RopeStyle style = RopeStyle::half;
  int sign = 1;    // rope: -1 turns back
  double max = 0;  // clip; 0: no clipping
  // topk: choices; groups of experts of which so many stay (0: no groups)
  int64_t k = 0, groups = 0, kept_groups = 0;
  int64_t capacity = 0;  // fits: choices an expert takes
  int64_t cp = 1;        // fits: ranks that share the sequence, which orders it (ir/sequence.h)
  int64_t experts = 0;   // fits, window, rounds, leads, spread, collapse
  int64_t bound = 0;     // window, rounds: rows an owner of experts takes a round
  // window, rounds, leads, spread, collapse: owners of the experts, ranks of each, and on which
  // nodes these lie (ir/nodes.h). window, rounds: with ranks_per_node a token's choices on a node
  // go together (ir/rounds.h).
  int64_t parts = 1, inner = 1, ranks_per_node = 0;
  double beta1 = 0, beta2 = 0, eps = 0, decay = 0;  // adamw
  StateName state;                                  // read, write, accum
  bool operator==(const Attrs&) const = default;
  // The owners of experts that share `rank`'s.
  OwnerNodes nodes(int64_t rank) const {
    return OwnerNodes{parts, inner, ranks_per_node}.around(rank);
  }
};

struct Op {
  Row row;
  std::vector<int> ins, outs;  // values
  std::vector<std::string> in_labels, out_labels;
  std::vector<DType> in_types, out_types;
  LabelSizes size;  // global size of every label of the op
  Attrs attrs;
  int part = 0;  // of its piece, see Piece::loop_part
};

// Straight-line, single-assignment. Values that are read but not made here are its inputs.
struct Body {
  std::string name;
  std::vector<Op> ops;
  std::vector<int> outputs;  // values that others read: boundary values, and what tests ask for
};

template <class S>
struct FieldsOf;  // the table of a struct's fields, see ir/fields.h

struct Graph {
  std::vector<Value> values;
  DType real = DType::f32;        // of states, scalars, statistics, losses and routing
  DType activation = DType::f32;  // of what flows through a model, and of its gradients

  DType gradient_type(int value) const {
    return values[value].from_state ? real : values[value].dtype;
  }

  int add(Value v);                       // CHECKs that the name is new
  int find(std::string_view name) const;  // -1: none
  int find(Port port) const;              // -1: none
  int at(std::string_view name) const;    // CHECKs
  std::string fresh();                    // name of a new temporary
  void rename(int id, std::string name);  // CHECKs that the name is new
  const Value& operator[](int i) const { return values[i]; }
  Value& operator[](int i) { return values[i]; }

 private:
  friend struct FieldsOf<Graph>;
  int temporaries_ = 0;
  std::vector<std::pair<std::string, int>> index_;  // sorted by name
};

std::string show(const Op& op, const Graph& graph);

// Whether all that an op reads and makes of routed rows are routed rows of one set: then it works
// on [n, rest...] as on any tensor, one product an expert where weights have label e. (dispatch and
// its kin go between dense values and rows.)
bool works_on_rows(const Op& op);

}  // namespace myriad
