// Weights and config.json in a folder, and how a parameter of ours maps to published tensors.
//
// Our parameters have more dims than the published matrices (heads, groups and widths are separate
// labels), but the same elements in the same order; published_shape joins neighbouring labels other
// than the hidden one, so no element moves. The exception is experts, which are one parameter here
// and one tensor each there: their names are listed in order and the tensors are read one after
// another. Shapes are compared, so a transposed matrix is refused unless it is square. Read
// train/model_folder.h first.
#include "train/model_folder.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/shards.h"
#include "data/files.h"

namespace myriad {

std::vector<int64_t> published_shape(const Param& param) {
  std::vector<int64_t> shape;
  bool joined = false;  // the next label may be joined to the last dim
  for (size_t i = param.published.find("{e}") != std::string::npos ? 1 : 0; i < param.labels.size();
       ++i) {  // experts have a tensor each
    const bool hidden = param.labels[i] == 'd';
    if (joined && !hidden) {
      shape.back() *= param.sizes[i];
    } else {
      shape.push_back(param.sizes[i]);
    }
    joined = !hidden;
  }
  return shape;
}

std::vector<double> read_published(const std::vector<SafeTensors>& files,
                                   const std::vector<std::string>& names, const Param& param,
                                   std::set<std::string>& used) {
  const std::vector<int64_t> shape = published_shape(param);
  std::vector<double> data;
  for (const std::string& name : names) {
    const auto file =
        std::find_if(files.begin(), files.end(), [&](const SafeTensors& f) { return f.has(name); });
    if (file == files.end())
      throw Error(fmt::format("no tensor {}", name), files.empty() ? "weights" : files[0].path());
    const std::vector<int64_t>& found = file->info(name).shape;
    if (found != shape) {
      throw Error(fmt::format("tensor {} has shape [{}], the model needs [{}]", name,
                              fmt::join(found, ", "), fmt::join(shape, ", ")),
                  file->path());
    }
    const std::vector<double> x = file->doubles(name);
    data.insert(data.end(), x.begin(), x.end());
    used.insert(name);
  }
  return data;
}

void refuse_unused(const std::vector<SafeTensors>& files, const std::set<std::string>& used) {
  for (const SafeTensors& f : files) {
    for (const std::string& name : f.names()) {
      if (!used.contains(name))
        throw Error(fmt::format("tensor {} has no place in the model", name), f.path());
    }
  }
}

void write_weights(const Job& job, const std::filesystem::path& path) {
  const Pieces& pieces = job.pieces();
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::vector<float>> data;
  for (size_t unit = 0; unit < pieces.units.size(); ++unit) {
    for (const Param& p : pieces.pieces[pieces.units[unit]].params) {
      if (p.tied) continue;
      for (const std::string& name : job.published(static_cast<int>(unit), p.name)) {
        names.push_back(name);
        shapes.push_back(published_shape(p));
        const std::vector<double> values = job.parameter(name);
        data.emplace_back(values.begin(), values.end());
      }
    }
  }
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < names.size(); ++i) {
    entries.push_back({.name = names[i],
                       .type = Stored::f32,
                       .shape = shapes[i],
                       .bytes = std::as_bytes(std::span(data[i]))});
  }
  if (const Outcome o = write_safetensors(path, entries); !o.ok()) throw Failure(o.reason);
}

void write_model_config(const ModelConfig& config, const std::filesystem::path& path) {
  write_file_aside(path, write_config(config).dump(2) + "\n");
}

std::filesystem::path model_folder(const std::filesystem::path& from) {
  if (!std::filesystem::is_directory(from))
    throw Error("no such folder", from, "a run, a checkpoint or a model");
  const bool has = std::filesystem::exists(from / "model.safetensors") ||
                   std::filesystem::exists(from / "model.safetensors.index.json");
  return has ? from : find_checkpoint(from);
}

std::vector<SafeTensors> open_weights(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "model.safetensors") &&
      !std::filesystem::exists(folder / "model.safetensors.index.json"))
    throw Error("no weights: neither model.safetensors nor model.safetensors.index.json", folder);
  return open_shards(folder);
}

ModelConfig read_model_config(const std::filesystem::path& path) {
  try {
    return read_config(nlohmann::json::parse(read_file(path)), path);
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("is not JSON: {}", e.what()), path);
  }
}

}  // namespace myriad
