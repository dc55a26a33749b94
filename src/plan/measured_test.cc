// Measurements read from the shipped files, and the gates that a quick test can hold.
#include "plan/measured.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "plan/accuracy.h"

namespace myriad {
namespace {

std::string data(const char* file) {
  return std::string(MYRIAD_SOURCE "/tests/predictions/") + file;
}

struct Result {
  Accuracy all;
  std::vector<Priced> priced;
  std::vector<Measured> rows;
};

// Rows whose name has `part` but not `without`.
Result price(const std::string& file, const std::string& part, const char* cluster, int ranks = 2,
             const std::string& without = "?") {
  Bench bench(read_measured(file), shipped_systems(), {.ranks = ranks});
  std::vector<size_t> at;
  Result r;
  for (size_t i = 0; i < bench.rows().size(); ++i) {
    const std::string& id = bench.rows()[i].id;
    if (id.find(part) == id.npos || id.find(without) != id.npos) continue;
    at.push_back(i);
    const std::string name = cluster ? cluster : bench.rows()[i].cluster;
    r.priced.push_back(bench.price(i, read_cluster(cluster_file(name))));
    r.rows.push_back(bench.rows()[i]);
  }
  r.all = accuracy(bench.rows(), at, r.priced);
  return r;
}

TEST(Systems, AreFoundWhereTheUsersOwnClusterHidesAShippedOne) {
  const auto folder = std::filesystem::temp_directory_path() / "myriad_measured_test";
  std::filesystem::create_directories(folder / "myriad/clusters");
  setenv("XDG_CONFIG_HOME", folder.c_str(), 1);
  std::filesystem::copy_file(MYRIAD_SOURCE "/clusters/laptop.yaml",
                             folder / "myriad/clusters/laptop.yaml");  // as `myriad calibrate` does
  EXPECT_FALSE(shipped_systems().empty());
  unsetenv("XDG_CONFIG_HOME");
  std::filesystem::remove_all(folder);
}

TEST(Measured, ReadsEachKindByItsHeader) {
  const auto runs = read_measured(data("runs.csv"));
  EXPECT_EQ(runs[0].id, "sc21-001");
  EXPECT_NEAR(runs[0].step_seconds, 3.53, 0.01);  // by the paper's formula, as the row notes
  EXPECT_EQ(runs[0].cluster, "a100-80-selene");
  const auto vtrain = read_measured(data("vtrain_multi.csv"));
  EXPECT_EQ(vtrain[0].run.plan.dp, 64);
  EXPECT_NEAR(vtrain[0].step_seconds, 3.5665, 1e-9);
  const auto b200 = read_measured(data("b200_8gpu.csv"));
  EXPECT_EQ(b200[1].run.plan.tp, 4);
  EXPECT_EQ(b200[1].run.plan.micro_batches, 4);
  EXPECT_FALSE(b200[3].skipped.empty());
  EXPECT_GT(read_measured(data("nccl_allreduce_a100_8gpu.csv"))[0].message_bytes, 0);
  EXPECT_THROW(read_measured(data("no_such.csv")), Error);
}

TEST(Measured, QuotesAndShortRecords) {
  const std::string path = std::filesystem::temp_directory_path() / "myriad_measured_test.csv";
  std::ofstream(path) << "a,b\n\"x, \"\"y\"\"\",2\n";
  EXPECT_EQ(read_csv(path)[0].at("a"), "x, \"y\"");
  std::ofstream(path) << "a,b\n1\n";
  EXPECT_THROW(read_csv(path), Error);
  EXPECT_THROW(read_measured(data("README")), Error);
  std::filesystem::remove(path);
}

TEST(Predictions, MemoryOfB200LlamaRows) {
  const Result r = price(data("b200_8gpu.csv"), "llama3", nullptr, 2, "_cp");
  EXPECT_EQ(r.all.modelled, 20);
  EXPECT_LT(r.all.memory_max, 0.10);
  EXPECT_LT(r.all.memory_mean, 0.04);
}

// Rows of 131,072 tokens with cp 4 and 8.
TEST(Predictions, B200RowsWithContextParallelism) {
  const Result r = price(data("b200_8gpu.csv"), "_cp", nullptr);
  EXPECT_EQ(r.all.modelled, 3);
  EXPECT_LT(r.all.mean, 0.13);
  EXPECT_LT(r.all.memory_max, 0.13);
}

TEST(Predictions, TimeOfB200RowsThatWereNotFitted) {
  EXPECT_LT(price(data("b200_8gpu.csv"), "llama3_405b", nullptr).all.mean, 0.08);
}

TEST(Predictions, TeleChat2On512Devices) {
  const Result r = price(data("runs.csv"), "mindformers-037", nullptr);
  const double mfu = 36.3 * r.rows[0].step_seconds / r.priced[0].seconds;
  EXPECT_GT(mfu, 30);
  EXPECT_LT(mfu, 43);
}

TEST(Predictions, LargeSc21Runs) {
  for (const char* id : {"sc21-006", "sc21-007", "sc21-008"}) {
    EXPECT_LT(price(data("runs.csv"), id, nullptr).all.mean, 0.20) << id;
  }
}

TEST(Predictions, AllReduceInsideANode) {
  EXPECT_LT(price(data("nccl_allreduce_a100_8gpu.csv"), "", nullptr, 8).all.mean, 0.05);
}

TEST(Predictions, AFitLowersTheErrorAndTellsWrongKeys) {
  Bench bench(read_measured(data("nccl_allreduce_a100_8gpu.csv")), {}, {.ranks = 8});
  std::vector<size_t> rows(bench.rows().size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  Cluster c = read_cluster(cluster_file("a100-80-vtrain"));
  for (auto& [n, b] : c.levels[0].bandwidth.points) b /= 2;
  const auto error = [&] { return accuracy(bench.rows(), rows, bench.price(rows, c)).mean; };
  EXPECT_GT(error(), 0.2);
  const auto factors = fit(bench, rows, {"levels.0.bandwidth"}, c);
  EXPECT_NEAR(factors.at("levels.0.bandwidth"), 2, 0.1);
  EXPECT_LT(error(), 0.07);
  EXPECT_THROW(fit(bench, rows, {"levels.0.colour"}, c), Error);
}

}  // namespace
}  // namespace myriad
