// The sections of a run's report, in the order of report_html: key figures, curves, timelines,
// plan, predicted against measured, samples, configuration. A run that is still in progress or was
// stopped lacks some of its files, so missing values are normal here: figure() gives NaN and
// text_of() gives "", which are shown as "-" or left out. All texts of a run pass through
// escaped(), because prompts, samples and names may hold any characters. Style, script and the
// embedded data are in page_style.cc, charts in chart.cc, timelines in timeline_view.cc. Read
// report_html first.

#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/files.h"
#include "report/chart.h"
#include "report/timeline_view.h"

namespace myriad {

namespace {

using nlohmann::json;

constexpr const char* kMemoryKinds[] = {"parameters",  "gradients",     "moments",
                                        "activations", "communication", "workspace"};

std::string bytes_shown(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 5) bytes /= 1000, ++unit;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

std::string text_of(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return "";
  return object[key].is_string() ? object[key].get<std::string>() : object[key].dump();
}

json part(const json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object[key] : json();
}

std::string fixed(double x, int digits) {
  return std::isfinite(x) ? fmt::format("{:.{}f}", x, digits) : "-";
}

std::string header_html(const RunFiles& run) {
  std::string out = fmt::format("<header><h1>{}</h1>", escaped(run.name));
  const std::string layout = text_of(part(run.summary, "plan"), "layout");
  if (!layout.empty()) out += fmt::format("<p class=\"soft\">{}</p>", escaped(layout));
  if (run.summary.is_null())
    out += "<p class=\"stopped\">Not finished: there is no summary.json yet.</p>";
  if (const std::string why = text_of(run.summary, "stopped"); !why.empty())
    out += fmt::format("<p class=\"stopped\">Stopped at {}</p>", escaped(why));
  return out + "</header>\n";
}

std::string card(const std::string& value, const std::string& name, const std::string& note) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span><span>{}</span></div>\n",
                     escaped(value), escaped(name), escaped(note));
}

std::string figures_html(const RunFiles& run) {
  const json& s = run.summary;
  const auto last = [&](const char* key) {
    const auto at = run.metrics.find(key);
    return at == run.metrics.end() || at->second.y.empty() ? std::nan("") : at->second.y.back();
  };
  const auto either = [&](const char* key) {
    return std::isfinite(figure(s, key)) ? figure(s, key) : last(key);
  };
  const double mfu = either("mfu"), steps = std::isfinite(figure(s, "steps")) ? figure(s, "steps")
                                            : run.metrics.count("loss")
                                                ? run.metrics.at("loss").x.back()
                                                : std::nan("");
  const double peak = figure(s, "peak_flops_per_s");
  std::string out = "<section class=\"figures\">\n";
  out += card(fixed(either("heldout_bits_per_byte"), 3), "held-out bits per byte",
              std::isfinite(figure(s, "gzip_bits_per_byte"))
                  ? fmt::format("gzip {:.3f}, zstd {:.3f}", figure(s, "gzip_bits_per_byte"),
                                figure(s, "zstd_bits_per_byte"))
                  : "");
  out += card(short_number(std::round(either("tokens_per_second"))), "tokens/s",
              std::isfinite(figure(s, "step_seconds"))
                  ? "steps took " + show_time(figure(s, "step_seconds"))
                  : "");
  out += card(std::isfinite(mfu) ? fmt::format("{:.1f} %", 100 * mfu) : "-", "MFU",
              std::isfinite(peak) ? fmt::format("of {:.1f} GFLOP/s", peak / 1e9) : "");
  out += card(fixed(either("loss"), 3), "training loss, last step",
              std::isfinite(steps) ? short_number(steps) + " steps" : "");
  const double bubble = figure(s, "measured", "bubble"),
               predicted = figure(s, "predicted", "bubble");
  if (std::isfinite(bubble))
    out += card(fmt::format("{:.1f} %", 100 * bubble), "pipeline bubble, replayed",
                std::isfinite(predicted) ? fmt::format("predicted {:.1f} %", 100 * predicted)
                                         : "idle over useful time");
  return out + "</section>\n";
}

std::string fact(const std::string& name, const std::string& value) {
  return value.empty()
             ? ""
             : fmt::format("<div><small>{}</small>{}</div>", escaped(name), escaped(value));
}

std::string memory_html(const json& memory) {
  double most = 0;
  for (const json& rank : memory) {
    double sum = 0;
    for (const char* kind : kMemoryKinds) sum += figure(rank, kind);
    most = std::max(most, sum);
  }
  std::string out =
      "<div class=\"memory\"><p><b>Memory of each rank at its peak</b></p><div class=\"legend\">";
  for (const char* kind : kMemoryKinds)
    out += fmt::format("<span class=\"key\"><i class=\"{0}\"></i>{0}</span>", kind);
  out += "</div>";
  for (size_t r = 0; r < memory.size(); ++r) {
    double sum = 0;
    std::string stack;
    for (const char* kind : kMemoryKinds) {
      const double bytes = figure(memory[r], kind);
      sum += bytes;
      if (bytes > 0)
        stack += fmt::format("<i class=\"{0}\" style=\"width:{1:.2f}%\" title=\"{0}: {2}\"></i>",
                             kind, 100 * bytes / most, bytes_shown(bytes));
    }
    out += fmt::format(
        "<div class=\"row\"><span>rank {}</span><div class=\"stack\">{}</div><b>{}</b></div>", r,
        stack, bytes_shown(sum));
  }
  return out + "</div>";
}

std::string plan_html(const RunFiles& run) {
  const json plan = part(run.summary, "plan");
  const auto key = [&](const char* name) {
    const auto at = run.config.find(name);
    return at == run.config.end() ? "" : at->second;
  };
  std::string out = "<h2>Plan</h2><section class=\"card\"><div class=\"facts\">";
  out += fact("layout", text_of(plan, "layout"));
  if (plan.is_object()) {
    out += fact("ranks",
                fmt::format("{} in {} pipeline stage{}, on {} workers here", text_of(plan, "ranks"),
                            text_of(plan, "stages"), figure(plan, "stages") == 1 ? "" : "s",
                            text_of(plan, "workers")));
    out += fact("parameters", short_number(figure(plan, "parameters")));
    out += fact("tokens",
                fmt::format("{} steps of {}, rows of {}", short_number(figure(plan, "steps")),
                            short_number(figure(plan, "tokens_per_step")),
                            short_number(figure(plan, "sequence_length"))));
  }
  out += fact("model", key("model.model_type").empty()
                           ? key("model")
                           : fmt::format("{}, {} layers, hidden {}, vocabulary {}",
                                         key("model.model_type"), key("model.num_hidden_layers"),
                                         key("model.hidden_size"), key("model.vocab_size")));
  out += fact("learning rate", fmt::format("{}, peak {}, {} warm-up steps", key("train.schedule"),
                                           key("train.learning_rate"), key("train.warmup_steps")));
  out += fact("data", key("data.corpus").empty() ? key("data.sources") : key("data.corpus"));
  out += fact("arithmetic", key("train.dtype") + ", " + key("train.kernels") + " kernels");
  out += "</div>";
  const json memory = part(plan, "memory");
  if (memory.is_array() && !memory.empty() && memory.size() <= 64) out += memory_html(memory);
  return out + "</section>\n";
}

std::string counted(double x) {
  if (!std::isfinite(x)) return "-";
  std::string digits = fmt::format("{:.0f}", x);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

// With `exact` the figures are counts, which must be equal; without it they are times and shares,
// and the row shows how far the prediction is off.
std::string comparison_row(const std::string& name, double predicted, double measured, bool exact) {
  const auto shown = [&](double x) { return exact ? counted(x) : short_number(x); };
  std::string verdict;
  if (std::isfinite(predicted) && std::isfinite(measured)) {
    if (exact) {
      verdict = predicted == measured ? "<span class=\"good\">equal</span>"
                                      : "<span class=\"bad\">differs</span>";
    } else if (measured != 0) {
      verdict = fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
    }
  }
  return fmt::format(
      "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
      escaped(name), shown(predicted), shown(measured), verdict);
}

std::string comparison_html(const RunFiles& run) {
  const json p = part(run.summary, "predicted"), m = part(run.summary, "measured");
  if (!p.is_object() || !m.is_object()) return "";
  std::string rows;
  for (const auto& [key, name] :
       {std::pair{"step_seconds", "step, seconds"}, std::pair{"bubble", "bubble"}}) {
    if (std::isfinite(figure(p, key)) || std::isfinite(figure(m, key)))
      rows += comparison_row(name, figure(p, key), figure(m, key), false);
  }
  rows += comparison_row("FLOPs", figure(p, "flops"), figure(m, "flops"), true);
  std::map<std::string, int> kinds;
  for (const json* side : {&p, &m}) {
    const json collectives = part(*side, "collectives");
    for (const auto& [kind, count] : collectives.items()) kinds[kind];
  }
  for (const auto& [kind, ignored] : kinds) {
    for (const char* what : {"bytes", "messages"})
      rows += comparison_row(kind + " " + what, figure(part(p, "collectives"), kind, what),
                             figure(part(m, "collectives"), kind, what), true);
  }
  const json peaks_p = part(p, "peak_bytes"), peaks_m = part(m, "peak_bytes");
  const size_t ranks = std::min(peaks_p.size(), peaks_m.size());
  for (size_t r = 0, end = 0; r < ranks; r = end) {  // ranks of equal peaks in one row
    for (end = r + 1; end < ranks && peaks_p[end] == peaks_p[r] && peaks_m[end] == peaks_m[r];)
      ++end;
    rows += comparison_row(end == r + 1 ? fmt::format("peak bytes, rank {}", r)
                                        : fmt::format("peak bytes, ranks {} to {}", r, end - 1),
                           peaks_p[r].get<double>(), peaks_m[r].get<double>(), true);
  }
  const double all = figure(run.summary, "steps_compared"),
               different = figure(run.summary, "steps_different");
  return fmt::format(
      "<h2>Predicted and measured</h2><section class=\"card\"><p class=\"soft\">One step, counted "
      "before it ran and while it ran. {} of {} steps were as predicted.</p>"
      "<table><tr><th></th><th class=\"n\">predicted</th><th class=\"n\">measured</th><th "
      "class=\"n\"></th></tr>\n{}</table></section>\n",
      short_number(all - different), short_number(all), rows);
}

std::string timelines_html(const RunFiles& run, json& data) {
  std::string out;
  if (const std::string predicted = timeline_html("predicted", run.predicted_timeline, data);
      !predicted.empty())
    out += "<section class=\"card\"><p><b>Predicted</b></p>" + predicted + "</section>\n";
  if (const std::string measured = timeline_html("replayed", run.timeline, data);
      !measured.empty()) {
    out += fmt::format(
        "<section class=\"card\"><p><b>Measured</b> <small>each rank's own durations, walked as if "
        "it had a device of its own: {} in all, bubble {:.1f} %</small></p>{}</section>\n",
        show_time(figure(run.timeline, "seconds")), 100 * figure(run.timeline, "bubble"), measured);
  }
  return out.empty() ? "" : "<h2>Timeline of a step</h2>\n" + out;
}

// The samples of the last step are in sight; those of earlier steps are folded away.
std::string samples_html(const RunFiles& run) {
  if (run.samples.empty()) return "";
  std::map<double, std::string> by_step;
  for (const json& p : run.samples) {
    by_step[figure(p, "step")] +=
        fmt::format("<blockquote class=\"card\"><b>{}</b>{}</blockquote>\n",
                    escaped(text_of(p, "prompt")), escaped(text_of(p, "text")));
  }
  std::string out = "<h2>Samples</h2>\n", before;
  for (const auto& [step, passages] : by_step) {
    const std::string group =
        fmt::format("<p class=\"soft\">after step {}</p><div class=\"samples\">\n{}</div>\n",
                    counted(step), passages);
    (step == by_step.rbegin()->first ? out : before) += group;
  }
  if (before.empty()) return out;
  return out + fmt::format("<details><summary>During the run</summary>\n{}</details>\n", before);
}

std::string config_html(const RunFiles& run) {
  if (run.config.empty()) return "";
  std::string out = "<details><summary>Configuration</summary><section class=\"card\"><table>\n";
  for (const auto& [key, value] : run.config)
    out += fmt::format("<tr><td><code>{}</code></td><td><code>{}</code></td></tr>\n", escaped(key),
                       escaped(value));
  return out + "</table></section></details>\n";
}

}  // namespace

std::string curves_html(const std::vector<const RunFiles*>& runs, json& data) {
  const auto chart = [&](const char* id, const char* key, const char* title, const char* unit,
                         bool from_zero, bool dots, bool smooth) {
    Chart c{.id = id,
            .title = title,
            .unit = unit,
            .from_zero = from_zero,
            .dots = dots,
            .smooth = smooth};
    for (const RunFiles* run : runs) {
      const auto at = run->metrics.find(key);
      c.curves.push_back({run->name, at == run->metrics.end() ? nullptr : &at->second});
    }
    if (std::string(key) == "heldout_bits_per_byte" && runs.size() == 1) {
      for (const char* name : {"gzip", "zstd"}) {
        const double y = figure(runs[0]->summary, std::string(name) + "_bits_per_byte");
        if (std::isfinite(y)) c.references.push_back({name, y});
      }
    }
    return chart_html(c, data);
  };
  return "<div class=\"charts\">\n" +
         chart("loss", "loss", "Loss", "nats a token, training", false, false, true) +
         chart("heldout", "heldout_bits_per_byte", "Held-out", "bits per byte", false, true,
               false) +
         chart("norm", "norm", "Gradient norm", "before clipping", true, false, true) +
         chart("learning_rate", "learning_rate", "Learning rate", "", true, false, false) +
         chart("tokens_per_second", "tokens_per_second", "Speed", "tokens/s", true, false, true) +
         "</div>\n";
}

std::string report_html(const RunFiles& run) {
  json data = json::object();
  std::string body =
      header_html(run) + figures_html(run) + "<h2>Curves</h2>\n" + curves_html({&run}, data);
  body += timelines_html(run, data) + plan_html(run) + comparison_html(run) + samples_html(run) +
          config_html(run);
  body += fmt::format(
      "<footer>Rebuilt from the folder's files by <code>myriad report {}</code></footer>\n",
      escaped(run.folder));
  return page_html(run.name + " - Myriad", body, data);
}

std::filesystem::path write_report(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "report.html";
  write_file_aside(file, report_html(read_run_files(folder)));
  return file;
}

}  // namespace myriad
