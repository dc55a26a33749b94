// myriad calibrate
#include "calibrate/calibrate.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cluster/write.h"
#include "data/files.h"
#include "machine/simulate_report.h"
#include "tools/commands.h"

namespace myriad {

namespace {

struct Options {
  std::string out;
  bool json = false;
};

int run_calibrate(const Options& o) {
  namespace fs = std::filesystem;
  if (o.out.empty() && user_clusters().empty())
    throw Error("there is no home to write to", "calibrate", "--out FILE, or set HOME");
  const fs::path file = o.out.empty() ? fs::path(user_clusters()) / "laptop.yaml" : fs::path(o.out);
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  const auto begin = std::chrono::steady_clock::now();
  const Calibration c = calibrate();
  write_file_aside(file, write_cluster(c.cluster, "this machine, as myriad calibrate measured it"));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Device& d = c.cluster.device;
  if (o.json) {
    print_json({{"file", file.string()},
                {"seconds", seconds},
                {"workers", c.cluster.host.workers},
                {"peak_flops", d.peak_flops},
                {"memory_bandwidth", d.memory_bandwidth},
                {"steps", c.steps},
                {"error", c.error}});
    return 0;
  }
  fmt::print("{} workers; a core: {:.1f} GFLOP/s in fp32 products, {:.1f} GB/s, {} a kernel\n",
             c.cluster.host.workers, d.peak_flops.at("fp32") / 1e9, d.memory_bandwidth / 1e9,
             show_seconds(d.launch_seconds));
  fmt::print("{} steps of small programs, priced with it: {:.0f} % of their time is misplaced\n",
             c.steps, 100 * c.error);
  fmt::print("{}  ({:.1f} s)\n", file.string(), seconds);
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("calibrate",
                                   "Measures this machine and writes it as the cluster `laptop`");
  c->add_option("--out", o->out,
                "Where to write; default: the user's clusters, where `laptop` is looked for first")
      ->type_name("FILE");
  add_json(*c, o->json);
  add_examples(*c, {"myriad calibrate", "myriad calibrate --out laptop.yaml",
                    "myriad simulate examples/bilingual.yaml --cluster laptop"});
  c->callback([o, &status] { status = run_calibrate(*o); });
}

}  // namespace myriad
