// Cluster files and the cost law. Broken files must be refused with the key and the line; prices of
// groups, collectives and products are compared with values that are worked out by hand.
#include "cluster/cluster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "cluster/cost.h"
#include "cluster/write.h"

namespace myriad {
namespace {

const char* const kGood = R"(
device: {memory_bytes: 1e9, memory_bandwidth: 1e11, peak_flops: {bf16: 1e12}}
levels:
  - {name: node, devices: 8, bandwidth: 8e9, latency: 1e-6}
  - {name: net, bandwidth: 1e9, latency: 1e-5}
)";

std::string refusal(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  try {
    parse_cluster(text, "c.yaml");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(ClusterFile, RefusesWhatCannotBe) {
  parse_cluster(kGood, "c.yaml");
  const auto says = [](const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& p : parts)
      EXPECT_NE(message.find(p), std::string::npos) << message << " | " << p;
  };
  says(refusal(kGood, "memory_bytes: 1e9, ", ""),
       {"c.yaml:2", "device.memory_bytes is missing", "above 0"});
  says(refusal(kGood, "memory_bytes: 1e9", "memory_bytes: 0"),
       {"c.yaml:2", "device.memory_bytes must be a number above 0, not 0"});
  says(refusal(kGood, "bandwidth: 8e9", "bandwidth: 0"),
       {"c.yaml:4", "levels.node.bandwidth must be a number above 0, not 0"});
  says(refusal(kGood, "memory_bandwidth: 1e11", "memory_bandwidth: -1"),
       {"device.memory_bandwidth must be", "not -1"});
  says(refusal(kGood, "memory_bandwidth", "memory_bandwith"),
       {"unknown key device.memory_bandwith", "did you mean device.memory_bandwidth?"});
  says(refusal(kGood, "{bf16: 1e12}", "{}"),
       {"device.peak_flops must be FLOPs a second above 0", "bf16"});
  says(refusal(kGood, "{bf16: 1e12}", "{bf61: 1e12}"), {"unknown key device.peak_flops.bf61"});
  says(refusal(kGood, "name: net,", "name: net, devices: 12,"),
       {"levels.net joins 12 devices", "8", "16"});
  says(refusal(kGood, "devices: 8, ", ""), {"levels.node says no `devices`"});
  says(refusal(kGood, "latency: 1e-6", "latency: fast"),
       {"levels.node.latency must be", "not fast"});
  says(refusal(kGood, "levels:", "fitted: {device.depht: x}\nlevels:"), {"device.depht"});
  says(refusal(kGood, "latency: 1e-6", "latency: 1e-6, oversubscription: 0.5"),
       {"oversubscription must be a number of 1 or more, not 0.5", "nearest: 1"});
  says(refusal(kGood, "latency: 1e-6", "latency: {2: 1e-6, 0: 1e-5}"),
       {"c.yaml:4",
        "levels.node.latency's group size must be a number from 1 to 1000000000, not 0"});
  says(refusal(kGood, "latency: 1e-6", "latency: {2: }"), {"levels.node.latency.2 is missing"});
  says(refusal(kGood, "latency: 1e-6", "latency: {}"),
       {"levels.node.latency must be a number, or"});
  const auto tiles = [](const std::string& text) {
    return refusal(kGood, "peak_flops", "tiles: " + text + ",\n  peak_flops");
  };
  says(tiles("[[256, 128, 0.9],\n    [256, 0, 0.9]]"),
       {"c.yaml:3", "device.tiles.1.n must be a whole number from 1 to 1000000, not 0"});
  says(tiles("[[256, 128, 1.5]]"), {"device.tiles.0.share must be a number above 0 and at most 1"});
  for (const char* odd : {"[[256, 128]]", "[[256, 128, ]]", "[[256, 128, ~]]", "[256]"})
    says(tiles(odd), {"device.tiles.0 is not [m, n, share]", "[256, 128, 0.9]"});
  says(tiles("5"), {"device.tiles must be a list of [m, n, share], not 5"});
  const std::string device = std::string(kGood).substr(0, std::string(kGood).find("levels:"));
  says(refusal(device, "", ""), {"c.yaml:2", "levels is missing"});
  for (const char* none : {"levels:", "levels: []", "levels: {}", "levels: 1"})
    says(refusal(device + none, "", ""), {" must be a list of at least one level"});
  says(refusal(kGood, "levels:", "sources: {device.memory_bytes: }\nlevels:"),
       {"the source of device.memory_bytes is empty"});
  says(refusal(kGood, "levels:", "sources: {device.name: x}\nlevels:"), {"no number of the file"});
}

TEST(ClusterFile, AnAliasOfItselfIsRefusedOrUnread) {
  parse_cluster(std::string("about: &x {again: *x}\n") + kGood, "c.yaml");
  EXPECT_THROW(parse_cluster(std::string("name: &x [*x]\n") + kGood, "c.yaml"), Error);
}

TEST(ClusterFile, HoldsAtMostTwentyFiveFittedConstants) {
  std::string points;
  for (int i = 2; i < 28; ++i) points += fmt::format("{}{}: 1e9", i > 2 ? ", " : "", i);
  EXPECT_NE(
      refusal(kGood, "bandwidth: 8e9, latency: 1e-6}",
              "bandwidth: {" + points + "}, latency: 1e-6}\nfitted: {levels.node.bandwidth: x}")
          .find("26 fitted"),
      0u);
}

TEST(ClusterFile, SourcesNameNumbersByTheirKeys) {
  const Cluster c = parse_cluster(
      "device: {memory_bytes: 1e9, memory_bandwidth: 1e11, peak_flops: {bf16: 1e12},\n"
      "  units: 1e2, tiles: [[32, 32, 0.8], [8, 8, 0.4]]}\n"
      "levels: [{name: net, bandwidth: {2: 1e9, 8: 2e9}, latency: 1e-5}]\n"
      "sources: {device.tiles.1: a, device.peak_flops: b, levels.net: c}\n"
      "fitted: {device.tiles: d, levels.net.bandwidth.8: e}\n",
      "c.yaml");
  EXPECT_EQ(c.device.units, 100);
  EXPECT_EQ(c.device.tiles, (std::vector<Tile>{{32, 32, 0.8}, {8, 8, 0.4}}));
  EXPECT_EQ(c.sources.size(), 3u);
}

TEST(ClusterFile, ShippedFilesAreGoodAndSaySources) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MYRIAD_SOURCE "/clusters")) {
    if (entry.is_directory()) continue;  // systems
    const Cluster c = read_cluster(entry.path());
    EXPECT_EQ(c.name, entry.path().stem());
    EXPECT_FALSE(c.sources.empty());
    ++files;
  }
  EXPECT_GE(files, 10);
  EXPECT_THROW(cluster_file("no-such"), Error);
}

TEST(ClusterFile, WrittenAndReadAgainIsTheSame) {
  for (const auto& entry : std::filesystem::directory_iterator(MYRIAD_SOURCE "/clusters")) {
    if (entry.is_directory()) continue;
    const Cluster c = read_cluster(entry.path());
    const Cluster again = parse_cluster(write_cluster(c, "for people"), "again.yaml");
    EXPECT_EQ(again.name, c.name);
    EXPECT_TRUE(again.device == c.device) << c.name;
    EXPECT_TRUE(again.host == c.host) << c.name;
    EXPECT_TRUE(again.levels == c.levels) << c.name;
    EXPECT_EQ(again.devices, c.devices);
    EXPECT_EQ(again.sources, c.sources);
    EXPECT_EQ(again.fitted, c.fitted);
  }
}

TEST(ClusterFile, TheUsersOwnComesFirst) {
  const auto folder = std::filesystem::temp_directory_path() / "myriad_cluster_test";
  setenv("XDG_CONFIG_HOME", folder.c_str(), 1);
  EXPECT_NE(cluster_file("h100").find("clusters/h100.yaml"), std::string::npos);
  std::filesystem::create_directories(user_clusters());
  std::ofstream(user_clusters() + "/h100.yaml") << kGood;
  EXPECT_EQ(cluster_file("h100"), user_clusters() + "/h100.yaml");
  unsetenv("XDG_CONFIG_HOME");
  std::filesystem::remove_all(folder);
}

TEST(ClusterFile, ShippedOnesAreFoundFromTheExecutableAndWhereTheVariableSays) {
  const auto here = std::filesystem::current_path();
  const auto folder = std::filesystem::temp_directory_path() / "myriad_cluster_test_shipped";
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);  // no clusters/ here
  const std::string beside = cluster_file("h100");
  EXPECT_TRUE(std::filesystem::equivalent(beside, MYRIAD_SOURCE "/clusters/h100.yaml")) << beside;
  std::ofstream(folder / "h100.yaml") << kGood;
  setenv("MYRIAD_CLUSTERS", folder.c_str(), 1);
  EXPECT_EQ(cluster_file("h100"), folder / "h100.yaml");
  unsetenv("MYRIAD_CLUSTERS");
  std::filesystem::current_path(here);
  std::filesystem::remove_all(folder);
}

TEST(ClusterFile, RefusesMoreRanksThanDevices) {
  const Cluster c = parse_cluster(std::string("devices: 16\n") + kGood, "c.yaml");
  check_ranks(c, 16);
  EXPECT_THROW(check_ranks(c, 17), Error);
}

GroupShape shape(std::vector<int> group) { return shape_of(parse_cluster(kGood, "c"), group); }

TEST(CostLaw, PlacesGroups) {
  EXPECT_EQ(shape({0, 1, 2, 3}), (GroupShape{4, {4, 1, 1, 1}}));
  EXPECT_EQ(shape({0, 8, 16, 24}), (GroupShape{4, {1, 4, 1, 1}}));
  EXPECT_EQ(shape({0, 4, 8, 12}), (GroupShape{4, {2, 2, 1, 1}}));
  const Cluster c = parse_cluster(kGood, "c");
  const Mesh even({{"dp", 4}, {"tp", 8}}), odd({{"dp", 4}, {"tp", 3}});
  EXPECT_EQ(uniform_shape(c, even, {0}), (GroupShape{4, {1, 4, 1, 1}}));
  EXPECT_EQ(uniform_shape(c, odd, {1}).ranks, 0);
}

TEST(CostLaw, RingTreeHierarchyAndDirect) {
  const Cluster c = parse_cluster(kGood, "c");
  const GroupShape node{8, {8, 1, 1, 1}}, nodes{8, {1, 8, 1, 1}}, both{64, {8, 8, 1, 1}};
  const double big = 1e9;
  EXPECT_NEAR(collective_seconds(c, MoveKind::all_gather, big, node, 64).seconds,
              1e-6 + 7.0 / 8 * big / 8e9, 1e-12);
  EXPECT_NEAR(collective_seconds(c, MoveKind::all_reduce, big, node, 64).seconds,
              2 * (1e-6 + 7.0 / 8 * big / 8e9), 1e-12);
  EXPECT_NEAR(collective_seconds(c, MoveKind::reduce_scatter, big, nodes, 64).seconds,
              1e-5 + 7.0 / 8 * big / 1e9, 1e-12);
  // Eight members a node share its ports: as wide as the node's own network.
  const CollectiveCost flat = collective_seconds(c, MoveKind::all_reduce, big, both, 64);
  EXPECT_EQ(flat.algorithm, Algorithm::ring);
  EXPECT_NEAR(flat.seconds, 2 * (1e-5 + 63.0 / 64 * big / 8e9), 1e-9);
  EXPECT_NEAR(collective_seconds(c, MoveKind::all_to_all, big, both, 64).seconds,
              1e-5 + 56.0 / 64 * big / 1e9, 1e-9);
  EXPECT_EQ(collective_seconds(c, MoveKind::all_gather, big, {1, {1, 1, 1, 1}}, 64).seconds, 0);
  Cluster few = c;  // one port a node: eight devices share it
  few.levels[1].ports = 1;
  EXPECT_NEAR(collective_seconds(few, MoveKind::all_gather, big, nodes, 64).seconds,
              1e-5 + 7.0 / 8 * big / (1e9 / 8), 1e-9);
  EXPECT_NEAR(send_seconds(few, big, 0, 8, 64), 1e-5 + big / (1e9 / 8), 1e-9);
  few.levels[1].oversubscription = 2;
  EXPECT_NEAR(send_seconds(few, big, 0, 8, 64), 1e-5 + big / (1e9 / 16), 1e-9);
  EXPECT_NEAR(send_seconds(few, big, 0, 7, 64), 1e-6 + big / 8e9, 1e-12);
}

TEST(CostLaw, SmallCollectivesTakeAnotherProtocol) {
  std::string text = kGood;
  const std::string fast = "bandwidth: 8e9, latency: 1e-6";
  text.replace(
      text.find(fast), fast.size(),
      "bandwidth: 8e9, small_bytes: 1e6, small_bandwidth: {2: 1e9, 8: 4e9}, latency: 1e-6");
  const Cluster c = parse_cluster(text, "c");
  const GroupShape node{8, {8, 1, 1, 1}}, pair{2, {2, 1, 1, 1}};
  const auto seconds = [&](double bytes, const GroupShape& s) {
    return collective_seconds(c, MoveKind::all_gather, bytes, s, 8).seconds;
  };
  EXPECT_NEAR(seconds(1e6, node), 1e-6 + 7.0 / 8 * 1e6 / 8e9, 1e-12);
  EXPECT_NEAR(seconds(0.9e6, node), 1e-6 + 7.0 / 8 * 0.9e6 / 4e9, 1e-12);
  EXPECT_NEAR(seconds(0.9e6, pair), 1e-6 + 1.0 / 2 * 0.9e6 / 1e9, 1e-12);
  EXPECT_NE(refusal(text, "small_bandwidth: {2: 1e9, 8: 4e9}, ", "")
                .find("levels.node.small_bandwidth is missing"),
            std::string::npos);
}

TEST(CostLaw, MatrixProductsByWavesOfTiles) {
  Device d;
  d.units = 4;
  d.tiles = {{128, 128, 0.5}};
  d.depth = 0;
  const double peak = 1e12;
  EXPECT_NEAR(matrix_seconds(d, peak, {256, 256, 1024, 1}), 2.0 * 256 * 256 * 1024 / (0.5 * peak),
              1e-15);
  EXPECT_NEAR(matrix_seconds(d, peak, {256, 257, 1024, 1}),
              2 * 4 * 2.0 * 128 * 128 * 768 / (0.5 * peak),
              1e-9);  // six tiles, two waves; cut k helps
  EXPECT_GT(matrix_seconds(d, peak, {1, 1, 1024, 1}), 100 * 2.0 * 1024 / peak);
  Device plain;
  plain.tiles = {{1, 1, 1}};
  EXPECT_NEAR(matrix_seconds(plain, peak, {3, 5, 7, 2}), 2.0 * 3 * 5 * 7 * 2 / peak, 1e-18);
}

TEST(CostLaw, CurvesAreLinearInTheLogarithm) {
  const Curve c{{{2, 10}, {8, 30}}};
  EXPECT_EQ(c.at(1), 10);
  EXPECT_NEAR(c.at(4), 20, 1e-12);
  EXPECT_EQ(c.at(100), 30);
}

}  // namespace
}  // namespace myriad
