// myriad generate
#include "train/generate.h"

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "tools/commands.h"
#include "train/model_folder.h"
#include "train/run_config.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder, prompt;
  SamplingConfig sampling;
  int64_t sequence = 0;
  bool json = false;
};

// Of the run that made the folder; else what the model was made for, within reason.
int64_t sequence_of(const fs::path& folder, const ModelConfig& model) {
  if (const fs::path path = folder / "config.yaml"; fs::exists(path)) {
    try {
      return YAML::LoadFile(path)["train"]["sequence_length"].as<int64_t>();
    } catch (const YAML::Exception& e) {
      throw Failure(fmt::format("{}: no train.sequence_length: {}", path.string(), e.what()));
    }
  }
  return std::min<int64_t>(model.positions > 0 ? model.positions : 256, 1024);
}

int run_generate(const Options& o) {
  const fs::path folder = o.folder;
  if (!fs::is_directory(folder))
    throw Error("no such folder", folder, "the folder that `myriad train` printed last");
  const ModelConfig model = read_model_config(folder / "config.json");
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
  const std::vector<SafeTensors> weights = open_weights(folder);
  const int64_t sequence = o.sequence > 0 ? o.sequence : sequence_of(folder, model);
  Pool pool(0);
  Job job(JobConfig{.model = model,
                    .plan = resolve(Plan{}, static_cast<int>(model.layers), 1),
                    .rows = 1,
                    .sequence = sequence},
          pool, Job::Options{.generation_rows = 1});
  job.load(weights);
  const std::string text = whole_utf8(generate(job, *tokenizer, o.prompt, o.sampling));
  if (o.json) {
    print_json({{"prompt", o.prompt},
                {"text", text},
                {"seed", o.sampling.seed},
                {"temperature", o.sampling.temperature}});
  } else {
    fmt::print("{}{}\n", o.prompt, text);
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("generate", "Continues a text with a trained model");
  c->add_option("FOLDER", o->folder, "Folder of a run: config.json, model.safetensors, a tokenizer")
      ->required();
  c->add_option("--prompt", o->prompt, "The text to continue")->required()->type_name("TEXT");
  c->add_option("--max-tokens", o->sampling.max_tokens, "At most so many tokens")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  c->add_option("--temperature", o->sampling.temperature, "0: always the likeliest token")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  c->add_option("--seed", o->sampling.seed, "Equal seeds give equal texts")->capture_default_str();
  c->add_option("--sequence", o->sequence, "Tokens the model sees; by default as in training")
      ->check(CLI::Range(1, 1 << 24));
  add_json(*c, o->json);
  add_examples(
      *c,
      {"myriad generate runs/bilingual --prompt \"The kernel\"",
       "myriad generate runs/bilingual --prompt 安装 --max-tokens 100 --temperature 0.7 --seed 3"});
  c->callback([o, &status] { status = run_generate(*o); });
}

}  // namespace myriad
