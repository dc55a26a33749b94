// Continues many prompts with a decoder of a few rows.
//
// Each row of the decoder holds one prompt at a time; as soon as its continuation ends, the row
// takes the next prompt, so rows do not wait for the longest text. The result does not depend on
// this scheduling: the decoder computes each row independently to the bit, and sampling draws from
// a counter made of the prompt's number and the length so far, not from a shared generator. Read
// train/generate.h and train/decoder.h first, then Generator::run.
#include "train/generate.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "train/text_stream.h"

namespace myriad {

namespace {

// Which ids of the model are tokens: a tokenizer's vocabulary may have holes, and the model may
// have more entries than the tokenizer.
std::vector<bool> tokens_of(const Tokenizer& tokenizer, int64_t vocabulary) {
  std::vector<bool> is_token(static_cast<size_t>(vocabulary), false);
  for (int32_t id = 0; id < std::min<int64_t>(vocabulary, tokenizer.vocabulary()); ++id) {
    try {
      tokenizer.decode({&id, 1});
      is_token[static_cast<size_t>(id)] = true;
    } catch (const Error&) {
    }
  }
  return is_token;
}

// A prompt whose continuation is being made.
struct Sequence {
  size_t number;
  int64_t length;  // tokens of prompt and continuation
  int32_t last;
  TextStream text;
};

class Generator {
 public:
  Generator(Decoder& decoder, const Tokenizer& tokenizer,
            const std::vector<std::vector<int32_t>>& prompts, const GenerateConfig& config,
            const OnText& on_text)
      : decoder_(decoder),
        tokenizer_(tokenizer),
        prompts_(prompts),
        config_(config),
        on_text_(on_text),
        is_token_(tokens_of(tokenizer, decoder.vocabulary())),
        rows_(static_cast<size_t>(decoder.rows())),
        out_(prompts.size()) {}

  std::vector<Continuation> run() {
    while (fill_rows()) {
      std::vector<Decoder::Token> tokens(rows_.size());
      for (size_t r = 0; r < rows_.size(); ++r) {
        if (rows_[r]) tokens[r] = {rows_[r]->last, rows_[r]->length - 1};
      }
      std::vector<double> logits = decoder_.step(tokens);
      for (size_t r = 0; r < rows_.size(); ++r) {
        if (rows_[r])
          take(rows_[r], std::span(logits).subspan(r * is_token_.size(), is_token_.size()));
      }
    }
    return std::move(out_);
  }

 private:
  // Gives idle rows their next prompts; returns whether any row has something to do.
  bool fill_rows() {
    for (size_t r = 0; r < rows_.size(); ++r) {
      while (!rows_[r] && next_ < prompts_.size()) start(r, next_++);
    }
    return std::any_of(rows_.begin(), rows_.end(), [](const auto& row) { return row.has_value(); });
  }

  void start(size_t row, size_t number) {
    const std::vector<int32_t>& ids = prompts_[number];
    CHECK(!ids.empty() && std::ssize(ids) < config_.context, "a prompt of {} tokens", ids.size());
    if (config_.max_tokens == 0) return end(number, Ended::max_tokens, "");
    decoder_.read(static_cast<int64_t>(row), std::span(ids).first(ids.size() - 1));
    rows_[row].emplace(
        Sequence{number, std::ssize(ids), ids.back(), {tokenizer_, ids, config_.stops}});
  }

  void take(std::optional<Sequence>& row, std::span<double> logits) {
    Sequence& s = *row;
    for (size_t id = 0; id < logits.size(); ++id) {
      if (!is_token_[id]) logits[id] = -std::numeric_limits<double>::infinity();
    }
    const int32_t id = sample(logits, config_.sampling, s.number, static_cast<uint64_t>(s.length));
    const auto& ends = config_.end_tokens;
    const bool ended = std::find(ends.begin(), ends.end(), id) != ends.end();
    Continuation& c = out_[s.number];
    if (!ended) {
      c.ids.push_back(id);
      s.last = id;
      ++s.length;
      tell(s.number, s.text.add(id), false);
    }
    std::optional<Ended> why;
    if (ended) {
      why = Ended::end_token;
    } else if (s.text.stopped()) {
      why = Ended::stop;
    } else if (std::ssize(c.ids) == config_.max_tokens) {
      why = Ended::max_tokens;
    } else if (s.length == config_.context) {
      why = Ended::context;
    }
    if (!why) return;
    const std::string rest = s.text.finish();
    c.text = s.text.text();
    end(s.number, *why, rest);
    row.reset();
  }

  void end(size_t number, Ended why, const std::string& rest) {
    out_[number].ended = why;
    tell(number, rest, true);
  }

  void tell(size_t number, const std::string& text, bool ended) const {
    if (on_text_ && (ended || !text.empty())) on_text_(number, text, ended);
  }

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  const std::vector<std::vector<int32_t>>& prompts_;
  const GenerateConfig& config_;
  const OnText& on_text_;
  const std::vector<bool> is_token_;
  std::vector<std::optional<Sequence>> rows_;
  std::vector<Continuation> out_;
  size_t next_ = 0;
};

}  // namespace

const char* name_of(Ended why) {
  constexpr const char* kNames[] = {"end", "stop", "max_tokens", "context"};
  return kNames[static_cast<int>(why)];
}

std::vector<Continuation> generate(Decoder& decoder, const Tokenizer& tokenizer,
                                   const std::vector<std::vector<int32_t>>& prompts,
                                   const GenerateConfig& config, const OnText& on_text) {
  return Generator(decoder, tokenizer, prompts, config, on_text).run();
}

}  // namespace myriad
