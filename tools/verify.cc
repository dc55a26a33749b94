// myriad verify golden; `verify layouts` stands in verify_layouts.cc.
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "tools/commands.h"
#include "train/run_config.h"
#include "verify/golden.h"

namespace myriad {

namespace {

struct Options {
  std::string folder, dtype = "fp32", kernels = "fast";
  std::vector<std::string> overrides;
  bool json = false;
};

nlohmann::json number(double x) {
  return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json(nullptr);
}

int run_golden(const Options& o) {
  const Plan plan = read_layout(o.overrides);
  if (!std::filesystem::is_directory(o.folder))
    throw Error("no such folder", o.folder,
                "a case of tests/golden, for instance tests/golden/llama_gqa");
  Pool pool(0);
  const GoldenReport r = verify_golden(o.folder, plan, dtype_named(o.dtype), pool,
                                       o.kernels == "reference" ? KernelSet::ref : KernelSet::fast);
  if (o.json) {
    print_json({{"case", r.name},
                {"layout", r.layout},
                {"logits", number(r.logits)},
                {"loss", number(r.loss)},
                {"gradient", number(r.gradient)},
                {"gradient_name", r.gradient_name},
                {"norm", number(r.norm)},
                {"after", number(r.after)},
                {"routing", r.routing},
                {"ok", r.ok}});
  } else {
    fmt::print("{} under {}, {}, {} kernels: {}\n", r.name, r.layout, o.dtype, o.kernels,
               r.ok ? "ok" : "FAILED");
    fmt::print(
        "  errors: logits {:.2g}, loss {:.2g}, gradient {:.2g} ({}), norm {:.2g}, after {:.2g}; {} "
        "counts "
        "of routing differ\n",
        r.logits, r.loss, r.gradient, r.gradient_name, r.norm, r.after, r.routing);
  }
  return r.ok ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, int& status) {
  CLI::App* verify = app.add_subcommand("verify", "Checks what Myriad computes");
  verify->require_subcommand(1);
  add_examples(*verify, {"myriad verify golden tests/golden/llama_gqa -s layout.tp=2",
                         "myriad verify layouts --max-ranks 8"});
  auto o = std::make_shared<Options>();
  CLI::App* c = verify->add_subcommand(
      "golden", "A model under a layout against tensors that other implementations computed");
  c->add_option("FOLDER", o->folder, "A golden case (tests/golden/README.md)")->required();
  add_overrides(*c, o->overrides, "layout.tp=2");
  c->add_option("--dtype", o->dtype, "fp32, fp64 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "fp64", "bf16"}));
  c->add_option("--kernels", o->kernels, "fast or reference")
      ->capture_default_str()
      ->check(CLI::IsMember({"fast", "reference"}));
  add_json(*c, o->json);
  add_examples(*c, {"myriad verify golden tests/golden/llama_gqa",
                    "myriad verify golden tests/golden/qwen3_yarn -s layout.tp=2 -s layout.pp=2 "
                    "--dtype fp64 --json"});
  c->callback([o, &status] { status = run_golden(*o); });
  add_verify_layouts(*verify, status);
  add_verify_predictions(*verify, status);
}

}  // namespace myriad
