// myriad data encode | decode
#include <memory>

#include "base/error.h"
#include "data/files.h"
#include "data/tokenizer.h"
#include "tools/commands.h"

namespace myriad {

namespace {

using Json = nlohmann::json;

struct Options {
  std::string tokenizer, in;
  bool json = false;
};

Json read_list(const std::string& path) {
  Json list;
  try {
    list = Json::parse(read_file(path));
  } catch (const Json::exception& e) {
    throw Error(fmt::format("not JSON: {}", e.what()), path);
  }
  if (!list.is_array()) throw Error("not a JSON list", path);
  return list;
}

std::string where(const std::string& path, size_t i) { return fmt::format("{}: /{}", path, i); }

int run_encode(const Options& o) {
  const auto tokenizer = load_tokenizer(o.tokenizer);
  const Json texts = read_list(o.in);
  Json all = Json::array();
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].is_string()) throw Error("not a string", where(o.in, i));
    try {
      all.push_back(tokenizer->encode_with_added(texts[i].get_ref<const std::string&>()));
    } catch (const Error& e) {
      throw Error(e.what(), where(o.in, i));
    }
    if (!o.json) fmt::print("{}\n", all.back().dump());
  }
  if (o.json) print_json(all);
  return 0;
}

std::vector<int32_t> read_ids(const Json& list, const std::string& place) {
  if (!list.is_array()) throw Error("not a list of ids", place);
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id != id.get<int32_t>()) {
      throw Error(fmt::format("{} is not an id", id.dump()), place);
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

int run_decode(const Options& o) {
  const auto tokenizer = load_tokenizer(o.tokenizer);
  const Json lists = read_list(o.in);
  Json all = Json::array();
  for (size_t i = 0; i < lists.size(); ++i) {
    const std::vector<int32_t> ids = read_ids(lists[i], where(o.in, i));
    try {
      all.push_back(tokenizer->decode_text(ids));
    } catch (const Error& e) {
      throw Error(e.what(), where(o.in, i));
    }
    if (!o.json) fmt::print("{}\n", all.back().dump());
  }
  if (o.json) print_json(all);
  return 0;
}

}  // namespace

void add_data_encode(CLI::App& data, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* encode =
      data.add_subcommand("encode", "Texts to ids; added tokens in a text become their ids");
  CLI::App* decode = data.add_subcommand("decode", "Ids to texts, special tokens kept");
  encode->add_option("--in", o->in, "JSON list of strings")->required()->type_name("FILE");
  decode->add_option("--in", o->in, "JSON list of lists of ids")->required()->type_name("FILE");
  for (CLI::App* c : {encode, decode}) {
    c->add_option("--tokenizer", o->tokenizer,
                  "tokenizer.json, SentencePiece .model, or a folder with one")
        ->required()
        ->type_name("FILE");
    add_json(*c, o->json);
  }
  add_examples(*encode, {"myriad data encode --tokenizer tokenizer.json --in texts.json --json"});
  add_examples(*decode, {"myriad data decode --tokenizer tokenizer.json --in ids.json --json"});
  encode->callback([o, &status] { status = run_encode(*o); });
  decode->callback([o, &status] { status = run_decode(*o); });
}

}  // namespace myriad
