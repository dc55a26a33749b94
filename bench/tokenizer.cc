// Tokenizers: one JSON line a figure.
//   tokenizer [CORPUS] [MERGES]
// The first 20 MB of texts of the corpus (all, where it is smaller), 16,384 merges.
//   train_seconds: to learn them; the limit is a minute on 2 cores.
//   encode_mb_per_second: of processor time of one core, every document once, a cold cache of
//   words; the floor is 5.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "data/bpe.h"
#include "data/corpus.h"

namespace {

using namespace myriad;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void print(const char* figure, double value, const char* more = "") {
  std::printf("{\"bench\": \"tokenizer\", \"figure\": \"%s\", \"value\": %.4g%s}\n", figure, value,
              more);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr size_t kMost = 20'000'000;
  const std::string corpus = argc > 1 ? argv[1] : "corpus/documents.jsonl";
  const int merges = argc > 2 ? std::atoi(argv[2]) : 16384;
  std::vector<std::string> texts;
  size_t bytes = 0;
  for (Document& d : read_corpus(corpus)) {
    if (bytes >= kMost) break;
    bytes += d.text.size();
    texts.push_back(std::move(d.text));
  }
  const double megabytes = static_cast<double>(bytes) / 1e6;
  print("megabytes", megabytes);
  const double from = now();
  const Bpe bpe = Bpe::train(std::vector<std::string_view>(texts.begin(), texts.end()),
                             Bpe::kFirstMerge + merges);
  print("train_seconds", now() - from, ", \"limit\": 60");
  const std::clock_t begin = std::clock();
  size_t tokens = 0;
  for (const std::string& text : texts) tokens += bpe.encode(text).size();
  print("encode_mb_per_second",
        megabytes * CLOCKS_PER_SEC / static_cast<double>(std::clock() - begin), ", \"floor\": 5");
  print("bytes_per_token", static_cast<double>(bytes) / static_cast<double>(tokens));
  return 0;
}
