// Any layout computes the same thing: every layout of tiny models of odd sizes against one rank, in
// fp64 (and a few in bf16) with reference kernels, and bit for bit against those layouts that must
// not change bits. docs/verification.md tells what is covered.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace myriad {

struct LayoutSweep {
  int max_ranks = 8;
  bool all = false;                   // the variants in full too, not in pairwise designs
  uint64_t seed = 1;                  // of the pairwise designs
  int workers = 0;                    // layouts tried at once; 0: as many as cores
  std::vector<std::string> variants;  // empty: all
  std::function<void(int done, int of, double worst)> progress;  // called by one worker at a time
};

constexpr double kLayoutBound = 1e-10;
// Of variants in bf16 both a layout and one rank are compared with one rank in fp64. The error is
// the layout's over one rank's, tensor by tensor (one rank's taken as 2^-5 at least, gradients
// below a hundredth of the model's largest measured against that): roundings differ, their size may
// not. Routers choose otherwise in near ties, so of expert models only loss and norm are judged.
constexpr double kBf16LayoutBound = 10, kBf16LeastError = 0x1p-5, kBf16GradientFloor = 1e-2;

struct LayoutFault {
  std::string layout;  // "tied: dp 2 x tp 2 x pp 2, ..."
  std::string tensor;  // the worst of this layout, or what else went wrong, in a sentence
  double error;        // 1 where there is no number
};

struct LayoutWorst {
  std::string layout, tensor;
  double error = 0;
  bool narrow = false;  // of a variant in bf16
};

struct LayoutReport {
  int layouts = 0;
  std::vector<LayoutFault> failed;
  std::vector<std::string> bits_failed;  // "LAYOUT: TENSOR differs from LAYOUT"
  std::vector<LayoutWorst> worst;        // a line a variant: the worst tensor of its worst layout
  std::vector<int> counts;               // layouts of each variant, in the order of `worst`
  double seconds = 0;
  double worst_error(bool narrow = false) const;  // of variants in fp64, or in bf16
  bool ok() const { return failed.empty() && bits_failed.empty(); }
};

// Names for LayoutSweep::variants.
std::vector<std::string> variant_names();

LayoutReport verify_layouts(const LayoutSweep& options);

// {"layouts": N, "failed": [{"layout":, "tensor":, "error":}], "worst":, "worst_bf16":,
// "bits_failed": [...], "seconds":} in one line.
std::string to_json(const LayoutReport& report);
// A table of the worst, then what failed.
std::string to_text(const LayoutReport& report);

}  // namespace myriad
