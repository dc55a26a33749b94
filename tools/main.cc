// myriad: exit status 0 done; 1 ran, but a check failed, a run stopped or a file is damaged; 2
// refused before work.
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/signals.h"
#include "tools/commands.h"

namespace myriad {

void add_overrides(CLI::App& command, std::vector<std::string>& overrides, const char* example) {
  command
      .add_option(
          "-s,--set", overrides,
          fmt::format("Overrides a key of the configuration, e.g. -s {}; may be repeated", example))
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json,
                   "One line of JSON on standard output; all else goes to standard error");
}

void print_json(const nlohmann::json& line) {
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
}

void add_examples(CLI::App& command, const std::vector<std::string>& examples) {
  command.footer(fmt::format("\nExamples:\n  {}", fmt::join(examples, "\n  ")));
}

namespace {

int fail(int status, const std::string& message, bool json) {
  fmt::print(stderr, "error: {}\n", message);
  if (json) print_json({{"error", message}, {"status", status}});
  return status;
}

int run(int argc, char** argv, SignalThread& signals) {
  bool json = false;
  for (int i = 1; i < argc; ++i) json |= std::strcmp(argv[i], "--json") == 0;
  int status = 0;
  CLI::App app("Myriad trains large language models, and proves a run before anyone pays for it.",
               "myriad");
  app.set_version_flag("--version", "myriad 0.1.0", "Prints the version and exits");
  app.require_subcommand(1);
  add_train(app, status, signals);
  add_ckpt(app, status);
  add_export(app, status);
  add_generate(app, status);
  add_eval(app, status);
  add_report(app, status);
  add_compare(app, status);
  add_verify(app, status);
  add_show(app, status);
  add_simulate(app, status);
  add_calibrate(app, status);
  add_data(app, status);
  add_examples(app, {"myriad train examples/bilingual.yaml",
                     "myriad train examples/tiny.yaml -s layout.tp=4 -s layout.dp=1",
                     "myriad generate runs/bilingual --prompt \"The kernel\"",
                     "myriad verify golden tests/golden/llama_gqa -s layout.tp=2",
                     "myriad show layout examples/bilingual.yaml", "myriad train --help"});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    if (code != 0 && json) print_json({{"error", e.what()}, {"status", 2}});
    return code == 0 ? 0 : 2;
  } catch (const Damage& e) {
    return fail(1, e.what(), json);
  } catch (const Error& e) {
    return fail(2, e.what(), json);
  } catch (const std::exception& e) {  // Failure, and what the system refuses
    return fail(1, e.what(), json);
  }
  return status;
}

// Shared libraries start threads, too: OpenBLAS does in its constructor, before main. So the
// signals are blocked before any constructor runs, and all threads of the process inherit the mask
// (base/signals.h).
[[gnu::section(".preinit_array"), gnu::used]] void (*g_before_constructors)() = block_signals;

}  // namespace
}  // namespace myriad

int main(int argc, char** argv) {
  myriad::SignalThread signals;
  return myriad::run(argc, argv, signals);
}
