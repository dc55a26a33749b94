// myriad show program | body | layout | schedule | passes
#include <memory>

#include "base/yaml.h"
#include "ir/print.h"
#include "passes/after_pass.h"
#include "tools/commands.h"
#include "train/forecast.h"
#include "train/report.h"
#include "train/run_config.h"
#include "train/show_layout.h"
#include "train/show_schedule.h"

namespace myriad {

namespace {

struct Options {
  std::string run, body = "layer.forward";
  std::vector<std::string> overrides;
  bool json = false;
};

std::string body_text(const Program& program, const std::string& wanted) {
  std::vector<std::string> names;
  for (const LoweredBody& b : program.bodies) {  // "layer.forward" is the first of
                                                 // "layer.forward/1", "layer.forward/2" (rows)
    if (b.name == wanted || b.name.starts_with(wanted + "/")) return print_body(b, program.mesh);
    names.push_back(b.name);
  }
  const std::string near = nearest(wanted, names);
  throw Error(fmt::format("no body \"{}\"; there are: {}", wanted, fmt::join(names, ", ")),
              "--body", near.empty() ? "" : fmt::format("did you mean {}?", near));
}

std::string text_of(const std::string& what, const Options& o) {
  const RunConfig c = read_run(o.run, o.overrides);
  std::string head = fmt::format("# {} of {}: {}\n", what, c.name, show(c.plan));
  for (const std::string& w : plan_warnings(c)) head += fmt::format("# warning: {}\n", w);
  if (what == "schedule")
    return head + schedule_text(make_schedule(schedule_named(c.plan.schedule), c.plan.pp,
                                              c.plan.vpp, c.plan.micro_batches),
                                c.plan.vpp);
  if (what == "passes")
    return head + show_passes(emit_of(c.model, step_shape(c)), c.plan, {.rows = c.rows()});
  const Program program = program_of(c);
  if (what == "program") return head + print_program(program);
  if (what == "body") return head + body_text(program, o.body);
  return head + show(list_layouts(program, make_pieces(c.model, step_shape(c)), c.plan));
}

}  // namespace

void add_show(CLI::App& app, int& status) {
  CLI::App* show = app.add_subcommand("show", "Prints what a run file means, without running it");
  show->require_subcommand(1);
  add_examples(*show, {"myriad show schedule examples/bilingual.yaml",
                       "myriad show layout examples/bilingual.yaml -s layout.zero=3",
                       "myriad show body examples/bilingual.yaml --body layer.backward"});
  auto o = std::make_shared<Options>();
  const auto add = [&](const char* what, const char* text, const std::string& example) {
    CLI::App* c = show->add_subcommand(what, text);
    c->add_option("RUN", o->run, "The run file (docs/configuration.md)")
        ->required()
        ->type_name("RUN.yaml");
    add_overrides(*c, o->overrides, "layout.tp=4");
    add_json(*c, o->json);
    add_examples(*c, {example});
    c->callback([o, what, &status] {
      const std::string shown = text_of(what, *o);
      if (o->json) {
        print_json({{what, shown}});
      } else {
        fmt::print("{}", shown);
      }
      status = 0;
    });
    return c;
  };
  add("program", "The whole program: bodies, buffers, states and the actions of each stage",
      "myriad show program examples/tiny.yaml");
  CLI::App* body = add("body", "One body: its ops and the moves between layouts",
                       "myriad show body examples/tiny.yaml --body layer.backward");
  body->add_option("--body", o->body, "Which")->capture_default_str()->type_name("NAME");
  add("layout", "Parameters and values with their layouts and local sizes",
      "myriad show layout examples/tiny.yaml -s layout.zero=3");
  add("passes", "What each pass of lowering makes of the program, checked after each",
      "myriad show passes examples/tiny.yaml");
  add("schedule", "The order of forward and backward passes, a line a stage",
      "myriad show schedule examples/bilingual.yaml -s layout.micro_batches=4");
  add_show_keys(*show);
}

}  // namespace myriad
