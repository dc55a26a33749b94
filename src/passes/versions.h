// The versions of values in a body under construction: one value may exist in several layouts at
// once, because the moves of one user leave behind what the next can use.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ir/program.h"
#include "passes/move_cost.h"

namespace myriad {

struct Held {
  int version;  // index into LoweredBody::versions
  Layout layout;
};

class Versions {
 public:
  // The references must outlive it.
  Versions(const Mesh& mesh, MoveCosts& costs, std::shared_ptr<Graph> graph);

  // Begins a body without any values; `finish` hands it over.
  void start(LoweredBody body);
  LoweredBody finish() { return std::move(body_); }
  LoweredBody& body() { return body_; }

  bool exists(int value) const { return held_.count(value) > 0; }
  // All versions of a value; the primary one, which later bodies and users see, comes first.
  const std::vector<Held>& of(int value) const { return held_.at(value); }
  // Makes a version of a value that has none. Whoever calls it appends the step that computes it.
  int make(int value, const Layout& layout);
  // The version of a value in this layout. Where there is none yet, appends the moves to it from
  // the version from which it costs least; all they make on the way is held too.
  int get(int value, const Layout& layout);
  // Makes the version in this layout the primary one.
  void prefer(int value, const Layout& layout);
  // The version that later bodies see where they do not say which: the primary one or, of those
  // that take no more memory than it, the one partial over the fewest ranks.
  int carried(int value) const;

  // The number of a value's shape, by which moves are priced.
  int shape(int value);

 private:
  const Held& cheapest_source(int value, const Layout& layout);

  const Mesh& mesh_;
  MoveCosts& costs_;
  std::shared_ptr<Graph> graph_;
  std::vector<int> shapes_;  // by value; -1: not known yet
  std::map<int, std::vector<Held>> held_;
  LoweredBody body_;
};

}  // namespace myriad
