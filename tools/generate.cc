// myriad generate: continues prompts with the weights of a model folder, several at once on one
// rank. Prompts are checked and encoded before the job is made, since the caches of keys and values
// are as large as the longest prompt with its continuation. Texts go to standard output in the
// order of the prompts, figures to standard error, so that output can be piped. Read `run_generate`
// first; the sampling loop is `generate` in the library.
#include "train/generate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "data/files.h"
#include "tools/commands.h"
#include "train/open_model.h"

namespace myriad {

namespace {

using Json = nlohmann::json;

struct Options {
  std::string folder, prompts;
  std::vector<std::string> prompt;  // none or one
  GenerateConfig config;
  int64_t context = 0, rows = 0;
  bool json = false;
};

void refuse(const std::string& rule, const std::string& option, const std::string& nearest) {
  throw Error(rule, option, "nearest: " + nearest);
}

void check(const Options& o) {
  const Sampling& s = o.config.sampling;
  const auto least = [](auto value, auto smallest, const char* option) {
    if (!(value >= smallest))
      refuse(fmt::format("must be {} or more, not {}", smallest, value), option,
             fmt::format("{}", smallest));
  };
  least(o.config.max_tokens, int64_t{0}, "--max-tokens");
  least(s.temperature, 0.0, "--temperature");
  if (!std::isfinite(s.temperature)) refuse("must be a finite number", "--temperature", "1");
  least(s.top_k, int64_t{0}, "--top-k");
  if (!(s.top_p > 0 && s.top_p <= 1))
    refuse(fmt::format("must be above 0 and at most 1, not {}", s.top_p), "--top-p",
           s.top_p > 1 ? "1" : "0.01");
  for (const std::string& stop : o.config.stops) {
    if (stop.empty()) throw Error("must not be empty: every text begins with it", "--stop");
  }
  if (o.rows < 0 || o.rows > kMostRows)
    refuse(fmt::format("must be from 1 to {}, not {}", kMostRows, o.rows), "--batch",
           o.rows < 0 ? "1" : fmt::format("{}", kMostRows));
  if (o.prompt.empty() == o.prompts.empty())
    throw Error("either --prompt or --prompts is needed", "generate",
                "--prompt TEXT, or --prompts FILE");
}

// The prompts in a file, which holds a JSON list of texts or one text a line.
std::vector<std::string> read_prompts(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<std::string> prompts;
  if (const size_t first = bytes.find_first_not_of(" \t\r\n");
      first != std::string::npos && bytes[first] == '[') {
    Json list;
    try {
      list = Json::parse(bytes);
    } catch (const Json::exception& e) {
      throw Error(fmt::format("not JSON: {}", e.what()), path);
    }
    for (size_t i = 0; i < list.size(); ++i) {
      if (!list[i].is_string()) throw Error("not a string", fmt::format("{}: /{}", path, i));
      prompts.push_back(list[i]);
    }
  } else {
    for (size_t at = 0; at < bytes.size();) {
      const size_t end = std::min(bytes.find('\n', at), bytes.size());
      std::string line = bytes.substr(at, end - at);
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) prompts.push_back(std::move(line));
      at = end + 1;
    }
  }
  if (prompts.empty()) throw Error("holds no prompt", path, "one a line, or a JSON list of texts");
  return prompts;
}

// Prints texts to standard output in the order of their prompts. A single text on a terminal is
// shown as it grows.
class Printer {
 public:
  explicit Printer(const std::vector<std::string>& prompts)
      : prompts_(prompts),
        texts_(prompts.size()),
        done_(prompts.size(), false),
        grows_(prompts.size() == 1 && isatty(fileno(stdout))) {}

  void add(size_t prompt, std::string_view text, bool ended) {
    texts_[prompt] += text;
    done_[prompt] = done_[prompt] || ended;
    for (; at_ < prompts_.size() && (done_[at_] || grows_); ++at_) {
      if (!begun_) fmt::print("{}", prompts_[at_]);
      begun_ = true;
      fmt::print("{}", texts_[at_]);
      texts_[at_].clear();
      if (!done_[at_]) break;
      fmt::print("\n");
      begun_ = false;
    }
    std::fflush(stdout);
  }

 private:
  const std::vector<std::string>& prompts_;
  std::vector<std::string> texts_;  // by prompt, what is not printed yet
  std::vector<bool> done_;
  const bool grows_;
  size_t at_ = 0;
  bool begun_ = false;
};

std::vector<std::vector<int32_t>> encode(const OpenModel& m,
                                         const std::vector<std::string>& prompts,
                                         const GenerateConfig& config) {
  std::vector<std::vector<int32_t>> all;
  for (size_t i = 0; i < prompts.size(); ++i) {
    all.push_back(m.encode(prompts[i], true));
    const std::string place = prompts.size() == 1 ? "--prompt" : fmt::format("prompt {}", i);
    if (all.back().empty())
      throw Error("is empty, and nothing stands before the texts of this model", place);
    if (std::ssize(all.back()) >= config.context) {
      throw Error(fmt::format("has {} tokens, but the context is {} with what is generated",
                              all.back().size(), config.context),
                  place,
                  m.most_context == 0 || m.most_context > std::ssize(all.back())
                      ? fmt::format("--context {} or more", all.back().size() + 1)
                      : fmt::format("at most {} tokens", config.context - 1));
    }
  }
  return all;
}

Json results_of(const std::vector<std::string>& prompts,
                const std::vector<std::vector<int32_t>>& ids,
                const std::vector<Continuation>& texts) {
  Json results = Json::array();
  for (size_t i = 0; i < texts.size(); ++i) {
    results.push_back({{"prompt", prompts[i]},
                       {"text", texts[i].text},
                       {"prompt_ids", ids[i]},
                       {"tokens", texts[i].ids.size()},
                       {"ids", texts[i].ids},
                       {"ended", name_of(texts[i].ended)}});
  }
  return results;
}

int run_generate(const Options& o) {
  check(o);
  const std::vector<std::string> prompts = o.prompts.empty() ? o.prompt : read_prompts(o.prompts);
  const OpenModel m = open_model(o.folder);
  GenerateConfig config = o.config;
  config.end_tokens = m.end_tokens;
  config.context = m.context(o.context, "--context");
  const auto ids = encode(m, prompts, config);
  int64_t longest = 0;
  for (const auto& p : ids) longest = std::max(longest, std::ssize(p));
  const int64_t most = std::min(config.context, longest + std::max<int64_t>(1, config.max_tokens));
  const int64_t rows = std::min<int64_t>(o.rows > 0 ? o.rows : 8, std::ssize(prompts));
  Pool pool(0);
  Job job(JobConfig{.model = m.model,
                    .plan = resolve(Plan{}, static_cast<int>(m.model.layers), rows),
                    .rows = rows,
                    .sequence = config.context},
          pool,
          Job::Options{.train = false, .generation = {.rows = rows, .tokens = cache_places(most)}});
  job.load(m.weights);
  Decoder decoder(job);
  Printer printer(prompts);
  const auto from = std::chrono::steady_clock::now();
  const std::vector<Continuation> texts = generate(
      decoder, *m.tokenizer, ids, config, [&](size_t prompt, std::string_view text, bool ended) {
        if (!o.json) printer.add(prompt, text, ended);
      });
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  int64_t made = 0, read = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    made += std::ssize(texts[i].ids);
    read += std::ssize(ids[i]);
  }
  const double rate = static_cast<double>(made) / seconds;
  fmt::print(stderr, "{} tokens after {} of prompts in {:.2f} s: {:.1f} tokens/s\n", made, read,
             seconds, rate);
  if (!o.json) return 0;
  const Json results = results_of(prompts, ids, texts);
  Json out = o.prompts.empty() ? results[0] : Json{{"results", results}};
  out["seed"] = config.sampling.seed;
  out["temperature"] = config.sampling.temperature;
  out["tokens_per_second"] = rate;
  print_json(out);
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("generate", "Continues texts with a trained model");
  c->add_option("MODEL", o->folder, "A run, a checkpoint of one, or a Hugging Face folder")
      ->required()
      ->type_name("FOLDER");
  c->add_option("--prompt", o->prompt, "The text to continue")->type_name("TEXT")->expected(1);
  c->add_option("--prompts", o->prompts, "Texts to continue: one a line, or a JSON list")
      ->type_name("FILE");
  c->add_option("--max-tokens", o->config.max_tokens, "At most so many tokens a text")
      ->capture_default_str();
  Sampling& s = o->config.sampling;
  c->add_option("--temperature", s.temperature, "0: always the likeliest token")
      ->capture_default_str();
  c->add_option("--top-k", s.top_k, "Only the k likeliest tokens; 0: all")->capture_default_str();
  c->add_option("--top-p", s.top_p,
                "Only the likeliest tokens that together reach this probability")
      ->capture_default_str();
  c->add_option("--seed", s.seed, "Equal seeds give equal texts")->capture_default_str();
  c->add_option("--stop", o->config.stops, "Ends a text where this would come; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  c->add_option("--context", o->context,
                "Most tokens of prompt and text; by default as in training")
      ->type_name("N");
  c->add_option("--batch", o->rows,
                fmt::format("Prompts at a time, 1 to {}, by default 8; changes no text", kMostRows))
      ->type_name("N");
  add_json(*c, o->json);
  add_examples(
      *c, {"myriad generate runs/bilingual --prompt \"The kernel\"",
           "myriad generate runs/bilingual --prompt 安装 --max-tokens 100 --temperature "
           "0.7 --top-p 0.9 --seed 3",
           "myriad generate runs/bilingual --prompts prompts.txt --temperature 0 --stop . --json"});
  c->callback([o, &status] { status = run_generate(*o); });
}

}  // namespace myriad
