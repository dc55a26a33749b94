#include "ckpt/shards.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

namespace myriad {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::map<std::string, std::string> read_index(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot be opened", path);
  const json index = json::parse(in, nullptr, false);
  if (index.is_discarded()) throw Damage("is not JSON", path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object() ||
      index["weight_map"].empty())
    throw Damage("weight_map is missing: an object of tensor and file", path);
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().empty() ||
        fs::path(file.get<std::string>()).has_parent_path())
      throw Error(
          fmt::format("weight_map has {} for {}, not a file of its folder", file.dump(), tensor),
          path);
    files[tensor] = file.get<std::string>();
  }
  return files;
}

}  // namespace

std::vector<SafeTensors> open_shards(const fs::path& folder) {
  if (fs::exists(folder / kWhole)) return {SafeTensors::open(folder / kWhole)};
  const fs::path index = folder / kIndex;
  if (!fs::exists(index))
    throw Error(fmt::format("neither {} nor {} is there", kWhole, kIndex), folder);
  const std::map<std::string, std::string> files = read_index(index);
  std::map<std::string, SafeTensors> shards;
  for (const auto& [tensor, file] : files) {
    if (!fs::exists(folder / file))
      throw Damage(fmt::format("{} is said to lie in {}, which is missing", tensor, file), index);
    if (!shards.count(file)) shards.emplace(file, SafeTensors::open(folder / file));
    if (!shards.at(file).has(tensor))
      throw Damage(fmt::format("{} is said to lie in {}, which has no such tensor", tensor, file),
                   index);
  }
  std::vector<SafeTensors> out;
  for (auto& [file, shard] : shards) {
    for (const std::string& tensor : shard.names()) {
      const auto at = files.find(tensor);
      if (at == files.end() || at->second != file)
        throw Damage(fmt::format("holds {}, which {} does not place there", tensor, kIndex),
                     folder / file);
    }
    out.push_back(std::move(shard));
  }
  return out;
}

Outcome write_shards(Env& env, const fs::path& folder, std::span<const TensorSource> tensors,
                     uint64_t shard_bytes) {
  std::vector<std::span<const TensorSource>> shards;
  uint64_t bytes = 0, total = 0;
  size_t first = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t size = tensors[i].size();
    if (i > first && bytes + size > shard_bytes) {
      shards.push_back(tensors.subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += size;
    total += size;
  }
  shards.push_back(tensors.subspan(first));
  json map = json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? kWhole
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    NewFile file(env, folder / name);
    stream_safetensors(file, shards[i]);
    if (Outcome o = file.finish(); !o.ok()) return o;
    for (const TensorSource& t : shards[i]) map[t.name] = name;
  }
  if (shards.size() == 1) return {};
  NewFile file(env, folder / kIndex);
  file.write(json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
  return file.finish();
}

}  // namespace myriad
