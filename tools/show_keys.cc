// myriad show keys: the tables of docs/configuration.md.
#include "tools/commands.h"
#include "train/run_keys.h"

namespace myriad {

void add_show_keys(CLI::App& show) {
  CLI::App* c = show.add_subcommand(
      "keys", "The keys of a run file: types, defaults and rules, as tables in Markdown");
  add_examples(*c, {"myriad show keys"});
  c->callback([] {
    for (const std::string& section : run_sections()) {
      fmt::print("{}{}\n\n{}", section.empty() ? "" : "\n", section.empty() ? "top" : section,
                 table_of_keys(section));
    }
  });
}

}  // namespace myriad
