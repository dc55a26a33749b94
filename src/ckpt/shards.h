// The weights of a Hugging Face folder: model.safetensors, or shards named by
// model.safetensors.index.json.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/env.h"
#include "ckpt/safetensors.h"

namespace myriad {

// Throws Error naming file and key if a shard is missing, the index is no index, a tensor is not
// where the index says, or a shard holds one that the index lacks.
std::vector<SafeTensors> open_shards(const std::filesystem::path& folder);

// Fills shards with tensors, in the order given, until the next would pass shard_bytes; one shard
// is model.safetensors without an index. Equal tensors in equal order give equal bytes.
Outcome write_shards(Env& env, const std::filesystem::path& folder,
                     std::span<const TensorSource> tensors, uint64_t shard_bytes);

}  // namespace myriad
