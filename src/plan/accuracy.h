// How well measurements are predicted: rows priced on a cluster, and constants of it fitted to
// them.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "plan/measured.h"
#include "plan/system.h"

namespace myriad {

struct Priced {
  double seconds = 0, error = 0;  // error: (predicted - measured) / measured
  int64_t peak_bytes = 0;         // of the worst rank; 0 if not asked for
  double memory_error = 0;
  std::string skipped;  // why there is no price; empty: there is one
};

struct Accuracy {
  int64_t rows = 0, modelled = 0;
  double mean = 0, median = 0, p90 = 0, bias = 0;  // of errors of time; bias keeps the sign
  double memory_mean = 0, memory_max = 0;
  double kendall_tau = 0;  // mean over groups that have two rows or more
};

// Prices rows again and again with changed constants; programs are lowered once.
class Bench {
 public:
  struct Options {
    int ranks = 2;       // of all-reduce tables
    bool memory = true;  // where it was measured
  };
  Bench(std::vector<Measured> rows, std::vector<System> systems, Options options)
      : rows_(std::move(rows)), systems_(std::move(systems)), options_(options) {}

  const std::vector<Measured>& rows() const { return rows_; }
  void forget(size_t row) { programs_.erase(row); }  // its program
  Priced price(size_t row, const Cluster& cluster);
  // Throws nothing: what does not fit is skipped with its reason.
  std::vector<Priced> price(std::span<const size_t> rows, const Cluster& cluster);

 private:
  std::vector<Measured> rows_;
  std::vector<System> systems_;
  Options options_;
  std::map<size_t, std::shared_ptr<Program>> programs_;
};

Accuracy accuracy(const std::vector<Measured>& rows, std::span<const size_t> at,
                  std::span<const Priced> priced);

// Names of constants that can be fitted; each scales one number or the points of one curve.
std::vector<std::string> fit_keys();
// Coordinate descent on the mean error of these rows; returns the factor of each key, and `cluster`
// is changed.
std::map<std::string, double> fit(Bench& bench, std::span<const size_t> rows,
                                  const std::vector<std::string>& keys, Cluster& cluster);

}  // namespace myriad
