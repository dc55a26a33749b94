// A model as pieces: global bodies that know nothing of parallelism. A piece is one kind of unit
// (the embedding, a kind of layer, the head); unit 0 is the embedding, the last the head, between
// them the layers. Units of one kind share their piece.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace myriad {

enum class Init : uint8_t { normal, ones, zeros };

struct Param {
  std::string name;  // in the piece: "q.w"; its states are of that name (ir/state.h)
  std::string labels;
  Sizes sizes;
  std::string published;  // name in checkpoints; "{}" stands for the layer number, "{e}" for the
                          // index along a leading label e
  Init init = Init::normal;
  bool trained = true;  // false: a router's bias that the step moves (state "c:" counts)
  double std = 0;       // of Init::normal
  bool tied = false;    // used here, owned by the embedding: p, m, v are the embedding's, g is this
                        // unit's own
  // Matrices do; a bias of several labels does not.
  bool decays() const { return sizes.size() >= 2 && init == Init::normal; }
};

// Bodies over one graph. forward: inputs "x" (but for the embedding) and what it reads of "ids",
// "targets", "pos", "doc"; output "y" (the next unit's "x"); the head stores its loss sum in state
// "s:loss". backward is made by `differentiate`: "d.y" in, "d.x" out. Optimizer, once a step:
// settle reads gradient sums, outputs "NAME/g" (a tied parameter: "NAME/g0" from the embedding,
// "NAME/g1" from the head, then sum adds them); square adds their squares to state "s:norm"; update
// reads "NAME/g", "factor", "lr", "left1", "left2" and writes p, m, v.
struct Piece {
  std::string name;
  Graph graph;
  Body forward, backward;
  Body settle, settle_other, sum, square, update;  // settle_other, sum: of the tied piece only
  std::vector<Param> params;                       // in order of first use
  // Ops of the forward body stand in parts 0, 1, ... (Op::part), run one after the other. The part
  // loop_part, if there is one, runs once a round (value "rounds"), each time over the next window
  // of routed rows; what it hands on is summed over rounds.
  int loop_part = -1;
  // Further outputs of the forward body that start a backward pass: an auxiliary loss (exact) and
  // the scalar input that is its gradient.
  std::vector<std::pair<std::string, std::string>> seeds;
  int find(std::string_view param) const;  // -1: none
};

struct Pieces {
  std::vector<Piece> pieces;
  std::vector<int> units;  // unit -> piece
  int tied = -1;           // piece of the tied parameter's optimizer bodies, -1: none
  int finish = -1;  // piece whose `update` body turns "s:norm" and "live" into "factor" and "norm",
                    // "s:loss" into "loss"
  int64_t rows = 0, sequence = 0;
  int layers() const { return static_cast<int>(units.size()) - 2; }
};

}  // namespace myriad
