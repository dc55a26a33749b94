// Saves and restores the state of a run, decides whether a run may resume, and exports models.
//
// Tensors are written whole under their published names, so a checkpoint knows nothing of the
// layout that made it and any layout can restore it. They are gathered only when it is their turn
// to be written, so saving needs memory for a few tensors and not for the model. Whether a
// checkpoint belongs to a run is a comparison of flat configurations, in which everything counts
// unless is_free names it: a difference in a key that is added later is refused by default. An
// export is written into a folder beside its destination and renamed once it is complete, so a
// folder under the final name is always whole. Read train/checkpoint.h and ckpt/checkpoint.h first.
#include "train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/yaml.h"
#include "ckpt/shards.h"
#include "data/files.h"
#include "train/model_folder.h"

namespace myriad {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

struct StateFile {
  char kind;
  const char* name;
};
constexpr StateFile kStateFiles[] = {{'p', "model.safetensors"},
                                     {'m', "first_moments.safetensors"},
                                     {'v', "second_moments.safetensors"}};

// Gathers states when they are asked for. Tensors are asked for in the order of their names, in
// which those of several states alternate (the experts' of a layer), so the last few states are
// kept.
class StateReader {
 public:
  explicit StateReader(const Executor& executor) : executor_(executor) {}
  std::shared_ptr<const std::vector<double>> of(int index) {
    for (const auto& [i, data] : recent_) {
      if (i == index) return data;
    }
    if (recent_.size() == 4) recent_.erase(recent_.begin());
    recent_.emplace_back(index, std::make_shared<std::vector<double>>(get_state(executor_, index)));
    return recent_.back().second;
  }

 private:
  const Executor& executor_;
  std::vector<std::pair<int, std::shared_ptr<const std::vector<double>>>> recent_;
};

template <typename T>
std::vector<std::byte> stored(std::span<const double> values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T x = static_cast<T>(values[i]);
    std::memcpy(out.data() + i * sizeof(T), &x, sizeof(T));
  }
  return out;
}

const Param& param_of(Job& job, const State& state) {
  const Piece& piece =
      job.pieces().pieces[static_cast<size_t>(job.pieces().units[static_cast<size_t>(state.unit)])];
  return piece.params[static_cast<size_t>(piece.find(state.name.of))];
}

// Calls f(index, published names, param) for every state of a kind.
template <typename F>
void for_each_state(Job& job, char kind, const F& f) {
  const Program& program = job.train().program;
  for (size_t i = 0; i < program.states.size(); ++i) {
    const State& s = program.states[i];
    if (letter_of(s.name.kind) != kind) continue;
    f(static_cast<int>(i), job.published(s.unit, s.name.of), param_of(job, s));
  }
}

std::vector<TensorSource> sources_of(Job& job, char kind) {
  const auto reader = std::make_shared<StateReader>(*job.train().executor);
  const bool wide = job.config().real == DType::f64;
  std::vector<TensorSource> out;
  for_each_state(job, kind,
                 [&](int index, const std::vector<std::string>& names, const Param& param) {
                   for (size_t e = 0; e < names.size(); ++e) {
                     const auto bytes = [reader, index, e, parts = names.size(), wide] {
                       const auto whole = reader->of(index);
                       const size_t n = whole->size() / parts;
                       const std::span<const double> part(whole->data() + e * n, n);
                       return wide ? stored<double>(part) : stored<float>(part);
                     };
                     out.push_back({.name = names[e],
                                    .type = wide ? Stored::f64 : Stored::f32,
                                    .shape = published_shape(param),
                                    .bytes = bytes});
                   }
                 });
  return out;
}

void restore_states(Job& job, char kind, const std::vector<SafeTensors>& files) {
  std::set<std::string> used;
  for_each_state(job, kind,
                 [&](int index, const std::vector<std::string>& names, const Param& param) {
                   const std::vector<double> data = read_published(files, names, param, used);
                   set_state(*job.train().executor, index,
                             [&](int64_t i) { return data[static_cast<size_t>(i)]; });
                 });
  refuse_unused(files, used);
}

bool within(const std::string& key, const std::string& above) {
  return key == above || key.starts_with(above + ".");
}

// Whether a change of the key leaves the meaning of the run as it is. Router losses are computed
// for each micro-batch, so the number of micro-batches matters where the saved model has the key
// `routing`.
bool is_free(const std::string& key, const std::map<std::string, std::string>& saved) {
  if (key == "layout.micro_batches" || key == "layout.expert_rows_bound")
    return !saved.contains("model.routing");
  for (const char* free :
       {"name", "layout", "generate", "cluster", "data.cache", "train.workers", "train.kernels",
        "train.evaluate_every", "train.save_every", "train.keep"}) {
    if (within(key, free)) return true;
  }
  return false;
}

// Compares numbers within names by value: layers.2 comes before layers.10.
bool before_by_number(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    size_t m = i, n = j;
    while (m < a.size() && digit(a[m])) ++m;
    while (n < b.size() && digit(b[n])) ++n;
    if (m - i != n - j) return m - i < n - j;
    if (const int c = a.compare(i, m - i, b, j, n - j); c != 0) return c < 0;
    i = m, j = n;
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

std::map<std::string, std::string> flat_configuration(const RunConfig& config) {
  return flatten(YAML::Load(write_run(config)));
}

Manifest manifest_of(const RunConfig& config, const TextData& text, int64_t step) {
  Manifest manifest{.step = step,
                    .data_position = step + 1,
                    .tokenizer_hash = fmt::format("{:016x}", text.tokenizer->hash()),
                    .data_hash = text.data_hash(),
                    .configuration = flat_configuration(config),
                    .files = {}};
  manifest.configuration["data.order_version"] = std::to_string(kSampleOrderVersion);
  return manifest;
}

Outcome save_run(Env& env, const fs::path& run, Job& job, const RunConfig& config,
                 const TextData& text, int64_t step) {
  std::vector<std::pair<std::string, Fill>> files;
  for (const StateFile& f : kStateFiles) {
    files.emplace_back(f.name, [&job, kind = f.kind](NewFile& to) {
      stream_safetensors(to, sources_of(job, kind));
    });
  }
  files.emplace_back("config.json",
                     [&](NewFile& to) { to.write(write_config(config.model).dump(2) + "\n"); });
  files.emplace_back("config.yaml", [&](NewFile& to) { to.write(write_run(config)); });
  for (const auto& [name, bytes] : text.tokenizer_files)
    files.emplace_back(name, [&bytes = bytes](NewFile& to) { to.write(bytes); });
  return save_checkpoint(env, run, manifest_of(config, text, step), files, config.train.keep);
}

void restore_run(Job& job, const fs::path& checkpoint) {
  const std::vector<std::string> wrong = damage(checkpoint);
  if (!wrong.empty()) {
    throw Failure(fmt::format(
        "{} is damaged:\n  {}\n  hint: --resume takes an older checkpoint by its folder",
        checkpoint.string(), fmt::join(wrong, "\n  ")));
  }
  for (const StateFile& f : kStateFiles)
    restore_states(job, f.kind, {SafeTensors::open(checkpoint / f.name)});
}

void check_same_run(const Manifest& saved, const Manifest& now,
                    const std::vector<std::string>& allowed) {
  std::map<std::string, std::string> a = saved.configuration, b = now.configuration;
  a["data.tokenizer"] = saved.tokenizer_hash;
  b["data.tokenizer"] = now.tokenizer_hash;
  a["data.documents"] = saved.data_hash;
  b["data.documents"] = now.data_hash;
  std::set<std::string> keys;
  for (const auto* m : {&a, &b}) {
    for (const auto& [key, value] : *m) keys.insert(key);
  }
  std::vector<std::string> lines;
  std::string first;
  const auto shown = [](const std::map<std::string, std::string>& m, const std::string& key) {
    return m.contains(key) ? m.at(key) : std::string("not there");
  };
  for (const std::string& key : keys) {
    if (shown(a, key) == shown(b, key) || is_free(key, a)) continue;
    if (std::any_of(allowed.begin(), allowed.end(),
                    [&](const std::string& k) { return within(key, k); }))
      continue;
    if (first.empty()) first = key;
    lines.push_back(fmt::format("\n  {}: was {}, is {}", key, shown(a, key), shown(b, key)));
  }
  if (lines.empty()) return;
  throw Error(
      fmt::format("this is another run than the one of the checkpoint:{}", fmt::join(lines, "")),
      "--resume", fmt::format("--allow {} goes on all the same", first));
}

std::string metrics_up_to(const std::string& lines, int64_t step) {
  std::string out;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    if (end == std::string::npos) break;  // the run died within this line
    const std::string line = lines.substr(at, end + 1 - at);
    const json j = json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("step") || !j["step"].is_number_integer())
      throw Error(fmt::format("the line at offset {} is no JSON with a step", at), "metrics.jsonl");
    if (j["step"].get<int64_t>() <= step) out += line;
    at = end + 1;
  }
  return out;
}

namespace {

std::vector<TensorSource> weight_sources(const std::vector<SafeTensors>& files,
                                         const ModelConfig& model, DType dtype) {
  const bool narrow = dtype == DType::bf16;
  std::vector<TensorSource> out;
  int64_t elements = 0;
  for (const SafeTensors& file : files) {
    for (const std::string& name : file.names()) {
      if (model.tied && name == "lm_head.weight") continue;  // a copy of the embedding
      out.push_back({.name = name,
                     .type = narrow ? Stored::bf16 : Stored::f32,
                     .shape = file.info(name).shape,
                     .bytes = [&file, name, narrow] {
                       const std::vector<double> x = file.doubles(name);
                       return narrow ? stored<Bf16>(x) : stored<float>(x);
                     }});
      elements += file.info(name).elements();
    }
  }
  if (elements != parameter_count(model)) {
    throw Error(fmt::format("the weights have {} parameters, config.json asks for {}", elements,
                            parameter_count(model)),
                files[0].path());
  }
  std::sort(out.begin(), out.end(), [](const TensorSource& a, const TensorSource& b) {
    return before_by_number(a.name, b.name);
  });
  return out;
}

Outcome put(Env& env, const fs::path& path, const std::string& text) {
  NewFile file(env, path);
  file.write(text);
  return file.finish();
}

// The type that the config.json of a published folder states (Transformers 5 calls the key dtype).
DType published_type(const json& config) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (config.contains(key) && config[key] == "bfloat16") return DType::bf16;
  }
  return DType::f32;
}

Outcome write_export(Env& env, const fs::path& source, const fs::path& out, uint64_t shard_bytes,
                     std::optional<DType> asked) {
  const ModelConfig model = read_model_config(source / "config.json");
  json config = write_config(model), generation = {{"_from_model_config", true}};
  const json before = json::parse(read_file(source / "config.json"));
  const DType dtype = asked.value_or(published_type(before));
  config["torch_dtype"] = dtype == DType::bf16 ? "bfloat16" : "float32";
  std::vector<std::pair<std::string, std::string>> tokenizer;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"}) {
    if (fs::exists(source / name)) tokenizer.emplace_back(name, read_file(source / name));
  }
  if (!tokenizer.empty()) {
    if (const int32_t end = load_tokenizer(source)->end_of_text(); end >= 0) {
      for (json* j : {&config, &generation}) {
        (*j)["bos_token_id"] = end;  // every document begins with it too
        (*j)["eos_token_id"] = end;
      }
    }
  }
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (before.contains(key)) config[key] = generation[key] = before[key];
  }
  const fs::path published = source / "generation_config.json";
  const std::string generation_text =
      fs::exists(published) ? read_file(published) : generation.dump(2) + "\n";
  const std::vector<SafeTensors> weights = open_shards(source);
  Outcome o = write_shards(env, out, weight_sources(weights, model, dtype), shard_bytes);
  if (o.ok()) o = put(env, out / "config.json", config.dump(2) + "\n");
  if (o.ok()) o = put(env, out / "generation_config.json", generation_text);
  for (const auto& [name, bytes] : tokenizer) {
    if (o.ok()) o = put(env, out / name, bytes);
  }
  return o.ok() ? env.flush(out) : o;
}

}  // namespace

void export_model(Env& env, const fs::path& from, const fs::path& given, uint64_t shard_bytes,
                  std::optional<DType> dtype) {
  const fs::path source = model_folder(from),
                 out = given.has_filename() ? given : given.parent_path(),
                 part = out.string() + ".part";
  if (fs::exists(out) && !(fs::is_directory(out) && fs::is_empty(out)))
    throw Error("is there already", out, "--out names a folder that does not exist or is empty");
  std::error_code failed;
  if (out.has_parent_path()) fs::create_directories(out.parent_path(), failed);
  Outcome o = env.remove(part);
  if (o.ok()) o = env.make_folder(part);
  try {
    if (o.ok()) o = write_export(env, source, part, shard_bytes, dtype);
  } catch (...) {
    fs::remove_all(part, failed);
    throw;
  }
  if (o.ok() && fs::exists(out)) o = env.remove(out);
  if (o.ok()) o = env.rename(part, out);
  if (o.ok()) o = env.flush(out.has_parent_path() ? out.parent_path() : fs::path("."));
  if (o.ok()) return;
  fs::remove_all(part, failed);
  throw Failure(o.reason);
}

}  // namespace myriad
