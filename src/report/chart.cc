// One chart of a report as a fixed drawing. The SVG stretches with the page, which would distort
// text, so tick labels are HTML beside it, placed by percentages of the same Frame. The page's
// script needs no vertical scale: each point comes with its height in percent and the text to show.
// Long curves are reduced to means of equal stretches of steps before anything is drawn, which
// bounds the size of the page whatever the length of the run; the bold curve is a second, symmetric
// mean whose window shrinks towards both ends, so that it is not shifted there. Read chart_html
// first.

#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace myriad {

namespace {

constexpr double kWide = 1000, kHigh = 300;  // of the view box
constexpr size_t kPoints = 1200;

struct Frame {
  double x0, x1, y0, y1;
  double x(double v) const { return (v - x0) / (x1 - x0); }      // fractions from the left
  double y(double v) const { return 1 - (v - y0) / (y1 - y0); }  // and from the top
};

Series thinned(const Series& s) {
  if (s.x.size() <= kPoints) return s;
  Series out;
  const size_t stretch = (s.x.size() + kPoints - 1) / kPoints;
  for (size_t i = 0; i < s.x.size(); i += stretch) {
    const size_t end = std::min(s.x.size(), i + stretch);
    double x = 0, y = 0;
    for (size_t k = i; k < end; ++k) x += s.x[k], y += s.y[k];
    out.x.push_back(std::round(x / static_cast<double>(end - i)));
    out.y.push_back(y / static_cast<double>(end - i));
  }
  return out;
}

constexpr size_t kFewPoints = 100;

// Means over a window of about a thirtieth of the curve.
Series smoothed(const Series& s) {
  const size_t n = s.x.size(), reach = std::max<size_t>(1, n / 60);
  Series out{s.x, {}};
  for (size_t i = 0; i < n; ++i) {
    const size_t side = std::min({reach, i, n - 1 - i});
    double sum = 0;
    for (size_t k = i - side; k <= i + side; ++k) sum += s.y[k];
    out.y.push_back(sum / static_cast<double>(2 * side + 1));
  }
  return out;
}

Frame frame_of(const Chart& chart, const std::vector<Series>& curves) {
  const double far = std::numeric_limits<double>::infinity();
  Frame f{far, -far, far, -far};
  for (const Series& s : curves) {
    for (size_t i = 0; i < s.x.size(); ++i) {
      f.x0 = std::min(f.x0, s.x[i]);
      f.x1 = std::max(f.x1, s.x[i]);
      f.y0 = std::min(f.y0, s.y[i]);
      f.y1 = std::max(f.y1, s.y[i]);
    }
  }
  for (const Reference& r : chart.references) {
    f.y0 = std::min(f.y0, r.y);
    f.y1 = std::max(f.y1, r.y);
  }
  if (chart.from_zero) f.y0 = std::min(f.y0, 0.0);
  if (f.x1 <= f.x0) f.x0 -= 1, f.x1 += 1;
  const double room = f.y1 > f.y0 ? 0.06 * (f.y1 - f.y0) : std::max(1e-9, 0.1 * std::abs(f.y1));
  if (!chart.from_zero) f.y0 -= room;
  f.y1 += room;
  return f;
}

std::string path_of(const Series& s, const Frame& f) {
  std::string d;
  for (size_t i = 0; i < s.x.size(); ++i)
    d += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", kWide * f.x(s.x[i]),
                     kHigh * f.y(s.y[i]));
  return d;
}

std::string svg_of(const Chart& chart, const std::vector<Series>& curves, const Frame& f) {
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
      kWide, kHigh, escaped(chart.title));
  for (double t : ticks(f.y0, f.y1, 5))
    out += fmt::format("<path class=\"grid\" d=\"M0 {0:.1f}H{1}\"/>", kHigh * f.y(t), kWide);
  for (const Reference& r : chart.references)
    out += fmt::format("<path class=\"reference\" d=\"M0 {:.1f}H{}\"/>", kHigh * f.y(r.y), kWide);
  for (size_t c = 0; c < curves.size(); ++c) {
    const bool smooth = chart.smooth && curves[c].x.size() > kFewPoints;
    if (smooth) out += fmt::format("<path class=\"raw c{}\" d=\"{}\"/>", c, path_of(curves[c], f));
    out += fmt::format("<path class=\"curve c{}\" d=\"{}\"/>", c,
                       path_of(smooth ? smoothed(curves[c]) : curves[c], f));
    if (chart.dots ||
        curves[c].x.size() ==
            1) {  // a stroke of no length with round ends is a dot however the frame stretches
      std::string dots;
      for (size_t i = 0; i < curves[c].x.size(); ++i)
        dots += fmt::format("M{:.1f} {:.1f}h0", kWide * f.x(curves[c].x[i]),
                            kHigh * f.y(curves[c].y[i]));
      out += fmt::format("<path class=\"dots c{}\" d=\"{}\"/>", c, dots);
    }
  }
  return out + "</svg>";
}

std::string labels_of(const Chart& chart, const Frame& f) {
  std::string out;
  for (double t : ticks(f.y0, f.y1, 5))
    out += fmt::format("<span class=\"y\" style=\"top:{:.2f}%\">{}</span>", 100 * f.y(t),
                       short_number(t));
  for (double t : ticks(f.x0, f.x1, 5)) {
    if (t != std::floor(t)) continue;
    out += fmt::format("<span class=\"x\" style=\"left:{:.2f}%\">{}</span>", 100 * f.x(t),
                       short_number(t));
  }
  for (const Reference& r : chart.references)
    out += fmt::format("<span class=\"ref\" style=\"top:{:.2f}%\">{}</span>", 100 * f.y(r.y),
                       escaped(r.name));
  return out;
}

}  // namespace

std::string chart_html(const Chart& chart, nlohmann::json& data) {
  std::vector<Series> curves;
  std::vector<std::string> names;
  std::string legend;
  for (const ChartCurve& c : chart.curves) {
    if (c.series && !c.series->x.empty()) {
      legend += chart.curves.size() < 2
                    ? ""
                    : fmt::format("<span class=\"key\"><i class=\"c{}\"></i>{}</span>",
                                  curves.size(), escaped(c.name));
      curves.push_back(thinned(*c.series));
      names.push_back(chart.curves.size() < 2 ? "" : c.name);
    }
  }
  const std::string head =
      fmt::format("<figcaption><b>{}</b> <small>{}</small>{}<output></output></figcaption>",
                  escaped(chart.title), escaped(chart.unit), legend);
  if (curves.empty())
    return fmt::format(
        "<figure class=\"chart\" id=\"{}\">{}<p class=\"none\">nothing recorded</p></figure>\n",
        chart.id, head);
  const Frame f = frame_of(chart, curves);
  nlohmann::json points = nlohmann::json::array();
  for (size_t c = 0; c < curves.size(); ++c) {
    std::vector<std::string> y;
    for (double v : curves[c].y) y.push_back(short_number(v));
    std::vector<double> top;
    for (double v : curves[c].y) top.push_back(std::round(1e4 * f.y(v)) / 1e2);
    points.push_back({{"x", curves[c].x}, {"y", y}, {"top", top}, {"name", names[c]}});
  }
  data[chart.id] = {{"x0", f.x0}, {"x1", f.x1}, {"curves", points}};
  return fmt::format(
      "<figure class=\"chart\" id=\"{}\">{}<div class=\"plot\">{}{}</div></figure>\n", chart.id,
      head, svg_of(chart, curves, f), labels_of(chart, f));
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

std::string short_number(double x) {
  if (!std::isfinite(x)) return "-";
  const double size = std::abs(x);
  if (size >= 1e7 || (size > 0 && size < 1e-3)) return fmt::format("{:.3g}", x);
  if (size >= 1000) {
    std::string digits = fmt::format("{:.0f}", x);
    for (size_t at = digits.size(); at > (x < 0 ? 4u : 3u);) digits.insert(at -= 3, ",");
    return digits;
  }
  return fmt::format("{:.4g}", x);
}

std::vector<double> ticks(double lo, double hi, int n) {
  const double rough = (hi - lo) / n, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double m : {5.0, 2.0, 1.0}) {
    if (m * power >= 0.75 * rough) step = m * power;
  }
  std::vector<double> out;
  for (double k = std::ceil(lo / step); k * step <= hi; ++k) out.push_back(k == 0 ? 0 : k * step);
  return out;
}

}  // namespace myriad
