// Prepares the text of a run: reads and splits its sources, finds a tokenizer, packs the tokens.
//
// Results are kept in a cache whose file names contain hashes of everything they were made from:
// the texts in their order, the tokenizer, its end-of-text token, and a version of this code. A
// cached file is therefore never out of date, and is used wherever it exists; a change of any input
// leads to another name. The choice of held-out documents follows the hash of their content, so it
// does not depend on their order in the corpus. Read train/text_data.h, then prepare_text at the
// end.
#include "train/text_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/env.h"
#include "base/error.h"
#include "base/random.h"
#include "data/bpe.h"
#include "data/compress.h"
#include "data/files.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;

constexpr int kCacheVersion = 2;  // raise it when the same documents give other files

// The hash of all texts in their order.
uint64_t hash_of(const std::vector<std::string_view>& texts) {
  std::string digests;
  for (const std::string_view text : texts) {
    const uint64_t h = stream_of(text);
    digests.append(reinterpret_cast<const char*>(&h), sizeof h);
  }
  return stream_of(digests);
}

struct KeptTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<std::pair<std::string, std::string>> files;
};

// `path` is a tokenizer file or a folder with one. The files that a run keeps of it load to the
// same tokenizer.
KeptTokenizer given_tokenizer(const fs::path& path) {
  const fs::path file = tokenizer_file(path), settings = path / "tokenizer_config.json";
  KeptTokenizer kept{.tokenizer = load_tokenizer(path)};
  const std::string bytes = read_file(file);
  const bool json = bytes[bytes.find_first_not_of(" \t\r\n")] == '{';
  kept.files.emplace_back(json ? "tokenizer.json" : "tokenizer.model", bytes);
  if (fs::is_directory(path) && fs::exists(settings))
    kept.files.emplace_back("tokenizer_config.json", read_file(settings));
  if (kept.tokenizer->end_of_text() < 0) {
    throw Error(
        "the tokenizer does not tell which token ends a text", file,
        "a folder with a tokenizer_config.json beside it, whose eos_token names an added token");
  }
  return kept;
}

KeptTokenizer trained_tokenizer(const std::vector<std::string_view>& texts, int vocabulary,
                                const fs::path& path, bool& cached,
                                const std::function<void(const std::string&)>& say) {
  if (!fs::exists(path)) {
    cached = false;
    say(fmt::format("training a tokenizer of {} tokens on {} documents", vocabulary, texts.size()));
    Bpe::train(texts, vocabulary).save(path);
  }
  return {.tokenizer = std::make_shared<const Bpe>(Bpe::load(path)),
          .files = {{"tokenizer.json", read_file(path)}}};
}

bool has_tokenizer(const std::string& folder) {
  return !folder.empty() && (fs::exists(fs::path(folder) / "tokenizer.json") ||
                             fs::exists(fs::path(folder) / "tokenizer.model"));
}

KeptTokenizer tokenizer_of(const RunConfig& config,
                           const std::vector<std::vector<Document>>& training, bool& cached,
                           const std::function<void(const std::string&)>& say) {
  const DataConfig& d = config.data;
  const std::string given = !d.tokenizer.empty()            ? d.tokenizer
                            : has_tokenizer(config.weights) ? config.weights
                                                            : "";
  if (given.empty()) {
    std::vector<std::string_view> texts;
    for (const auto& documents : training) {
      for (const Document& t : documents) texts.push_back(t.text);
    }
    const std::string name =
        fmt::format("{:016x}-{}-v{}.tokenizer.json", hash_of(texts), d.vocabulary, kCacheVersion);
    return trained_tokenizer(texts, d.vocabulary, fs::path(d.cache) / name, cached, say);
  }
  KeptTokenizer kept = given_tokenizer(given);
  if (kept.tokenizer->vocabulary() > config.model.vocabulary) {
    throw Error(
        fmt::format("the tokenizer has {} tokens, the model's embedding only {} (model.vocab_size)",
                    kept.tokenizer->vocabulary(), config.model.vocabulary),
        given);
  }
  return kept;
}

struct SplitSources {
  std::vector<std::vector<Document>> training;  // by source
  std::vector<Document> held_out;
};

SplitSources split_sources(const DataConfig& d) {
  SplitSources out;
  for (const DataSource& source : d.sources) {
    CorpusSplit split = split_corpus(read_corpus(source.path), d.held_out_permille);
    if (split.training.empty()) {
      throw Error(fmt::format("{} documents give none to train on at data.held_out_permille {}",
                              split.held_out.size(), d.held_out_permille),
                  source.path, "a larger corpus, or another held-out share");
    }
    out.training.push_back(std::move(split.training));
    for (Document& held : split.held_out) out.held_out.push_back(std::move(held));
  }
  if (out.held_out.empty()) {
    throw Error(
        fmt::format("no document is held out at data.held_out_permille {}", d.held_out_permille),
        d.sources[0].path, "a larger corpus, or another held-out share");
  }
  return out;
}

PackedFile packed(const std::vector<std::string>& texts, const Tokenizer& tokenizer,
                  const fs::path& path, bool& cached,
                  const std::function<void(const std::string&)>& say) {
  if (!fs::exists(path)) {
    cached = false;
    say(fmt::format("packing {} documents", texts.size()));
    return pack_texts(texts, tokenizer, path);
  }
  return PackedFile::open(path);
}

}  // namespace

PackedFile pack_texts(const std::vector<std::string>& texts, const Tokenizer& tokenizer,
                      const fs::path& path) {
  PackedWriter writer(path, {.hash = tokenizer.hash(),
                             .vocabulary = tokenizer.vocabulary(),
                             .end_of_text = tokenizer.end_of_text()});
  std::vector<int32_t> ids;
  for (const std::string& text : texts) {
    ids.clear();
    tokenizer.encode_onto(text, ids);
    writer.add(ids, static_cast<int64_t>(text.size()));
  }
  writer.finish();
  return PackedFile::open(path);
}

std::vector<std::string> choose_held_out(const std::vector<Document>& documents,
                                         const Tokenizer& tokenizer, int64_t most) {
  std::vector<std::pair<uint64_t, const Document*>> order;
  for (const Document& d : documents) order.emplace_back(stream_of(d.text), &d);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second->text) < std::tie(b.first, b.second->text);
  });
  std::vector<std::string> texts;
  int64_t tokens = 0;
  for (const auto& [hash, d] : order) {
    if (most > 0) {
      const int64_t n = static_cast<int64_t>(tokenizer.encode(d->text).size()) + 1;
      if (tokens + n > most) continue;
      tokens += n;
    }
    texts.push_back(d->text);
  }
  return texts;
}

CompressedSizes compressed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& t : texts) all += t;
  return {gzip9_bytes(all), zstd19_bytes(all)};
}

TextData::Totals TextData::totals() const {
  Totals sum;
  for (const PackedFile& file : training) {
    sum.documents += file.documents();
    sum.tokens += file.tokens();
    sum.text_bytes += file.text_bytes();
  }
  return sum;
}

std::string TextData::data_hash() const {
  Checksum sum;
  for (const PackedFile& file : training) sum.add(std::as_bytes(file.all_tokens()));
  return sum.hex();
}

nlohmann::json TextData::to_json(const DataConfig& config) const {
  nlohmann::json sources = nlohmann::json::array();
  for (size_t i = 0; i < training.size(); ++i) {
    sources.push_back({{"name", config.sources[i].name},
                       {"weight", config.sources[i].weight},
                       {"documents", training[i].documents()},
                       {"tokens", training[i].tokens()}});
  }
  return {{"hash", data_hash()}, {"order_version", kSampleOrderVersion}, {"sources", sources}};
}

MixedSamples training_rows(const RunConfig& config, const TextData& text) {
  return MixedSamples(text.training, whole_weights(config.data.weights(), "data.sources"),
                      config.train.sequence_length, config.train.seed, config.data.packing);
}

TextData prepare_text(const RunConfig& config, const std::function<void(const std::string&)>& say) {
  const DataConfig& d = config.data;
  SplitSources split = split_sources(d);
  std::error_code failed;
  fs::create_directories(d.cache, failed);
  if (failed)
    throw Error(fmt::format("cannot be made: {}", failed.message()), d.cache,
                "data.cache names a folder");
  TextData out{.cached = true};
  KeptTokenizer kept = tokenizer_of(config, split.training, out.cached, say);
  out.tokenizer = kept.tokenizer;
  out.tokenizer_files = std::move(kept.files);
  out.held_out_texts = choose_held_out(split.held_out, *out.tokenizer, d.held_out_tokens);
  if (out.held_out_texts.empty()) {
    throw Error(fmt::format("no held-out document has at most data.held_out_tokens ({}) tokens",
                            d.held_out_tokens),
                d.sources[0].path, "a larger number, or 0 for all");
  }
  const auto pack = [&](const std::vector<std::string>& texts, const char* what) {
    const std::string name =
        fmt::format("{:016x}-{:016x}-{}-v{}.{}.pack", hash_of({texts.begin(), texts.end()}),
                    out.tokenizer->hash(), out.tokenizer->end_of_text(), kCacheVersion, what);
    return packed(texts, *out.tokenizer, fs::path(d.cache) / name, out.cached, say);
  };
  for (std::vector<Document>& documents : split.training) {
    std::vector<std::string> texts;
    out.provenance.emplace_back();
    for (Document& t : documents) {
      texts.push_back(std::move(t.text));
      out.provenance.back().push_back({std::move(t.source), std::move(t.lang)});
    }
    out.training.push_back(pack(texts, "training"));
  }
  out.held_out = pack(out.held_out_texts, "held-out");
  return out;
}

}  // namespace myriad
