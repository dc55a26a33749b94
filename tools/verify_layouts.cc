// myriad verify layouts.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "tools/commands.h"
#include "verify/layouts.h"

namespace myriad {

namespace {

int run_layouts(LayoutSweep o, bool json) {
  o.progress = [](int done, int of, double worst) {
    if (done % 100 == 0 || done == of)
      fmt::print(stderr, "{} of {} layouts, worst error {:.2g}\n", done, of, worst);
  };
  const LayoutReport report = verify_layouts(o);
  if (json) {
    print_json(nlohmann::json::parse(to_json(report)));
  } else {
    fmt::print("{}", to_text(report));
  }
  return report.ok() ? 0 : 1;
}

}  // namespace

void add_verify_layouts(CLI::App& verify, int& status) {
  struct Options {
    LayoutSweep sweep;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* c = verify.add_subcommand(
      "layouts",
      "Every layout of tiny models of odd sizes against one rank, in fp64 with reference kernels");
  c->add_option("--max-ranks", o->sweep.max_ranks, "Layouts of at most so many ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  c->add_flag("--all", o->sweep.all,
              "The variants (tied, packed, masked, ...) in full too, not in pairwise designs");
  c->add_option("--seed", o->sweep.seed, "Of the pairwise designs")->capture_default_str();
  c->add_option("--variant", o->sweep.variants, "Only these variants")
      ->check(CLI::IsMember(variant_names()));
  c->add_option("--workers", o->sweep.workers, "Layouts tried at once; 0: as many as cores")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  add_json(*c, o->json);
  add_examples(*c, {"myriad verify layouts --max-ranks 8",
                    "myriad verify layouts --max-ranks 4 --all --json",
                    "myriad verify layouts --variant masked --variant tied"});
  c->callback([o, &status] { status = run_layouts(o->sweep, o->json); });
}

}  // namespace myriad
