// myriad data show: prints the rows that a step of a run trains on, with the documents in them. The
// rows are made anew by the code that training uses, not read from a record. That is right only if
// text, tokenizer and order are those of the run, so for a run's folder their hash and version are
// compared with what the run recorded. Read `run_show` first.
#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "data/files.h"
#include "tools/commands.h"
#include "train/text_data.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Options {
  std::string run;
  std::vector<std::string> overrides;
  int64_t step = 0, row = -1;
  bool json = false;
};

// A document of a row. Its tokens are those targets in the row that belong to it.
Json document_json(const TextData& text, int source, const SampleRow& row, size_t number,
                   int64_t from) {
  const SampleRow::Part& part = row.parts[number];
  const Provenance& where =
      text.provenance[static_cast<size_t>(source)][static_cast<size_t>(part.document)];
  std::vector<int32_t> ids(row.targets.begin() + from, row.targets.begin() + from + part.count);
  const bool ends = ids.back() == text.tokenizer->end_of_text();
  Json out = {{"document", part.document},
              {"source", where.source},
              {"lang", where.lang},
              {"first_token", part.first},
              {"ids", ids},
              {"ends", ends}};
  if (ends) ids.pop_back();
  out["text"] = text.tokenizer->decode_text(ids);
  return out;
}

Json row_json(const RunConfig& config, const TextData& text, const MixedSamples& samples,
              int64_t step, int64_t r) {
  const int64_t index = (step - 1) * config.rows() + r;
  const Mixture::Place place = samples.place(index);
  const Samples& source = samples.source(place.source);
  const int64_t at = source.place(place.row);
  const SampleRow row = source.row_at(at);
  Json documents = Json::array();
  int64_t from = 0;
  for (size_t d = 0; d < row.parts.size(); ++d) {
    documents.push_back(document_json(text, place.source, row, d, from));
    from += row.parts[d].count;
  }
  return {{"row", r},
          {"index", index},
          {"source", config.data.sources[static_cast<size_t>(place.source)].name},
          {"source_row", place.row},
          {"epoch", source.epoch_at(at)},
          {"padding", source.length() - from},
          {"documents", documents}};
}

void print_row(const Json& row) {
  fmt::print("\nrow {}: row {} of {}, epoch {}\n", row["row"].get<int64_t>(),
             row["source_row"].get<int64_t>(), row["source"].get<std::string>(),
             row["epoch"].get<int64_t>());
  for (const Json& d : row["documents"]) {
    const auto first = d["first_token"].get<int64_t>(),
               count = static_cast<int64_t>(d["ids"].size());
    std::string from = d["source"].get<std::string>();
    if (const auto lang = d["lang"].get<std::string>(); !lang.empty())
      from += (from.empty() ? "" : ", ") + lang;
    fmt::print("  document {}{}, tokens {} to {}{}\n", d["document"].get<int64_t>(),
               from.empty() ? "" : fmt::format(" ({})", from), first, first + count - 1,
               d["ends"].get<bool>() ? ", its end" : "");
    const auto text = d["text"].get<std::string>();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      fmt::print("    | {}\n", std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (const auto padding = row["padding"].get<int64_t>(); padding > 0)
    fmt::print("  {} of padding\n", padding);
}

// What a run recorded of its text: in its newest checkpoint, or in its summary.
struct Recorded {
  std::string hash, order_version;
};

std::optional<Recorded> recorded_by(const fs::path& run) {
  if (const std::vector<Checkpoint> saved = checkpoints_of(run); !saved.empty()) {
    const Manifest manifest = read_manifest(saved.back().folder);
    const auto order = manifest.configuration.find("data.order_version");
    return Recorded{manifest.data_hash,
                    order == manifest.configuration.end() ? "1" : order->second};
  }
  if (!fs::exists(run / "summary.json")) return std::nullopt;
  const Json summary = Json::parse(read_file(run / "summary.json"), nullptr, false);
  const Json data = summary.is_object() ? summary.value("data", Json::object()) : Json();
  if (!data.is_object() || !data.contains("hash") || !data.contains("order_version"))
    return Recorded{"unknown", "1"};
  return Recorded{data["hash"].get<std::string>(), data["order_version"].dump()};
}

void check_same_text(const fs::path& run, const TextData& text) {
  const std::optional<Recorded> then = recorded_by(run);
  if (!then) return;
  if (then->order_version != std::to_string(kSampleOrderVersion)) {
    throw Error(
        fmt::format("the run read its rows in order version {}; this program has version {}",
                    then->order_version, kSampleOrderVersion),
        run);
  }
  if (then->hash != text.data_hash()) {
    throw Error(fmt::format("the run read other text than there is now: its hash was {}, it is {}",
                            then->hash, text.data_hash()),
                run, "the sources and the tokenizer must be as they were");
  }
}

int run_show(const Options& o) {
  const fs::path folder = o.run;
  const bool is_run = fs::is_directory(folder);
  const RunConfig config = read_run(is_run ? folder / "config.yaml" : folder, o.overrides);
  if (config.data.sources.empty()) throw Error("data.corpus is missing: there is no text", o.run);
  if (o.step > config.train.steps || o.row >= config.rows()) {
    throw Error(
        fmt::format("step {}, row {}: the run has {} steps of {} rows", o.step,
                    std::max<int64_t>(o.row, 0), config.train.steps, config.rows()),
        o.run, fmt::format("--step 1 to {}, --row 0 to {}", config.train.steps, config.rows() - 1));
  }
  const TextData text =
      prepare_text(config, [](const std::string& what) { fmt::print(stderr, "data: {}\n", what); });
  if (is_run) check_same_text(folder, text);
  const MixedSamples samples = training_rows(config, text);
  Json rows = Json::array();
  for (int64_t r = 0; r < config.rows(); ++r) {
    if (o.row < 0 || r == o.row) rows.push_back(row_json(config, text, samples, o.step, r));
  }
  if (o.json) {
    print_json({{"step", o.step}, {"order_version", kSampleOrderVersion}, {"rows", rows}});
    return 0;
  }
  fmt::print("step {} of {}: {} row{} of {} tokens\n", o.step, config.name, rows.size(),
             rows.size() == 1 ? "" : "s", config.train.sequence_length);
  for (const Json& row : rows) print_row(row);
  return 0;
}

}  // namespace

void add_data_show(CLI::App& data, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* c = data.add_subcommand("show", "What the model reads at a step, decoded back to text");
  c->add_option("RUN", o->run, "A run file, or the folder of a run")->required();
  c->add_option("--step", o->step, "From 1")->required()->check(CLI::PositiveNumber);
  c->add_option("--row", o->row, "One row of the step, from 0; by default all")
      ->check(CLI::NonNegativeNumber);
  add_overrides(*c, o->overrides, "train.seed=2");
  add_json(*c, o->json);
  add_examples(*c, {"myriad data show examples/tiny.yaml --step 3",
                    "myriad data show runs/bilingual --step 1200 --row 0 --json"});
  c->callback([o, &status] { status = run_show(*o); });
}

}  // namespace myriad
