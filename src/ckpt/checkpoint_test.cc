#include "ckpt/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "ckpt/shards.h"
#include "ckpt/testing.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string name = (fs::temp_directory_path() / "ckpt-XXXXXX").string();
    run_ = mkdtemp(name.data());
  }
  ~CheckpointTest() override { fs::remove_all(run_); }

  static std::vector<std::pair<std::string, Fill>> files(int64_t step) {
    return {{"a.bin", [step](NewFile& to) { to.write(std::string(100, static_cast<char>(step))); }},
            {"b.txt", [](NewFile& to) { to.write(std::string_view("text")); }}};
  }
  Outcome save(Env& env, int64_t step, int keep = 2) {
    return save_checkpoint(env, run_,
                           {.step = step,
                            .data_position = step + 1,
                            .tokenizer_hash = "t",
                            .data_hash = "d",
                            .configuration = {{"train.seed", "1"}},
                            .files = {}},
                           files(step), keep);
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> out;
    for (const Checkpoint& c : checkpoints_of(run_)) out.push_back(c.step);
    return out;
  }
  fs::path run_;
};

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(CheckpointTest, KeepsTheNewest) {
  Env env;
  for (int64_t step : {5, 10, 15}) ASSERT_TRUE(save(env, step).ok());
  EXPECT_EQ(steps(), (std::vector<int64_t>{10, 15}));
  EXPECT_EQ(find_checkpoint(run_), run_ / "checkpoints/step-00000015");
  EXPECT_EQ(read_manifest(find_checkpoint(run_)).step, 15);
  ASSERT_TRUE(save(env, 15, 0).ok());  // again, in its place
  EXPECT_EQ(steps(), (std::vector<int64_t>{10, 15}));
  ASSERT_TRUE(set_later_aside(env, run_, 10).ok());
  EXPECT_EQ(steps(), (std::vector<int64_t>{10}));
  ASSERT_TRUE(save(env, 12).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(run_ / "checkpoints"), {}), 2);
}

TEST_F(CheckpointTest, EveryFlippedByteIsNamed) {
  Env env;
  ASSERT_TRUE(save(env, 7).ok());
  const fs::path folder = find_checkpoint(run_);
  EXPECT_TRUE(damage(folder).empty());
  for (const char* name : {"a.bin", "b.txt", "manifest.json"}) {
    const std::string text = text_of(folder / name);
    for (size_t i = 0; i < text.size(); ++i) {
      for (const int bit : {0, 5, 7}) {
        std::string flipped = text;
        flipped[i] = static_cast<char>(flipped[i] ^ 1 << bit);
        std::ofstream(folder / name, std::ios::binary) << flipped;
        const std::vector<std::string> wrong = damage(folder);
        ASSERT_EQ(wrong.size(), 1u) << name << " " << i;
        ASSERT_TRUE(wrong[0].starts_with(name)) << wrong[0];
      }
    }
    std::ofstream(folder / name, std::ios::binary) << text;
  }
  fs::resize_file(folder / "a.bin", 99);
  fs::remove(folder / "b.txt");
  std::ofstream(folder / "c") << "";
  EXPECT_EQ(damage(folder).size(), 3u);
}

// Whatever the disk refuses, the checkpoints that were there stay whole, and the next save works.
TEST_F(CheckpointTest, ARefusalLosesNothing) {
  Env env;
  for (int64_t step : {1, 2}) ASSERT_TRUE(save(env, step).ok());
  FaultyEnv count;
  ASSERT_TRUE(save(count, 3).ok());
  ASSERT_GT(count.calls(), 15);
  for (int at = 1; at <= count.calls(); ++at) {
    const int64_t newest = steps().back();
    FaultyEnv faulty(FaultyEnv::Fault::refuse, at);
    const Outcome o = save(faulty, newest + 1);
    EXPECT_FALSE(o.ok()) << at;
    EXPECT_NE(o.reason.find("No space left"), std::string::npos) << o.reason;
    EXPECT_GE(steps().back(), newest);
    for (const Checkpoint& c : checkpoints_of(run_)) EXPECT_TRUE(damage(c.folder).empty()) << at;
    ASSERT_TRUE(save(env, newest + 2).ok());
  }
}

// SIGKILL before every change of the disk.
TEST_F(CheckpointTest, AKillLosesNothing) {
  Env env;
  for (int64_t step : {1, 2}) ASSERT_TRUE(save(env, step).ok());
  for (const bool again : {false, true}) {  // again: a save over a checkpoint of the same step
    FaultyEnv count;
    ASSERT_TRUE(save(count, steps().back() + (again ? 0 : 1)).ok());
    for (int at = 1; at <= count.calls(); ++at) {
      const int64_t newest = steps().back();
      const int64_t next = again ? newest : newest + 1;
      const pid_t child = fork();
      if (child == 0) {
        FaultyEnv faulty(FaultyEnv::Fault::kill, at);
        _exit(save(faulty, next).ok() ? 0 : 1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFSIGNALED(status)) << at << " of " << count.calls();
      ASSERT_GE(steps().back(), newest);
      for (const Checkpoint& c : checkpoints_of(run_)) EXPECT_TRUE(damage(c.folder).empty()) << at;
      ASSERT_TRUE(save(env, steps().back() + 1).ok());
      ASSERT_EQ(std::distance(fs::directory_iterator(run_ / "checkpoints"), {}), 2);
    }
  }
}

std::vector<std::byte> numbers(int n) {
  std::vector<std::byte> out(static_cast<size_t>(4 * n));
  for (int i = 0; i < n; ++i) {
    const auto x = static_cast<float>(i);
    std::memcpy(out.data() + 4 * i, &x, 4);
  }
  return out;
}

TEST_F(CheckpointTest, ShardsAreReadBackAndChecked) {
  Env env;
  std::vector<TensorSource> tensors;
  for (int i = 0; i < 5; ++i)
    tensors.push_back({.name = fmt::format("t{}", i), .shape = {3, i + 1}, .bytes = [i] {
                         return numbers(3 * i + 3);
                       }});
  ASSERT_TRUE(write_shards(env, run_, tensors, 60).ok());
  const std::vector<SafeTensors> shards = open_shards(run_);
  EXPECT_EQ(shards.size(), 4u);  // 12 + 24, 36, 48, 60 bytes
  EXPECT_EQ(shards[0].doubles("t1")[5], 5);
  fs::rename(run_ / "model-00002-of-00004.safetensors", run_ / "other");
  EXPECT_THROW(open_shards(run_), Error);
  fs::copy_file(run_ / "model-00001-of-00004.safetensors",
                run_ / "model-00002-of-00004.safetensors");
  EXPECT_THROW(open_shards(run_), Error);
  std::ofstream(run_ / "model.safetensors.index.json") << R"({"weight_map": {"t0": "../x"}})";
  EXPECT_THROW(open_shards(run_), Error);
}

// The streaming writer gives the bytes of the other.
TEST_F(CheckpointTest, StreamedBytesAreEqual) {
  Env env;
  const std::vector<std::byte> a = numbers(6), b = numbers(2);
  const TensorEntry entries[] = {{.name = "x", .type = Stored::f32, .shape = {2, 3}, .bytes = a},
                                 {.name = "b", .type = Stored::f64, .shape = {1}, .bytes = b}};
  const TensorSource sources[] = {
      {.name = "x", .shape = {2, 3}, .bytes = [&] { return a; }},
      {.name = "b", .type = Stored::f64, .shape = {1}, .bytes = [&] { return b; }}};
  ASSERT_TRUE(write_safetensors((run_ / "whole").string(), entries).ok());
  NewFile file(env, run_ / "streamed");
  stream_safetensors(file, sources);
  ASSERT_TRUE(file.finish().ok());
  EXPECT_EQ(text_of(run_ / "whole"), text_of(run_ / "streamed"));
  uint64_t bytes = 0;
  EXPECT_EQ(checksum_of_file(run_ / "streamed", bytes), file.checksum());
  EXPECT_EQ(bytes, file.bytes());
}

}  // namespace
}  // namespace myriad
