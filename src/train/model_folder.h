// The weights of a model in a folder: model.safetensors with published names, beside its
// config.json and tokenizer.json.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "ckpt/safetensors.h"
#include "train/job.h"

namespace myriad {

// In fp32, written aside and renamed. Throws Failure if the system refuses.
void write_weights(const Job& job, const std::filesystem::path& path);
// config.json as published.
void write_model_config(const ModelConfig& config, const std::filesystem::path& path);

// Where the model of a run, a checkpoint or a published folder lies: there, or in the newest
// checkpoint. Throws Error if there is none.
std::filesystem::path model_folder(const std::filesystem::path& from);
// model.safetensors of a folder; throws Error if it is missing, Failure if it is damaged.
std::vector<SafeTensors> open_weights(const std::filesystem::path& folder);
ModelConfig read_model_config(const std::filesystem::path& path);  // of a config.json

// Of a parameter in checkpoints. Labels other than the hidden one (d) are one dim there.
std::vector<int64_t> published_shape(const Param& param);

// The elements of one state, read from the tensors `names` that hold it in order (one, or one an
// expert), whichever file has each; adds the names to `used`. Throws Error naming file and tensor
// where one is missing or does not have the shape of `param`: a transposed matrix is refused.
std::vector<double> read_published(const std::vector<SafeTensors>& files,
                                   const std::vector<std::string>& names, const Param& param,
                                   std::set<std::string>& used);
// Throws Error naming file and tensor if `files` hold a tensor that is not in `used`.
void refuse_unused(const std::vector<SafeTensors>& files, const std::set<std::string>& used);

}  // namespace myriad
