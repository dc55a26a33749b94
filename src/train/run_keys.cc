// The table of the keys of a run file, and what walks it.
//
// A key is data: its name, the words that document it, and two small functions that read and write
// one field of RunConfig. Most of those functions are made by the templates of train/run_fields.h
// from the path to the field (pointers to members) and the legal range, so that a new key is one
// entry. A section is a key of the root whose value is written by its own keys. Start with kTrain;
// what depends on another key is a function of its own that stands above its table.
#include "train/run_keys.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/mixture.h"
#include "model/config.h"
#include "train/run_fields.h"

namespace myriad {

namespace {

using namespace run_fields;

constexpr int64_t kMost = int64_t{1} << 40;

const Names kPackings = {"cut", "whole"};
const Names kSchedules = {"constant", "cosine", "linear", "wsd"};
const Names kDtypes = {"fp32", "fp64", "bf16"};
const Names kKernels = {"fast", "reference"};

// The root.

void read_name(const YamlMap& root, const std::string& key, RunConfig& c) {
  root.text(key, c.name);
  const auto legal = [](unsigned char x) {
    return std::isalnum(x) || x == '.' || x == '_' || x == '-';
  };
  if (c.name.empty() || c.name[0] == '.' || !std::all_of(c.name.begin(), c.name.end(), legal)) {
    root.refuse(key, "the name of a folder: letters, digits, . _ -, and no dot in front");
  }
}

std::string write_model(const RunConfig& c) {
  if (!c.weights.empty()) return quoted_text(c.weights);
  std::string out;
  const nlohmann::json sizes = write_config(c.model);
  for (const auto& [key, value] : sizes.items()) {
    if (!value.is_null()) out += fmt::format("\n  {}: {}", key, value.dump());
  }
  return out;
}

std::string lines_of(std::string_view section, const RunConfig& c) {
  std::string lines = "\n" + write_keys(section, c);
  lines.pop_back();  // the end of the line, which whoever writes the section's key adds
  return lines;
}
std::string write_data(const RunConfig& c) { return lines_of("data", c); }
std::string write_train(const RunConfig& c) { return lines_of("train", c); }
std::string write_layout(const RunConfig& c) { return lines_of("layout", c); }
std::string write_generate(const RunConfig& c) { return lines_of("generate", c); }

// Sections and the model are read by read_run, which knows what must be known first.
const RunKey kRoot[] = {
    {"name", "text", "the file's name without `.yaml`",
     "names the folder `runs/NAME`: letters, digits, `.` `_` `-`, no dot in front", read_name,
     quoted<&RunConfig::name>},
    {"model", "text or map", "required", "see below", nullptr, write_model},
    {"data", "map", "empty", "see below", nullptr, write_data},
    {"train", "map", "empty", "see below", nullptr, write_train},
    {"layout", "map", "empty", "see below", nullptr, write_layout},
    {"cluster", "text", "this machine",
     "a cluster file or its name: what `myriad simulate` prices the run on, unless `--cluster` "
     "says otherwise",
     text<&RunConfig::cluster>, quoted_if_any<&RunConfig::cluster>},
    {"generate", "map", "empty", "see below", nullptr, write_generate},
};

// data

void read_sources(const YamlMap& data, const std::string& key, RunConfig& c) {
  std::vector<DataSource>& to = c.data.sources;
  if (data.has("corpus") && data.has(key))
    data.refuse("corpus", "left out where data.sources is given");
  if (data.has("corpus")) {
    to.emplace_back();
    data.text("corpus", to[0].path);
    to[0].name = name_of_source(to[0].path);
    return;
  }
  std::vector<double> weights;
  for (const YamlMap& s : data.children(key, {"path", "corpus", "name", "weight"})) {
    DataSource source;
    if (s.has("path") == s.has("corpus"))
      s.refuse("path",
               "the file or folder of the source, and corpus, another word for it, left out");
    s.text("path", source.path);
    s.text("corpus", source.path);
    source.name = name_of_source(source.path);
    s.text("name", source.name);
    for (const DataSource& other : to) {
      if (other.name == source.name)
        s.refuse("name",
                 fmt::format("another than that of {}, which is {}", other.path, other.name));
    }
    s.positive("weight", source.weight);
    weights.push_back(source.weight);
    to.push_back(std::move(source));
  }
  if (data.has(key) && to.empty()) data.refuse(key, "a list of at least one source");
  if (!to.empty()) whole_weights(weights, data.place(key));
}

// One source under its own name is written as `corpus`.
bool is_corpus(const DataConfig& d) {
  return d.sources.size() == 1 && d.sources[0].name == name_of_source(d.sources[0].path);
}
std::string write_corpus(const RunConfig& c) {
  return is_corpus(c.data) ? quoted_text(c.data.sources[0].path) : "";
}
std::string write_sources(const RunConfig& c) {
  if (c.data.sources.empty() || is_corpus(c.data)) return "";
  std::string out;
  for (const DataSource& s : c.data.sources) {
    out += fmt::format("{}{{path: {}, name: {}, weight: {}}}", out.empty() ? "" : ",\n    ",
                       quoted_text(s.path), quoted_text(s.name), s.weight);
  }
  return fmt::format("[\n    {}]", out);
}

void read_tokenizer(const YamlMap& data, const std::string& key, RunConfig& c) {
  data.text(key, c.data.tokenizer);
  if (!c.data.tokenizer.empty() && !path_exists(c.data.tokenizer))
    data.refuse(key, "a file or folder that exists", "paths are relative to the working directory");
  if (!c.data.tokenizer.empty()) c.data.vocabulary = 0;  // the tokenizer says it
}

std::string write_vocabulary(const RunConfig& c) {
  return c.data.vocabulary >= 257 ? fmt::format("{}", c.data.vocabulary) : "";
}

const RunKey kData[] = {
    {"corpus", "text", "none",
     "a source of text, needed to train: a `.jsonl` or `.txt` file, `.gz` or `.zst` of one, or a "
     "folder of them ([data.md](data.md))",
     nullptr, write_corpus},
    {"sources", "list of maps", "none",
     "several, instead of `corpus`. Each: `path` (as `corpus`, which is another word for it here), "
     "`weight` (above 0, default 1: share of rows), `name` (default: the file's; distinct)",
     read_sources, write_sources},
    {"tokenizer", "text", "none",
     "a `tokenizer.json`, a SentencePiece `.model`, or a folder with one; else one is trained",
     read_tokenizer, quoted_if_any<&RunConfig::data, &DataConfig::tokenizer>},
    {"vocabulary", "integer", "`model.vocab_size`, else the tokenizer's size, else 4096",
     "257 or more; equals `model.vocab_size`. On little text the tokenizer comes out smaller: the "
     "model keeps its size, with a warning",
     integer<257, INT32_MAX, &RunConfig::data, &DataConfig::vocabulary>, write_vocabulary},
    {"packing", "name", "",
     "`cut`: rows are cut from one stream; `whole`: a document that fits into a row is not cut",
     choice<kPackings, &RunConfig::data, &DataConfig::packing>,
     named<kPackings, &RunConfig::data, &DataConfig::packing>},
    {"held_out_permille", "integer", "", "1 to 999: documents held out, by the hash of their text",
     integer<1, 999, &RunConfig::data, &DataConfig::held_out_permille>,
     plain<&RunConfig::data, &DataConfig::held_out_permille>},
    {"held_out_tokens", "integer", "",
     "0 or more: at most N tokens are evaluated, whole documents in the order of their hashes; 0: "
     "all",
     integer<0, kMost, &RunConfig::data, &DataConfig::held_out_tokens>,
     plain<&RunConfig::data, &DataConfig::held_out_tokens>},
    {"cache", "text", "`runs/cache`", "folder for tokenizers and packed files, by content hash",
     text<&RunConfig::data, &DataConfig::cache>, quoted<&RunConfig::data, &DataConfig::cache>},
};

// train

void read_tokens_per_step(const YamlMap& s, const std::string& key, RunConfig& c) {
  TrainConfig& t = c.train;
  if (!s.has(key))
    t.tokens_per_step =
        std::max<int64_t>(1, t.tokens_per_step / t.sequence_length) * t.sequence_length;
  s.integer(key, 1, kMost, t.tokens_per_step);
  if (const int64_t n = t.sequence_length, over = t.tokens_per_step % n; over != 0) {
    const int64_t below = t.tokens_per_step - over;
    s.refuse(key, fmt::format("a multiple of train.sequence_length ({})", n),
             below > 0 ? fmt::format("nearest: {} and {}", below, below + n)
                       : fmt::format("nearest: {}", n));
  }
}

void read_steps(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.integer(key, 1, kMost, c.train.steps);
  if (const int64_t most = (int64_t{1} << 60) / c.train.tokens_per_step; c.train.steps > most)
    s.refuse(key, "so few that a run has at most 2^60 tokens", fmt::format("nearest: {}", most));
}

void read_min_learning_rate(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.number(key, 0, run_fields::kInfinite, c.train.min_learning_rate);
  if (c.train.min_learning_rate > c.train.learning_rate) {
    s.refuse(key, fmt::format("at most train.learning_rate ({})", c.train.learning_rate),
             fmt::format("nearest: {}", c.train.learning_rate));
  }
}

void read_decay_steps(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.integer(key, 0, kMost, c.train.decay_steps);
  if (c.train.decay_steps > 0 && c.train.schedule != LrSchedule::wsd)
    s.refuse(key, "0 unless train.schedule is wsd: other schedules decay over all steps");
}

void read_optimizer(const YamlMap& s, const std::string& key, RunConfig& c) {
  read_keys(s.child(key, names_of_keys("train.optimizer")), "train.optimizer", c);
}

std::string write_optimizer(const RunConfig& c) {
  std::string out;
  for (const RunKey& k : run_keys("train.optimizer"))
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", k.name, k.write(c));
  return "{" + out + "}";
}

void read_dtype(const YamlMap& s, const std::string& key, RunConfig& c) {
  if (const int i = s.choice(key, kDtypes); i >= 0)
    c.train.dtype = dtype_named(kDtypes[static_cast<size_t>(i)]);
}
std::string write_dtype(const RunConfig& c) { return text_of(c.train.dtype); }

void read_seed(const YamlMap& s, const std::string& key, RunConfig& c) {
  s.integer(key, c.train.seed);
}

const RunKey kTrain[] = {
    {"sequence_length", "integer", "", "1 to 2^24 tokens a row",
     integer<1, 1 << 24, &RunConfig::train, &TrainConfig::sequence_length>,
     plain<&RunConfig::train, &TrainConfig::sequence_length>},
    {"tokens_per_step", "integer", "1024, down to a multiple of `sequence_length`",
     "a multiple of `sequence_length`; a step has B = tokens_per_step / sequence_length rows",
     read_tokens_per_step, plain<&RunConfig::train, &TrainConfig::tokens_per_step>},
    {"steps", "integer", "", "1 or more; all its tokens at most 2^60", read_steps,
     plain<&RunConfig::train, &TrainConfig::steps>},
    {"learning_rate", "number", "", "above 0: the peak",
     positive<&RunConfig::train, &TrainConfig::learning_rate>,
     plain<&RunConfig::train, &TrainConfig::learning_rate>},
    {"min_learning_rate", "number", "",
     "0 to `learning_rate`: where the decay ends, at the last step", read_min_learning_rate,
     plain<&RunConfig::train, &TrainConfig::min_learning_rate>},
    {"schedule", "name", "", "`constant`, `cosine`, `linear`, `wsd` (constant, then linear decay)",
     choice<kSchedules, &RunConfig::train, &TrainConfig::schedule>,
     named<kSchedules, &RunConfig::train, &TrainConfig::schedule>},
    {"warmup_steps", "integer", "",
     "0 or more: step i of them, from 1, has i / warmup_steps of the peak",
     integer<0, kMost, &RunConfig::train, &TrainConfig::warmup_steps>,
     plain<&RunConfig::train, &TrainConfig::warmup_steps>},
    {"decay_steps", "integer", "", "with `wsd` only: the last N steps decay", read_decay_steps,
     plain<&RunConfig::train, &TrainConfig::decay_steps>},
    {"optimizer", "map", "empty", "AdamW with decoupled decay, see below", read_optimizer,
     write_optimizer},
    {"dtype", "name", "",
     "`fp32`, `fp64`, `bf16`: of activations and products; states of a bf16 run are fp32 "
     "([precision.md](precision.md))",
     read_dtype, write_dtype},
    {"seed", "integer", "",
     "0 or more: of initial weights, of the order of rows, of generated passages", read_seed,
     plain<&RunConfig::train, &TrainConfig::seed>},
    {"evaluate_every", "integer", "", "0 or more steps; 0: only at the end",
     integer<0, kMost, &RunConfig::train, &TrainConfig::evaluate_every>,
     plain<&RunConfig::train, &TrainConfig::evaluate_every>},
    {"save_every", "integer", "",
     "0 or more: a checkpoint every N steps and at the end ([checkpoints.md](checkpoints.md)); 0: "
     "none",
     integer<0, kMost, &RunConfig::train, &TrainConfig::save_every>,
     plain<&RunConfig::train, &TrainConfig::save_every>},
    {"keep", "integer", "", "0 or more: newest checkpoints that stay; 0: all",
     integer<0, 1 << 20, &RunConfig::train, &TrainConfig::keep>,
     plain<&RunConfig::train, &TrainConfig::keep>},
    {"workers", "integer", "", "0 to 4096 threads; 0: as many as cores. Never changes a result",
     integer<0, 4096, &RunConfig::train, &TrainConfig::workers>,
     plain<&RunConfig::train, &TrainConfig::workers>},
    {"kernels", "name", "", "`fast`, `reference` (plain loops)",
     choice<kKernels, &RunConfig::train, &TrainConfig::kernels>,
     named<kKernels, &RunConfig::train, &TrainConfig::kernels>},
};

template <auto Beta>
void read_beta(const YamlMap& s, const std::string& key, RunConfig& c) {
  double& beta = c.train.optimizer.*Beta;
  s.number(key, 0, 1, beta);
  if (beta >= 1) s.refuse(key, "a number of 0 or more and below 1");
}

constexpr auto kOfTrain = &RunConfig::train;
constexpr auto kOfOptimizer = &TrainConfig::optimizer;

const RunKey kOptimizer[] = {
    {"beta1", "number", "", "0 or more, below 1: decay of exp_avg",
     read_beta<&OptimizerConfig::beta1>, plain<kOfTrain, kOfOptimizer, &OptimizerConfig::beta1>},
    {"beta2", "number", "", "0 or more, below 1: decay of exp_avg_sq",
     read_beta<&OptimizerConfig::beta2>, plain<kOfTrain, kOfOptimizer, &OptimizerConfig::beta2>},
    {"eps", "number", "", "above 0", positive<kOfTrain, kOfOptimizer, &OptimizerConfig::eps>,
     plain<kOfTrain, kOfOptimizer, &OptimizerConfig::eps>},
    {"weight_decay", "number", "",
     "0 or more; on parameters of two or more dims, embeddings included",
     not_negative<kOfTrain, kOfOptimizer, &OptimizerConfig::weight_decay>,
     plain<kOfTrain, kOfOptimizer, &OptimizerConfig::weight_decay>},
    {"clip_norm", "number", "",
     "0 or more: the global norm of the gradient is clipped to it; 0: no clipping",
     not_negative<kOfTrain, kOfOptimizer, &OptimizerConfig::clip_norm>,
     plain<kOfTrain, kOfOptimizer, &OptimizerConfig::clip_norm>},
};

// generate

void read_prompts(const YamlMap& s, const std::string& key, RunConfig& c) {
  if (s.has(key)) c.prompts = s.texts(key);
}
std::string write_prompts(const RunConfig& c) {
  std::string out;
  for (const std::string& p : c.prompts) out += (out.empty() ? "" : ", ") + quoted_text(p);
  return "[" + out + "]";
}

const RunKey kGenerate[] = {
    {"prompts", "list of texts", "one Chinese, one English",
     "passages sampled at the end of a run, to `samples.jsonl`; `[]`: none", read_prompts,
     write_prompts},
    {"every", "integer", "", "0 or more steps: also every N steps; 0: only at the end",
     integer<0, kMost, &RunConfig::generate_every>, plain<&RunConfig::generate_every>},
    {"max_tokens", "integer", "",
     "0 or more a passage; prompt and passage are at most `train.sequence_length` tokens",
     integer<0, 1 << 20, &RunConfig::generate_tokens>, plain<&RunConfig::generate_tokens>},
    {"temperature", "number", "", "0 or more; 0: always the likeliest token",
     not_negative<&RunConfig::temperature>, plain<&RunConfig::temperature>},
};

struct Section {
  std::string_view name;
  std::span<const RunKey> keys;
};
const Section kSections[] = {{"", kRoot},
                             {"data", kData},
                             {"train", kTrain},
                             {"train.optimizer", kOptimizer},
                             {"layout", layout_keys()},
                             {"generate", kGenerate}};

}  // namespace

std::span<const RunKey> run_keys(std::string_view section) {
  for (const Section& s : kSections) {
    if (s.name == section) return s.keys;
  }
  CHECK(false, "a run file has no section {}", section);
}

std::vector<std::string> run_sections() {
  std::vector<std::string> out;
  for (const Section& s : kSections) out.emplace_back(s.name);
  return out;
}

std::vector<std::string> names_of_keys(std::string_view section) {
  std::vector<std::string> out;
  for (const RunKey& k : run_keys(section)) out.emplace_back(k.name);
  return out;
}

void read_keys(const YamlMap& section, std::string_view name, RunConfig& config) {
  for (const RunKey& k : run_keys(name)) {
    if (k.read) k.read(section, std::string(k.name), config);
  }
}

std::string write_keys(std::string_view section, const RunConfig& config) {
  std::string out;
  for (const RunKey& k : run_keys(section)) {
    const std::string value = k.write(config);
    if (value.empty()) continue;
    out += fmt::format("{}{}:{}{}\n", section.empty() ? "" : "  ", k.name,
                       value.starts_with('\n') ? "" : " ", value);
  }
  return out;
}

std::string table_of_keys(std::string_view section) {
  std::string out = "| key | type | default | rule |\n|---|---|---|---|\n";
  for (const RunKey& k : run_keys(section)) {
    std::string fallback(k.fallback);
    if (fallback.empty()) fallback = k.write(RunConfig{});
    if (k.fallback.empty() && k.type == "name") fallback = "`" + fallback + "`";
    out += fmt::format("| `{}` | {} | {} | {} |\n", k.name, k.type, fallback, k.rule);
  }
  return out;
}

std::string name_of_source(const std::string& path) {
  const std::filesystem::path p = path;
  const std::string last = (p.has_filename() ? p : p.parent_path()).filename();
  return last.substr(0, std::max<size_t>(1, last.find('.', 1)));
}

std::string quoted_text(const std::string& text) { return nlohmann::json(text).dump(); }

bool path_exists(const std::string& path) {
  std::error_code refused;
  return std::filesystem::exists(path, refused);
}

}  // namespace myriad
