// `myriad verify layouts --max-ranks 2` without the command line.
#include <fmt/format.h>

#include "verify/layouts.h"

int main() {
  const myriad::LayoutReport report = myriad::verify_layouts({.max_ranks = 2});
  fmt::print("{}", to_text(report));
  return report.ok() ? 0 : 1;
}
