// myriad ckpt: show, verify
#include <chrono>
#include <memory>

#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "tools/commands.h"
#include "train/report.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Options {
  std::string folder;
  bool json = false;
};

// All checkpoints of a run; of the folder of a checkpoint only itself.
std::vector<fs::path> folders_of(const std::string& given) {
  const fs::path found = find_checkpoint(given);  // refuses what is neither
  if (fs::exists(fs::path(given) / "manifest.json")) return {found};
  std::vector<fs::path> out;
  for (const Checkpoint& c : checkpoints_of(given)) out.push_back(c.folder);
  return out;
}

int run_show(const Options& o) {
  json lines = json::array();
  int status = 0;
  for (const fs::path& folder : folders_of(o.folder)) {
    try {
      const Manifest m = read_manifest(folder);
      json files = json::object();
      for (const CheckpointFile& f : m.files) files[f.name] = f.bytes;
      lines.push_back({{"folder", folder},
                       {"step", m.step},
                       {"data_position", m.data_position},
                       {"bytes", m.bytes()},
                       {"tokenizer_hash", m.tokenizer_hash},
                       {"configuration", m.configuration},
                       {"files", files}});
      if (o.json) continue;
      fmt::print("{}\n  step {}, the rows of step {} come next; {}, tokenizer {}\n",
                 folder.string(), grouped(m.step), grouped(m.data_position),
                 bytes_text(static_cast<double>(m.bytes())), m.tokenizer_hash);
      for (const CheckpointFile& f : m.files)
        fmt::print("  {:<30} {:>12}  xxh3 {}\n", f.name, bytes_text(static_cast<double>(f.bytes)),
                   f.xxh3);
    } catch (const Error& e) {
      lines.push_back({{"folder", folder}, {"error", e.what()}});
      if (!o.json) fmt::print("{}\n", e.what());
      status = 1;
    }
  }
  if (o.json) print_json({{"checkpoints", lines}});
  return status;
}

int run_verify(const Options& o) {
  json lines = json::array();
  int status = 0;
  for (const fs::path& folder : folders_of(o.folder)) {
    const std::vector<std::string> wrong = damage(folder);
    lines.push_back({{"folder", folder}, {"damage", wrong}});
    if (!wrong.empty()) status = 1;
    if (o.json) continue;
    fmt::print("{}: {}\n", folder.string(),
               wrong.empty() ? "every byte is as it was written" : "DAMAGED");
    for (const std::string& line : wrong) fmt::print("  {}\n", line);
  }
  if (o.json) print_json({{"ok", status == 0}, {"checkpoints", lines}});
  return status;
}

}  // namespace

void add_ckpt(CLI::App& app, int& status) {
  CLI::App* c = app.add_subcommand("ckpt", "Lists and checks the checkpoints of a run");
  c->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, int (*run)(const Options&)) {
    auto o = std::make_shared<Options>();
    CLI::App* sub = c->add_subcommand(name, what);
    sub->add_option("FOLDER", o->folder, "A run, or one checkpoint")->required();
    add_json(*sub, o->json);
    add_examples(*sub, {fmt::format("myriad ckpt {} runs/bilingual", name)});
    sub->callback([o, run, &status] { status = run(*o); });
  };
  add("show", "Step, files and sizes of each checkpoint", run_show);
  add("verify", "Reads every byte and names each damaged file; exit status 1 if there is one",
      run_verify);
}

}  // namespace myriad
