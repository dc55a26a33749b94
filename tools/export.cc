// myriad export
#include <memory>
#include <optional>

#include "tools/commands.h"
#include "train/checkpoint.h"

namespace myriad {

namespace {

struct Options {
  std::string from, out, dtype;
  uint64_t shard_bytes = 5'000'000'000;  // as Transformers cuts
  bool json = false;
};

int run_export(const Options& o) {
  Env env;
  const auto dtype = o.dtype.empty() ? std::nullopt : std::optional(dtype_named(o.dtype));
  export_model(env, o.from, o.out, o.shard_bytes, dtype);
  if (o.json) {
    print_json({{"folder", o.out}});
  } else {
    fmt::print("{}\n", o.out);
  }
  return 0;
}

}  // namespace

void add_export(CLI::App& app, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand(
      "export", "Writes a model as a Hugging Face folder: config.json, safetensors, tokenizer");
  c->add_option("FROM", o->from, "A run, a checkpoint, or another such folder")->required();
  c->add_option("--out", o->out, "The folder; must not exist or be empty")
      ->required()
      ->type_name("FOLDER");
  c->add_option("--shard-bytes", o->shard_bytes,
                "Most bytes of tensors in one file (a tensor is never cut)")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  c->add_option("--dtype", o->dtype,
                "Weights in fp32 or bf16; default: as FROM's torch_dtype says, else fp32")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  add_json(*c, o->json);
  add_examples(*c, {"myriad export runs/bilingual --out /tmp/model",
                    "myriad export runs/bilingual/checkpoints/step-00000100 --out /tmp/model "
                    "--shard-bytes 1000000",
                    "myriad export runs/bilingual --out /tmp/model --dtype bf16"});
  c->callback([o, &status] { status = run_export(*o); });
}

}  // namespace myriad
