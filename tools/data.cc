// myriad data tokenizer | pack; encode, decode and show are in their own files
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "data/bpe.h"
#include "data/corpus.h"
#include "tools/commands.h"
#include "train/text_data.h"

namespace myriad {

namespace {

struct Options {
  std::string corpus, out, tokenizer;
  int vocabulary = 4096;
  bool json = false;
};

std::vector<std::string> texts_of(const std::string& corpus) {
  std::vector<std::string> texts;
  for (Document& d : read_corpus(corpus)) texts.push_back(std::move(d.text));
  return texts;
}

void make_parent(const std::filesystem::path& path) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
}

int run_tokenizer(const Options& o) {
  const std::vector<std::string> texts = texts_of(o.corpus);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const Bpe bpe = Bpe::train(views, o.vocabulary);
  make_parent(o.out);
  bpe.save(o.out);
  if (bpe.vocabulary() < o.vocabulary)
    fmt::print(stderr, "warning: the text gives {} tokens only, not {}\n", bpe.vocabulary(),
               o.vocabulary);
  if (o.json) {
    print_json(
        {{"tokenizer", o.out}, {"vocabulary", bpe.vocabulary()}, {"documents", texts.size()}});
  } else {
    fmt::print("{}: {} tokens from {} documents\n", o.out, bpe.vocabulary(), texts.size());
  }
  return 0;
}

int run_pack(const Options& o) {
  if (!std::filesystem::exists(o.tokenizer))
    throw Error("no such file", o.tokenizer, "`myriad data tokenizer` makes one");
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(o.tokenizer);
  const std::vector<std::string> texts = texts_of(o.corpus);
  make_parent(o.out);
  const PackedFile file = pack_texts(texts, *tokenizer, o.out);
  if (o.json) {
    print_json({{"packed", o.out},
                {"documents", file.documents()},
                {"tokens", file.tokens()},
                {"text_bytes", file.text_bytes()},
                {"vocabulary", tokenizer->vocabulary()}});
  } else {
    fmt::print("{}: {} documents, {} tokens, {:.2f} bytes a token\n", o.out, file.documents(),
               file.tokens(),
               static_cast<double>(file.text_bytes()) / static_cast<double>(file.tokens()));
  }
  return 0;
}

}  // namespace

void add_data(CLI::App& app, int& status) {
  CLI::App* data =
      app.add_subcommand("data", "Tokenizers, packed files, and what a run reads at a step");
  data->require_subcommand(1);
  const std::vector<std::string> examples = {
      "myriad data tokenizer data/sample/documents.jsonl --vocabulary 2048 --out "
      "/tmp/tokenizer.json",
      "myriad data pack data/sample/documents.jsonl --tokenizer /tmp/tokenizer.json --out "
      "/tmp/sample.pack"};
  add_examples(*data, examples);
  auto o = std::make_shared<Options>();
  CLI::App* tokenizer = data->add_subcommand("tokenizer", "Trains a byte-level BPE on a corpus");
  CLI::App* pack =
      data->add_subcommand("pack", "Tokenises a corpus into one packed, checksummed file");
  for (CLI::App* c : {tokenizer, pack}) {
    c->add_option("CORPUS", o->corpus,
                  "A .jsonl or .txt file, .gz or .zst of one, or a folder of them")
        ->required();
    c->add_option("--out", o->out, "File to write")->required()->type_name("FILE");
    add_json(*c, o->json);
  }
  tokenizer->add_option("--vocabulary", o->vocabulary, "Tokens, at least 257")
      ->capture_default_str()
      ->check(CLI::Range(257, INT32_MAX));
  pack->add_option("--tokenizer", o->tokenizer,
                   "tokenizer.json, SentencePiece .model, or a folder with one")
      ->required()
      ->type_name("FILE");
  add_examples(*tokenizer, {examples[0]});
  add_examples(*pack, {examples[1]});
  add_data_encode(*data, status);
  add_data_show(*data, status);
  tokenizer->callback([o, &status] { status = run_tokenizer(*o); });
  pack->callback([o, &status] { status = run_pack(*o); });
}

}  // namespace myriad
