// Opens a model for use: finds its folder, its tokenizer, and the tokens that begin and end texts.
//
// The hard part is the first token, because published folders say it in several places that need
// not agree. They are asked from the most explicit to the least: the setting add_bos_token, then
// the template of tokenizer.json, and bos_token_id only where there is neither. For a run of ours
// it is always the end-of-text token, because every document that it trained on begins with that.
// Read train/open_model.h first, then open_model.
#include "train/open_model.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "data/files.h"
#include "train/model_folder.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kUntold = 2048;  // usual context of a model that states none

json read_json(const fs::path& path) {
  if (!fs::exists(path)) return json::object();
  json j;
  try {
    j = json::parse(read_file(path));
  } catch (const json::exception& e) {
    throw Error(fmt::format("not JSON: {}", e.what()), path);
  }
  if (!j.is_object()) throw Error("not a JSON object", path);
  return j;
}

int64_t trained_sequence(const fs::path& path) {
  try {
    return YAML::LoadFile(path)["train"]["sequence_length"].as<int64_t>();
  } catch (const YAML::Exception& e) {
    throw Failure(fmt::format("{}: no train.sequence_length: {}", path.string(), e.what()));
  }
}

// The ids of `key`, which may be one number or a list, from generation_config.json, or else from
// config.json.
std::vector<int32_t> ids_of(const fs::path& folder, const char* key) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const json j = read_json(folder / name);
    const auto at = j.find(key);
    if (at == j.end() || at->is_null()) continue;
    const auto refuse = [&] {
      throw Error(fmt::format("{} is {}, not a token or a list of tokens", key, at->dump()),
                  folder / name);
    };
    std::vector<int32_t> ids;
    for (const json& id : at->is_array() ? *at : json::array({*at})) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) refuse();
      ids.push_back(id.get<int32_t>());
    }
    if (!ids.empty()) return ids;
  }
  return {};
}

// The special token that a template puts before a text ("" for none), if there is a template.
std::optional<std::string> first_of_template(const json& processor) {
  if (!processor.is_object()) return std::nullopt;
  if (processor.value("type", "") == "Sequence") {
    for (const json& inner : processor.value("processors", json::array())) {
      if (auto found = first_of_template(inner)) return found;
    }
    return std::nullopt;
  }
  if (processor.value("type", "") != "TemplateProcessing") return std::nullopt;
  const json single = processor.value("single", json::array());
  if (!single.is_array() || single.empty() || !single[0].contains("SpecialToken")) return "";
  return single[0]["SpecialToken"].value("id", "");
}

int32_t id_of(const Tokenizer& tokenizer, const std::string& name, const fs::path& file) {
  const std::vector<int32_t> ids = tokenizer.encode_with_added(name);
  if (ids.size() != 1) throw Error(fmt::format("\"{}\" is no token", name), file);
  return ids[0];
}

int32_t published_first_token(const fs::path& folder, const Tokenizer& tokenizer) {
  const std::vector<int32_t> told = ids_of(folder, "bos_token_id");
  const int32_t bos = told.empty() ? -1 : told[0];
  const json config = read_json(folder / "tokenizer_config.json");
  if (const auto at = config.find("add_bos_token"); at != config.end() && at->is_boolean())
    return at->get<bool>() ? bos : -1;
  if (fs::exists(folder / "tokenizer.json")) {
    const json file = read_json(folder / "tokenizer.json");
    if (const auto name = first_of_template(file.value("post_processor", json())))
      return name->empty() ? -1 : id_of(tokenizer, *name, folder / "tokenizer.json");
    if (!config.empty()) return -1;
  }
  return bos;
}

int64_t most_context(const ModelConfig& m, int64_t trained) {
  int64_t most = m.positions;
  if (m.family == Family::gpt2) return most;
  // Beyond training_seqlen TeleChat2 uses another rotation for all positions, so the keys that are
  // cached already would be wrong.
  if (m.rope.kind == RopeKind::telechat && m.rope.training_seqlen > 0)
    most = most > 0 ? std::min(most, m.rope.training_seqlen) : m.rope.training_seqlen;
  return most > 0 ? std::max(most, trained) : 0;
}

}  // namespace

OpenModel open_model(const fs::path& path) {
  OpenModel m;
  m.folder = model_folder(path);
  m.model = read_model_config(m.folder / "config.json");
  m.model.moe.routing = {};
  try {
    m.tokenizer = load_tokenizer(m.folder);
  } catch (const Error& e) {
    throw Error(e.what(), "", "a run, a checkpoint or a Hugging Face folder holds its tokenizer");
  }
  m.weights = open_weights(m.folder);
  const bool of_a_run = fs::exists(m.folder / "config.yaml");
  const int64_t trained = of_a_run ? trained_sequence(m.folder / "config.yaml") : 0;
  m.first_token =
      of_a_run ? m.tokenizer->end_of_text() : published_first_token(m.folder, *m.tokenizer);
  m.end_tokens = ids_of(m.folder, "eos_token_id");
  if (m.end_tokens.empty() && m.tokenizer->end_of_text() >= 0)
    m.end_tokens = {m.tokenizer->end_of_text()};
  m.most_context = most_context(m.model, trained);
  m.usual_context = trained > 0 ? trained : m.most_context > 0 ? m.most_context : kUntold;
  if (m.first_token >= m.model.vocabulary)
    throw Error(fmt::format("texts begin with token {}, the model has {}", m.first_token,
                            m.model.vocabulary),
                m.folder);
  return m;
}

int64_t OpenModel::context(int64_t asked, const char* option) const {
  if (asked == 0) return usual_context;
  if (asked < 1 || (most_context > 0 && asked > most_context)) {
    throw Error(most_context > 0
                    ? fmt::format("must be from 1 to {}, for which the model was made, not {}",
                                  most_context, asked)
                    : fmt::format("must be 1 or more, not {}", asked),
                option, fmt::format("nearest: {}", asked < 1 ? 1 : most_context));
  }
  return asked;
}

std::vector<int32_t> OpenModel::encode(const std::string& text, bool with_added) const {
  std::vector<int32_t> ids;
  if (first_token >= 0) ids.push_back(first_token);
  if (with_added) {
    tokenizer->encode_with_added_onto(text, ids);
  } else {
    tokenizer->encode_onto(text, ids);
  }
  for (int32_t id : ids) {
    if (id >= model.vocabulary) {
      throw Error(
          fmt::format("the text has token {}, the model has {} tokens", id, model.vocabulary),
          folder, "the tokenizer of another model?");
    }
  }
  return ids;
}

}  // namespace myriad
