// What the tests of configurations share.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "model/config.h"

namespace myriad {

inline nlohmann::json golden(const std::string& name, const char* file = "config") {
  std::ifstream in(fmt::format("{}/tests/golden/{}/{}.json", MYRIAD_SOURCE, name, file));
  return nlohmann::json::parse(in);
}

// What read_config says of `config` after `change`.
template <typename F>
std::string refusal(nlohmann::json config, F change) {
  change(config);
  try {
    read_config(config, "some/config.json");
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("some/config.json"), std::string::npos) << e.what();
    return e.what();
  }
  return "accepted";
}

#define EXPECT_REFUSED(config, change, part)                                                  \
  EXPECT_NE(refusal(config, [](nlohmann::json& c) { change; }).find(part), std::string::npos) \
      << refusal(config, [](nlohmann::json& c) { change; })

}  // namespace myriad
