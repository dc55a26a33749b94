// A step's timeline as HTML, drawn from a Chrome trace. A step may have very many spans, so a row
// has one SVG path for each kind of span instead of one element for each span. Spans narrower than
// kThinnest have no entry for the pointer to find, and are drawn only if they are runs or feeds.
// The trace must list a run before the waits and collectives inside it, by which their time is
// taken from the run and counted under their own kind. The page's script names the bar under the
// pointer from the percentages in `data`. Read timeline_html first, then shares_of.

#include "report/timeline_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "report/chart.h"

namespace myriad {

namespace {

using nlohmann::json;

struct Kind {
  const char *name, *text;
};
// In the order in which they are drawn.
constexpr std::array<Kind, 8> kKinds = {{{"feed", "feed"},
                                         {"forward", "forward"},
                                         {"backward", "backward"},
                                         {"optimizer", "optimizer"},
                                         {"exchange", "collective"},
                                         {"send", "send"},
                                         {"recv", "receive"},
                                         {"wait", "wait"}}};
constexpr double kWide = 10000, kHigh = 20, kThinnest = 2;  // of the view box of a row

struct Span {
  double start, length;
  int kind;
  std::string name;
  int unit, micro_batch;
  double end() const { return start + length; }
};

struct Row {
  std::string name;
  std::vector<Span> spans;
};

int kind_named(const std::string& category, const std::string& name) {
  if (category == "run")  // predicted timelines of older runs, which do not say what a run is for
    return name.find("backward") != std::string::npos  ? 2
           : name.find("forward") != std::string::npos ? 1
                                                       : 3;
  for (size_t k = 0; k < kKinds.size(); ++k) {
    if (category == kKinds[k].name) return static_cast<int>(k);
  }
  return 0;
}

std::map<int, Row> rows_of(const json& trace) {
  std::map<int, Row> rows;
  if (!trace.is_object() || !trace.contains("traceEvents")) return rows;
  for (const json& e : trace["traceEvents"]) {
    if (e.value("pid", -1) != 0) continue;
    Row& row = rows[e.value("tid", 0)];
    const std::string name = e.value("name", ""), phase = e.value("ph", "");
    if (phase == "M" && name == "thread_name") row.name = e["args"].value("name", "");
    if (phase != "X") continue;
    const json args = e.value("args", json::object());
    row.spans.push_back({e.value("ts", 0.0) * 1e-6, e.value("dur", 0.0) * 1e-6,
                         kind_named(e.value("cat", ""), name), name, args.value("unit", -1),
                         args.value("micro_batch", -1)});
  }
  std::erase_if(rows, [](const auto& r) { return r.second.spans.empty(); });
  return rows;
}

// Seconds by kind over all rows. What lies inside a run counts as its own kind, not as the run's.
std::array<double, kKinds.size()> shares_of(const std::map<int, Row>& rows, double end) {
  std::array<double, kKinds.size()> seconds{};
  for (const auto& [tid, row] : rows) {
    const Span* run = nullptr;
    double last = 0;
    for (const Span& s : row.spans) {
      seconds[s.kind] += s.length;
      last = std::max(last, s.end());
      if (s.kind >= 1 && s.kind <= 3) {
        run = &s;
      } else if (run && s.start >= run->start && s.end() <= run->end() + 2e-9) {
        seconds[run->kind] -= s.length;
      }
    }
    seconds.back() += end - last;
  }
  return seconds;
}

std::string row_html(const Row& row, double end) {
  std::array<std::string, kKinds.size()> paths;
  for (const Span& s : row.spans) {
    const double wide = kWide * s.length / end;
    if (wide < kThinnest && s.kind > 3) continue;
    const double inset = s.kind == 7 ? 7 : 0;  // waiting is a thin line
    paths[s.kind] += fmt::format("M{:.1f} {}h{:.1f}v{}h-{:.1f}z", kWide * s.start / end, inset,
                                 wide, kHigh - 2 * inset, wide);
  }
  std::string out = fmt::format(
      "<div class=\"row\"><span>{}</span><svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\">",
      escaped(row.name), kWide, kHigh);
  // A wait inside a run hides the run.
  std::string hidden;
  for (const Span& s : row.spans) {
    if (s.kind == 7 && kWide * s.length / end >= kThinnest)
      hidden += fmt::format("M{:.1f} 0h{:.1f}v{}h-{:.1f}z", kWide * s.start / end,
                            kWide * s.length / end, kHigh, kWide * s.length / end);
  }
  for (size_t k = 0; k < kKinds.size(); ++k) {
    if (k == 7 && !hidden.empty()) out += fmt::format("<path class=\"hidden\" d=\"{}\"/>", hidden);
    if (!paths[k].empty())
      out += fmt::format("<path class=\"bar {}\" d=\"{}\"/>", kKinds[k].name, paths[k]);
  }
  return out + "</svg></div>\n";
}

json row_data(const Row& row, double end, std::map<std::string, int>& names) {
  json spans = json::array();
  for (const Span& s : row.spans) {
    if (kWide * s.length / end < kThinnest) continue;
    const int name = names.try_emplace(s.name, static_cast<int>(names.size())).first->second;
    spans.push_back({std::round(1e5 * s.start / end) / 1e3, std::round(1e5 * s.end() / end) / 1e3,
                     name, s.unit, s.micro_batch, show_time(s.length)});
  }
  return spans;
}

}  // namespace

std::string show_time(double s) {
  if (!std::isfinite(s)) return "-";
  if (s >= 60) return fmt::format("{:.0f} min {:.0f} s", std::floor(s / 60), std::fmod(s, 60));
  if (s >= 1) return fmt::format("{:.2f} s", s);
  return s >= 1e-3 ? fmt::format("{:.2f} ms", s * 1e3) : fmt::format("{:.0f} µs", s * 1e6);
}

std::string timeline_html(const std::string& id, const json& trace, json& data) {
  const std::map<int, Row> rows = rows_of(trace);
  double end = 0;
  for (const auto& [tid, row] : rows) {
    for (const Span& s : row.spans) end = std::max(end, s.end());
  }
  if (rows.empty() || end <= 0) return "";
  std::string out = fmt::format("<div class=\"timeline\" id=\"{}\"><div class=\"legend\">", id);
  const auto seconds = shares_of(rows, end);
  for (size_t k = 0; k < kKinds.size(); ++k) {
    if (seconds[k] <= 0) continue;
    const double share = 100 * seconds[k] / (end * static_cast<double>(rows.size()));
    out += fmt::format("<span class=\"key\"><i class=\"bar {}\"></i>{} <small>{}</small></span>",
                       kKinds[k].name, kKinds[k].text,
                       share < 0.1 ? "&lt; 0.1 %" : fmt::format("{:.1f} %", share));
  }
  out += "</div><output>&nbsp;</output><div class=\"scroll\"><div class=\"rows\">\n";
  std::map<std::string, int> names;
  json spans = json::array();
  for (const auto& [tid, row] : rows) {
    out += row_html(row, end);
    spans.push_back(row_data(row, end, names));
  }
  out += "<div class=\"row axis\"><span></span><div>";
  for (double t : ticks(0, end, 6))
    out += fmt::format("<em style=\"left:{:.2f}%\">{}</em>", 100 * t / end,
                       t == 0 ? "0" : show_time(t));
  std::vector<std::string> by_number(names.size());
  for (const auto& [name, number] : names) by_number[number] = name;
  data[id] = {{"rows", spans}, {"names", by_number}};
  return out + "</div></div></div></div></div>\n";
}

}  // namespace myriad
