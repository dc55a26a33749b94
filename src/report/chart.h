// Curves as HTML: an SVG that stretches to its frame, with labels as text beside it, and what the
// page's script needs to show values.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/run_files.h"

namespace myriad {

struct ChartCurve {
  std::string name;  // in the legend and beside hovered values
  const Series* series;
};

// A dashed line to compare with.
struct Reference {
  std::string name;
  double y;
};

struct Chart {
  std::string id, title, unit;
  std::vector<ChartCurve> curves;
  std::vector<Reference> references = {};
  bool from_zero = false, dots = false;
  bool smooth =
      false;  // a bold mean of neighbouring steps over the pale figures, where there are many
};

// The chart; adds its points to `data[id]`. A curve of more than 1,200 points is drawn by means of
// equal stretches of steps.
std::string chart_html(const Chart& chart, nlohmann::json& data);

std::string escaped(const std::string& text);  // for HTML, attributes included
std::string short_number(double x);            // "1,234", "0.0123", "1.2e-05"; "-" for NaN
// Round numbers that divide [lo, hi] into about n parts.
std::vector<double> ticks(double lo, double hi, int n);

}  // namespace myriad
