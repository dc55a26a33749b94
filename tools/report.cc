// myriad report
#include <fmt/format.h>

#include <memory>

#include "report/page.h"
#include "tools/commands.h"

namespace myriad {

void add_report(CLI::App& app, int& status) {
  struct Options {
    std::string run;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand(
      "report", "Rebuilds report.html from the files of a run's folder (docs/report.md)");
  c->add_option("RUN", o->run, "The run's folder")->required()->type_name("FOLDER");
  add_json(*c, o->json);
  add_examples(*c, {"myriad report runs/bilingual"});
  c->callback([o, &status] {
    const std::string file = write_report(o->run).string();
    if (o->json) {
      print_json({{"report", file}});
    } else {
      fmt::print("{}\n", file);
    }
    status = 0;
  });
}

}  // namespace myriad
