// The outside oracle of gradients: bodies before they are laid out, evaluated on whole tensors by
// reference kernels, so that what `differentiate` made can be compared with central differences of
// what the forward body computes. Double precision, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/pieces.h"
#include "machine/exec_rows.h"
#include "train/job.h"

namespace myriad {

using States = std::map<StateName, std::vector<double>>;  // row-major; scalars
                                                          // hold one number

// The values of one graph. `graph` must outlive it.
class Evaluator {
 public:
  explicit Evaluator(const Graph& graph) : graph_(&graph) {}

  // CHECKs the number of elements.
  void set(int value, const std::vector<double>& x);
  std::vector<double> get(int value) const;
  bool has(int value) const { return values_.count(value) != 0; }
  // The value stays as it is: the op that makes it runs no more. So routing is held while what it
  // chose from moves.
  void hold(int value) { held_.insert(value); }
  // read: a state must be there. accum adds (a new state begins at zero), write replaces.
  void run(const Body& body, States& states);

 private:
  Tensor& make(int value);
  void run_op(const Op& op);
  const BoxRows& rows_of(int sparse);

  struct Whole {
    std::vector<std::byte> memory;
    Tensor tensor;  // of routed rows: [rows, rest...]
  };
  const Graph* graph_;
  std::map<int, Whole> values_;
  RoundRows rows_;
  std::set<int> held_;
};

// Central difference of f by x; x is put back.
double central_difference(const std::function<double()>& f, double& x, double step);

// A model without layout, program or executor: its bodies one after the other over a whole step.
class PlainModel {
 public:
  // In double. A step of `rows` rows is one micro-batch. balance, z: coefficients of the router
  // losses.
  explicit PlainModel(Pieces pieces, double balance = 0, double z = 0);

  struct Use {
    int unit;
    std::string param;
  };
  const std::vector<Use>& uses() const { return uses_; }  // of trained parameters that a unit owns
  std::vector<double>& parameter(int unit, const std::string& param) {
    return states_[unit].at({StateKind::parameter, param});
  }
  // Matrices normal with deviation `scale`, vectors 1 + that: so that no gradient vanishes.
  void initialise(uint64_t seed, double scale);

  double loss(const Batch& batch);  // mean over valid targets, and the router losses
  void hold_routing();              // from the last forward on: every token keeps its experts
  // Runs backward after a forward; by unit and parameter, both uses of a tied one added.
  std::vector<double> gradient(int unit, const std::string& param) const;
  void forward_and_backward(const Batch& batch);

 private:
  const Piece& piece(int unit) const { return pieces_.pieces[pieces_.units[unit]]; }
  void forward(const Batch& batch);
  void feed(Evaluator& e, int unit, const Batch& batch);

  Pieces pieces_;
  double balance_, z_;
  std::vector<Use> uses_;
  std::vector<States> states_;  // by unit
  std::vector<Evaluator> values_;
};

}  // namespace myriad
