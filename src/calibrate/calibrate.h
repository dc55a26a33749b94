// This machine as a cluster: one core as the device, the workers that virtual ranks share, and
// memory as the network. docs/calibrate.md says what is measured and what each constant means.
#pragma once

#include <filesystem>
#include <string>

#include "cluster/cluster.h"

namespace myriad {

struct CalibrateOptions {
  double seconds = 20;  // about, with the fit; the least is a few steps of each program
  int workers = 0;      // 0: as many as cores
  bool fp64 = true;     // besides fp32
};

struct Calibration {
  Cluster cluster;
  double error = 0;  // mean over programs: sum of the errors of all steps over their time
  int steps = 0;     // priced against their time
};

Calibration calibrate(const CalibrateOptions& options = {});

// The user's laptop.yaml if `myriad calibrate` has written one; else a calibration of a second or
// two.
Cluster this_machine(bool fp64);

}  // namespace myriad
