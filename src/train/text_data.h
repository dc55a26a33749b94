// The text of a run: split by content, tokenised and packed, kept in a cache by content hash so
// that a later run is quick.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/bpe.h"
#include "data/corpus.h"
#include "data/packed.h"
#include "train/run_config.h"

namespace myriad {

struct TextData {
  Bpe tokenizer;
  PackedFile training, held_out;
  std::vector<std::string> held_out_texts;  // of held_out, in its order
  bool cached = false;                      // nothing had to be made
};

// Throws Error if the corpus cannot be read or one side of the split is empty, Failure if a cached
// file is damaged or the disk is full. A run that starts from the weights of a folder with a
// tokenizer.json uses that tokenizer. say: told what takes time.
TextData prepare_text(const RunConfig& config, const std::function<void(const std::string&)>& say);

// The held-out documents in hash order, as many whole ones as stay within `most` tokens (0: all).
std::vector<std::string> choose_held_out(const std::vector<Document>& documents,
                                         const Bpe& tokenizer, int64_t most);

// Bytes of all documents in one file, compressed.
struct CompressedSizes {
  int64_t gzip = 0, zstd = 0;
};
CompressedSizes compressed(const std::vector<std::string>& texts);

// Packs documents in their order.
PackedFile pack_texts(const std::vector<std::string>& texts, const Bpe& tokenizer,
                      const std::filesystem::path& path);

}  // namespace myriad
