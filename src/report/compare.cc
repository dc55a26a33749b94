// Two runs side by side, as a page and as text for a terminal. Both forms are made from the same
// two lists: the configuration keys whose values differ, and the final figures that at least one of
// the runs has. final_figures gives every figure for every run, NaN where it is missing, so the
// lists of two runs always match row by row. In the page the curves of both runs share their axes
// (curves_html in page.cc). Read compare_text first.

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "report/chart.h"
#include "report/page.h"
#include "report/timeline_view.h"

namespace myriad {

namespace {

struct Difference {
  std::string key, a, b;
};

std::vector<Difference> differing_keys(const RunFiles& a, const RunFiles& b) {
  std::set<std::string> keys;
  for (const RunFiles* run : {&a, &b}) {
    for (const auto& [key, value] : run->config) keys.insert(key);
  }
  const auto of = [](const RunFiles& run, const std::string& key) {
    const auto at = run.config.find(key);
    return at == run.config.end() ? std::string("-") : at->second;
  };
  std::vector<Difference> out;
  for (const std::string& key : keys) {
    if (of(a, key) != of(b, key)) out.push_back({key, of(a, key), of(b, key)});
  }
  return out;
}

std::vector<Difference> figures_of(const RunFiles& a, const RunFiles& b) {
  const std::vector<FinalFigure> fa = final_figures(a), fb = final_figures(b);
  std::vector<Difference> out;
  for (size_t i = 0; i < fa.size(); ++i) {
    if (std::isfinite(fa[i].value) || std::isfinite(fb[i].value))
      out.push_back({fa[i].name, fa[i].shown, fb[i].shown});
  }
  return out;
}

// Two runs of the same name get the names of their folders.
std::string title_of(const RunFiles& run, const RunFiles& other) {
  if (run.name != other.name) return run.name;
  const auto last = [](const RunFiles& r) {
    const std::filesystem::path path = std::filesystem::path(r.folder + "/").parent_path();
    return path.filename().string();
  };
  return last(run) == last(other) ? run.folder : last(run);
}

std::string table_html(const std::vector<Difference>& rows, const std::string& a,
                       const std::string& b, bool code) {
  std::string out = fmt::format(
      "<section class=\"card\"><table><tr><th></th><th{2}>{0}</th><th{2}>{1}</th></tr>\n",
      escaped(a), escaped(b), code ? "" : " class=\"n\"");
  for (const Difference& d : rows) {
    out += code
               ? fmt::format(
                     "<tr><td><code>{}</code></td><td><code>{}</code></td><td><code>{}</code></"
                     "td></tr>\n",
                     escaped(d.key), escaped(d.a), escaped(d.b))
               : fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
                             escaped(d.key), escaped(d.a), escaped(d.b));
  }
  return out + "</table></section>\n";
}

std::string table_text(const std::vector<Difference>& rows, const std::string& a,
                       const std::string& b) {
  size_t key = 0, left = a.size();
  for (const Difference& d : rows) {
    key = std::max(key, d.key.size());
    left = std::max(left, d.a.size());
  }
  std::string out = fmt::format("  {:<{}}  {:<{}}  {}\n", "", key, a, left, b);
  for (const Difference& d : rows)
    out += fmt::format("  {:<{}}  {:<{}}  {}\n", d.key, key, d.a, left, d.b);
  return out;
}

}  // namespace

std::vector<FinalFigure> final_figures(const RunFiles& run) {
  const nlohmann::json& s = run.summary;
  std::vector<FinalFigure> out;
  const auto add = [&](const char* name, double value, const std::string& shown) {
    out.push_back({name, value, std::isfinite(value) ? shown : "-"});
  };
  const auto plain = [&](const char* name, const char* key, const char* form) {
    const double x = figure(s, key);
    add(name, x, fmt::format(fmt::runtime(form), x));
  };
  plain("held-out bits per byte", "heldout_bits_per_byte", "{:.4f}");
  plain("gzip -9 bits per byte", "gzip_bits_per_byte", "{:.4f}");
  plain("zstd -19 bits per byte", "zstd_bits_per_byte", "{:.4f}");
  plain("training loss", "loss", "{:.4f}");
  plain("steps", "steps", "{:.0f}");
  plain("tokens/s", "tokens_per_second", "{:.0f}");
  const double mfu = figure(s, "mfu"), bubble = figure(s, "measured", "bubble"),
               flops = figure(s, "measured", "flops");
  add("MFU", mfu, fmt::format("{:.1f} %", 100 * mfu));
  add("bubble, replayed", bubble, fmt::format("{:.1f} %", 100 * bubble));
  add("GFLOP a step", flops, fmt::format("{:.3f}", flops / 1e9));
  add("time in steps", figure(s, "step_seconds"), show_time(figure(s, "step_seconds")));
  double peak = std::nan("");
  if (s.is_object() && s.contains("measured") && s["measured"].contains("peak_bytes")) {
    for (const auto& bytes : s["measured"]["peak_bytes"])
      peak = std::fmax(peak, bytes.get<double>());
  }
  add("most memory of a rank, MB", peak, fmt::format("{:.2f}", peak / 1e6));
  return out;
}

std::string compare_text(const RunFiles& a, const RunFiles& b) {
  const std::string ta = title_of(a, b), tb = title_of(b, a);
  const std::vector<Difference> keys = differing_keys(a, b);
  std::string out = keys.empty() ? "the configurations are equal\n"
                                 : "configuration\n" + table_text(keys, ta, tb);
  return out + "\nfigures\n" + table_text(figures_of(a, b), ta, tb);
}

std::string compare_html(const RunFiles& left, const RunFiles& right) {
  RunFiles a = left, b = right;
  a.name = title_of(left, right);
  b.name = title_of(right, left);
  nlohmann::json data = nlohmann::json::object();
  std::string body = fmt::format("<header><h1>{} and {}</h1></header>\n<h2>Curves</h2>\n",
                                 escaped(a.name), escaped(b.name));
  body += curves_html({&a, &b}, data) + "<h2>Figures</h2>\n" +
          table_html(figures_of(a, b), a.name, b.name, false);
  const std::vector<Difference> keys = differing_keys(a, b);
  body += keys.empty() ? "<p class=\"soft\">The configurations are equal.</p>\n"
                       : "<h2>Configuration, where it differs</h2>\n" +
                             table_html(keys, a.name, b.name, true);
  for (const RunFiles* run : {&a, &b}) {
    const std::string timeline = timeline_html(run == &a ? "first" : "second", run->timeline, data);
    if (!timeline.empty())
      body += fmt::format(
          "<h2>A step of {}</h2><section class=\"card\"><p class=\"soft\">{}, bubble {:.1f} "
          "%</p>{}</section>\n",
          escaped(run->name), show_time(figure(run->timeline, "seconds")),
          100 * figure(run->timeline, "bubble"), timeline);
  }
  return page_html(a.name + " and " + b.name + " - Myriad", body, data);
}

}  // namespace myriad
