// The expert part of a config.json; used inside model/ only.
#pragma once

#include "model/config.h"
#include "model/config_keys.h"

namespace myriad {

// `c` has its family, its layers and its ffn already. Throws Error as read_config does.
void read_experts(const Keys& k, ModelConfig& c);
// Adds the keys that read_experts reads; nothing for a dense model.
void write_experts(const ModelConfig& c, nlohmann::json& j);

}  // namespace myriad
