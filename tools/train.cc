// myriad train: reads the run file, or that of the checkpoint to resume from, decides on the folder
// and on what the terminal shows, and hands over to `train` of the library. What is left here are
// signals: they arrive on a thread of their own, and the first only sets a flag that the training
// loop reads after each step, so an interrupted run stops between steps. Read `run_train` first.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "base/error.h"
#include "base/signals.h"
#include "calibrate/calibrate.h"
#include "ckpt/checkpoint.h"
#include "report/page.h"
#include "tools/commands.h"
#include "train/trainer.h"

namespace myriad {

namespace {

struct Options {
  std::string run, out, resume;
  std::vector<std::string> overrides, allow;
  bool json = false, quiet = false;
};

void print_end(const RunSummary& s, std::FILE* out) {
  fmt::print(out, "\n  {:.3f} bits per byte of held-out text; gzip -9 {:.3f}, zstd -19 {:.3f}\n",
             s.heldout_bits_per_byte, s.gzip_bits_per_byte, s.zstd_bits_per_byte);
  fmt::print(out, "  {} steps in {}, {} tokens/s, MFU {:.1f} %; evaluation {}\n", grouped(s.steps),
             duration_text(s.step_seconds), grouped(static_cast<int64_t>(s.tokens_per_second)),
             100 * s.mfu, duration_text(s.evaluate_seconds));
  for (const Passage& p : s.passages)
    fmt::print(out, "\n  \"{}\" goes on:\n{}{}\n", p.prompt, p.prompt, p.text);
  fmt::print(out, "\n{}", comparison_table(s.predicted, s.measured));
  fmt::print(out, "  {:<26}{:>18.2f}{:>18.2f}  median\n", "milliseconds",
             1e3 * s.predicted_step_seconds, 1e3 * s.median_step_seconds);
  fmt::print(out, "  {} of {} steps as predicted\n", grouped(s.steps_compared - s.steps_different),
             grouped(s.steps_compared));
}

std::atomic<bool> asked_to_stop{false};

// The first signal asks the run to save a checkpoint and to leave after its step; a second INT or
// TERM leaves at once. HUP never leaves at once: a terminal that closes may send it twice, from the
// kernel and from the shell. Nothing can be written to that terminal any more, and a failed write
// would end the run before it has saved, so further output to it is dropped. Under nohup the
// process ignores HUP, and so does the run.
void stop_on_signals(SignalThread& signals) {
  signals.on({SIGINT, SIGTERM}, [](int signal) {
    if (asked_to_stop.exchange(true)) _exit(128 + signal);
  });
  if (is_ignored(SIGHUP)) return;
  std::vector<int> terminals;
  for (const int output : {STDOUT_FILENO, STDERR_FILENO}) {
    if (isatty(output)) terminals.push_back(output);
  }
  signals.on({SIGHUP}, [terminals](int) {
    asked_to_stop = true;
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (const int output : terminals) dup2(nowhere, output);
  });
}

void print_interrupted(const Options& o, const RunSummary& s) {
  const std::string command = "myriad train --resume " + s.folder;
  if (o.json) {
    print_json(
        {{"interrupted", true}, {"steps", s.steps}, {"folder", s.folder}, {"resume", command}});
  } else {
    fmt::print("saved after step {}; go on with\n  {}\n", s.steps, command);
  }
}

// The run is done and its files are there: a report that cannot be written is a warning, and
// does not make the run fail.
void leave_report(const std::string& folder, const Console& console) {
  try {
    const std::string file = write_report(folder).string();
    if (!console.quiet) fmt::print(console.out, "\n  report   {}\n", file);
  } catch (const std::exception& e) {
    fmt::print(stderr, "warning: no report: {}\n", e.what());
  }
}

int run_train(const Options& o, SignalThread& signals) {
  if (o.run.empty() && o.resume.empty())
    throw Error("a run file is missing", "train", "myriad train RUN.yaml, or --resume FOLDER");
  if (!o.allow.empty() && o.resume.empty())
    throw Error("needs --resume", "--allow", "it names keys that may differ from a checkpoint's");
  const std::filesystem::path from = o.resume.empty() ? "" : find_checkpoint(o.resume);
  const RunConfig config =
      read_run(o.run.empty() ? from / "config.yaml" : std::filesystem::path(o.run), o.overrides);
  const std::string folder = !o.out.empty()     ? o.out
                             : from.empty()     ? "runs/" + config.name
                             : from == o.resume ? run_of(from).string()
                                                : o.resume;
  Console console{.out = o.json ? stderr : stdout, .quiet = o.quiet};
  const char* terminal = std::getenv("TERM");
  console.live =
      !o.quiet && isatty(fileno(console.out)) && !(terminal && std::string(terminal) == "dumb");
  stop_on_signals(signals);
  const RunSummary s =
      train(config, folder,
            {.console = console,
             .machine = [&] { return this_machine(config.train.dtype == DType::f64); },
             .resume = from,
             .allow = o.allow,
             .interrupted = [] { return asked_to_stop.load(); }});
  if (s.interrupted) {
    print_interrupted(o, s);
    return 0;
  }
  leave_report(folder, console);
  if (!o.quiet) print_end(s, console.out);
  if (o.json) {
    print_json(to_json(s));
  } else {
    fmt::print("{}\n", folder);
  }
  return s.ok() ? 0 : 1;
}

}  // namespace

void add_train(CLI::App& app, int& status, SignalThread& signals) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand(
      "train",
      "Trains a model as a run file says, and leaves a folder with metrics, summary and weights");
  c->add_option("RUN", o->run,
                "The run file (docs/configuration.md); with --resume the checkpoint's own")
      ->type_name("RUN.yaml");
  c->add_option("--resume", o->resume,
                "Goes on from the newest checkpoint of a run, or from this checkpoint")
      ->type_name("FOLDER");
  c->add_option("--allow", o->allow,
                "With --resume: a key that may differ from the checkpoint's, all below it too; may "
                "be repeated")
      ->type_name("KEY")
      ->allow_extra_args(false);
  c->add_option("--out", o->out,
                "Folder to leave; by default runs/NAME under the working directory")
      ->type_name("FOLDER");
  add_overrides(*c, o->overrides, "layout.tp=4");
  add_json(*c, o->json);
  c->add_flag("--quiet", o->quiet, "Only warnings, failures and the folder");
  add_examples(*c, {"myriad train examples/bilingual.yaml",
                    "myriad train examples/tiny.yaml -s train.steps=20 --json",
                    "myriad train --resume runs/bilingual -s layout.tp=1",
                    "myriad train examples/bilingual.yaml --out /tmp/try -s layout.dp=1 -s "
                    "layout.zero=0 -s layout.stages=[1,1,1,1]"});
  c->callback([o, &status, &signals] { status = run_train(*o, signals); });
}

}  // namespace myriad
