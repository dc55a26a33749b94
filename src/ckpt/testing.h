// A disk that refuses, or kills the process, at its n-th change.
#pragma once

#include <signal.h>
#include <unistd.h>

#include "base/env.h"

namespace myriad {

class FaultyEnv : public Env {
 public:
  enum class Fault : uint8_t { none, refuse, kill };
  explicit FaultyEnv(Fault fault = Fault::none, int at = 0) : fault_(fault), at_(at) {}

  Outcome before(DiskCall, const std::filesystem::path&) override {
    if (++calls_ != at_) return {};
    if (fault_ == Fault::kill) ::kill(::getpid(), SIGKILL);
    return fault_ == Fault::refuse ? Outcome{"No space left on device"} : Outcome{};
  }
  int calls() const { return calls_; }

 private:
  const Fault fault_;
  const int at_;  // from 1
  int calls_ = 0;
};

}  // namespace myriad
