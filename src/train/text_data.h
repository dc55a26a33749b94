// The text of a run: its sources read, split by content, tokenised and packed, kept in a cache by
// content hash so that a later run is quick.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "data/corpus.h"
#include "data/packed.h"
#include "data/samples.h"
#include "data/tokenizer.h"
#include "train/run_config.h"

namespace myriad {

// Where a training document came from: what its file tells.
struct Provenance {
  std::string source, lang;
};

struct TextData {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<std::pair<std::string, std::string>> tokenizer_files;  // to keep: name, bytes
  std::vector<PackedFile> training;                                  // by source
  std::vector<std::vector<Provenance>> provenance;                   // by source and document
  PackedFile held_out;                                               // of all sources
  std::vector<std::string> held_out_texts;                           // of held_out, in its order
  bool cached = false;                                               // nothing had to be made

  struct Totals {
    int64_t documents = 0, tokens = 0, text_bytes = 0;
  };
  Totals totals() const;          // of training
  std::string data_hash() const;  // of all training tokens: 16 hex digits
  // What was read: {"hash":, "order_version":, "sources": [{"name":, "weight":, "documents":,
  // "tokens":}]}.
  nlohmann::json to_json(const DataConfig& config) const;
};

// Throws Error if a source cannot be read, has nothing to train on, or nothing is held out; if the
// tokenizer has no end-of-text token or more tokens than the model; Failure if a cached file is
// damaged or the disk is full. The tokenizer: data.tokenizer; else, of a run that starts from the
// weights of a folder with a tokenizer, that one; else one is trained on all sources. say: told
// what takes time.
TextData prepare_text(const RunConfig& config, const std::function<void(const std::string&)>& say);

// The training rows of a run in their order: step i (from 1) of B rows takes [(i - 1) B, i B).
MixedSamples training_rows(const RunConfig& config, const TextData& text);

// The held-out documents in hash order, as many whole ones as stay within `most` tokens (0: all).
std::vector<std::string> choose_held_out(const std::vector<Document>& documents,
                                         const Tokenizer& tokenizer, int64_t most);

// Bytes of all documents in one file, compressed.
struct CompressedSizes {
  int64_t gzip = 0, zstd = 0;
};
CompressedSizes compressed(const std::vector<std::string>& texts);

// Packs documents in their order.
PackedFile pack_texts(const std::vector<std::string>& texts, const Tokenizer& tokenizer,
                      const std::filesystem::path& path);

}  // namespace myriad
