// A model to use: a run, a checkpoint of one, or a Hugging Face folder, with its tokenizer and the
// tokens that begin and end its texts.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/safetensors.h"
#include "data/tokenizer.h"
#include "model/config.h"

namespace myriad {

struct OpenModel {
  std::filesystem::path folder;  // that holds the weights
  ModelConfig model;             // without a capacity: experts take all that is theirs
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<SafeTensors> weights;
  // Stands before every text; -1: nothing does. Of a run the end-of-text token, with which every
  // document begins. Else what a published folder says: `add_bos_token` of tokenizer_config.json,
  // the template of tokenizer.json, or if there is neither, bos_token_id of generation_config.json
  // or config.json.
  int32_t first_token = -1;
  std::vector<int32_t> end_tokens;  // eos_token_id there; else the tokenizer's end of text
  int64_t usual_context =
      0;  // tokens: of a run its sequence length, else what the model was made for
  int64_t most_context = 0;  // beyond it positions mean nothing; 0: no limit is known

  // Throws Error naming `option` unless 1 <= context <= most_context; 0 stands for the usual one.
  int64_t context(int64_t asked, const char* option) const;
  std::vector<int32_t> encode(const std::string& text,
                              bool with_added) const;  // first_token before it
};

// Throws Error for what is not there or not legal, Failure for what is damaged.
OpenModel open_model(const std::filesystem::path& path);

}  // namespace myriad
