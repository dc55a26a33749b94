#include "train/text_data.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "data/compress.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;

constexpr int kCacheVersion = 1;  // raise when equal documents give other files

// Of all documents, their order included.
uint64_t hash_of(const std::vector<Document>& documents) {
  std::string digests;
  for (const Document& d : documents) {
    const uint64_t h = stream_of(d.text);
    digests.append(reinterpret_cast<const char*>(&h), sizeof h);
  }
  return stream_of(digests);
}

Bpe tokenizer_of(const RunConfig& config, const std::vector<Document>& training,
                 const fs::path& path, bool& cached,
                 const std::function<void(const std::string&)>& say) {
  if (const fs::path given = fs::path(config.weights) / "tokenizer.json";
      !config.weights.empty() && fs::exists(given))
    return Bpe::load(given);
  if (fs::exists(path)) return Bpe::load(path);
  cached = false;
  say(fmt::format("training a tokenizer of {} tokens on {} documents", config.data.vocabulary,
                  training.size()));
  std::vector<std::string_view> texts;
  for (const Document& d : training) texts.push_back(d.text);
  Bpe bpe = Bpe::train(texts, config.data.vocabulary);
  bpe.save(path);
  return bpe;
}

PackedFile packed(const std::vector<std::string>& texts, const Bpe& tokenizer, const fs::path& path,
                  bool& cached, const std::function<void(const std::string&)>& say) {
  if (!fs::exists(path)) {
    cached = false;
    say(fmt::format("packing {} documents", texts.size()));
    return pack_texts(texts, tokenizer, path);
  }
  try {
    return PackedFile::open(path);
  } catch (const Error& e) {
    throw Failure(fmt::format("{}\n  hint: remove the file, it is made again", e.what()));
  }
}

}  // namespace

PackedFile pack_texts(const std::vector<std::string>& texts, const Bpe& tokenizer,
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
                                         const Bpe& tokenizer, int64_t most) {
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

TextData prepare_text(const RunConfig& config, const std::function<void(const std::string&)>& say) {
  const DataConfig& d = config.data;
  CorpusSplit split = split_corpus(read_corpus(d.corpus), d.held_out_permille);
  if (split.training.empty() || split.held_out.empty()) {
    throw Error(
        fmt::format("{} documents give {} to train on and {} held out at data.held_out_permille {}",
                    split.training.size() + split.held_out.size(), split.training.size(),
                    split.held_out.size(), d.held_out_permille),
        d.corpus, "a larger corpus, or another held-out share");
  }
  const std::string stem =
      fmt::format("{:016x}-{}-v{}", hash_of(split.training), d.vocabulary, kCacheVersion);
  const fs::path cache = d.cache;
  std::error_code failed;
  fs::create_directories(cache, failed);
  if (failed)
    throw Error(fmt::format("cannot be made: {}", failed.message()), cache,
                "data.cache names a folder");
  bool cached = true;
  Bpe bpe = tokenizer_of(config, split.training, cache / (stem + ".tokenizer.json"), cached, say);
  if (bpe.vocabulary() > config.model.vocabulary) {
    throw Error(fmt::format("the tokenizer has {} tokens, the model only {}", bpe.vocabulary(),
                            config.model.vocabulary),
                config.weights);
  }
  std::vector<std::string> held_out = choose_held_out(split.held_out, bpe, d.held_out_tokens);
  if (held_out.empty()) {
    throw Error(fmt::format("no held-out document has at most data.held_out_tokens ({}) tokens",
                            d.held_out_tokens),
                d.corpus, "a larger number, or 0 for all");
  }
  const std::string stem_of_pack =
      fmt::format("{:016x}-{:016x}-v{}", hash_of(split.training), bpe.hash(), kCacheVersion);
  const fs::path held_out_path =
      cache / fmt::format("{:016x}-{:016x}-v{}.held-out.pack",
                          stream_of(fmt::format("{}", fmt::join(held_out, "\n\f"))), bpe.hash(),
                          kCacheVersion);
  std::vector<std::string> training;
  for (Document& t : split.training) training.push_back(std::move(t.text));
  PackedFile training_file =
      packed(training, bpe, cache / (stem_of_pack + ".training.pack"), cached, say);
  PackedFile held_out_file = packed(held_out, bpe, held_out_path, cached, say);
  return {std::move(bpe), std::move(training_file), std::move(held_out_file), std::move(held_out),
          cached};
}

}  // namespace myriad
