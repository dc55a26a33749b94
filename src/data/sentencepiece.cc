#include "data/sentencepiece.h"

#include <sentencepiece_processor.h>
#include <xxhash.h>

#include "base/error.h"

namespace myriad {

SentencePiece SentencePiece::parse(std::string_view bytes, const std::string& file) {
  auto processor = std::make_shared<sentencepiece::SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto({bytes.data(), bytes.size()});
  if (!status.ok() || processor->GetPieceSize() <= 0) {
    throw Error("not a SentencePiece model", file, status.ok() ? "" : status.ToString());
  }
  SentencePiece model;
  model.vocabulary_ = processor->GetPieceSize();
  model.hash_ = XXH3_64bits(bytes.data(), bytes.size());
  model.processor_ = std::move(processor);
  return model;
}

void SentencePiece::encode_onto(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int> pieces;
  const auto status = processor_->Encode({text.data(), text.size()}, &pieces);
  if (!status.ok()) throw Error(fmt::format("SentencePiece: {}", status.ToString()));
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

std::string SentencePiece::decode(std::span<const int32_t> ids) const {
  std::string text, part;
  std::vector<int> pieces;
  const auto finish = [&] {
    if (pieces.empty()) return;
    const auto status = processor_->Decode(pieces, &part);
    if (!status.ok()) throw Error(fmt::format("SentencePiece: {}", status.ToString()));
    text += part;
    pieces.clear();
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary_) {
      throw Error(fmt::format("token {} at place {} is not in the vocabulary", ids[i], i), "",
                  fmt::format("legal ids are 0 to {}", vocabulary_ - 1));
    }
    if (!processor_->IsControl(ids[i])) {
      pieces.push_back(ids[i]);
      continue;
    }
    finish();
    text += processor_->IdToPiece(ids[i]);
  }
  finish();
  return text;
}

int32_t SentencePiece::end_of_text() const {
  const int id = processor_->eos_id();
  return id < 0 ? kUnknown : id;
}

}  // namespace myriad
