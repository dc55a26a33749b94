// myriad compare
#include <fmt/format.h>

#include <memory>

#include "data/files.h"
#include "report/page.h"
#include "tools/commands.h"

namespace myriad {

namespace {

struct Options {
  std::string a, b, out;
  bool json = false;
};

nlohmann::json figures_json(const RunFiles& run) {
  nlohmann::json out = nlohmann::json::object();
  for (const FinalFigure& f : final_figures(run)) {
    if (f.value == f.value) out[f.name] = f.value;
  }
  return out;
}

int run_compare(const Options& o) {
  const RunFiles a = read_run_files(o.a), b = read_run_files(o.b);
  if (!o.out.empty()) write_file_aside(o.out, compare_html(a, b));
  if (!o.json) {
    fmt::print("{}", compare_text(a, b));
    if (!o.out.empty()) fmt::print("\n{}\n", o.out);
    return 0;
  }
  nlohmann::json keys = nlohmann::json::object();
  for (const auto* side : {&a, &b}) {
    for (const auto& [key, value] : side->config) {
      const auto of = [&](const RunFiles& r) {
        return r.config.count(key) ? nlohmann::json(r.config.at(key)) : nlohmann::json();
      };
      if (of(a) != of(b)) keys[key] = {of(a), of(b)};
    }
  }
  print_json({{"configuration", keys},
              {"figures", {figures_json(a), figures_json(b)}},
              {"report", o.out}});
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand(
      "compare", "Lays two runs side by side: where their configurations differ, figures, curves");
  c->add_option("RUN", o->a, "A run's folder")->required()->type_name("FOLDER");
  c->add_option("OTHER", o->b, "The other's")->required()->type_name("FOLDER");
  c->add_option("--out", o->out, "Also writes an HTML page with both runs' curves")
      ->type_name("FILE");
  add_json(*c, o->json);
  add_examples(*c, {"myriad compare runs/bilingual runs/one",
                    "myriad compare runs/bilingual runs/one --out compare.html"});
  c->callback([o, &status] { status = run_compare(*o); });
}

}  // namespace myriad
