// Checkpoints of a run as folders: RUN/checkpoints/step-00000010, each with a manifest.json that
// holds the checksum of every other file and its own. A folder with this name is whole: it is
// written aside (`.part`), flushed and renamed. What the files mean is train/checkpoint.h.
// docs/checkpoints.md describes the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"

namespace myriad {

constexpr int kCheckpointVersion = 1;

struct CheckpointFile {
  std::string name;  // no folders
  uint64_t bytes = 0;
  std::string xxh3;
};

struct Manifest {
  int version = kCheckpointVersion;
  int64_t step = 0;           // done
  int64_t data_position = 0;  // the step whose rows come next
  std::string tokenizer_hash, data_hash;
  std::map<std::string, std::string> configuration;  // resolved, by key with dots
  std::vector<CheckpointFile> files;
  uint64_t bytes() const;  // of all files
};

std::string manifest_text(const Manifest& manifest);
// Throws Error naming `path` where the text is not, to the byte, what manifest_text gives.
Manifest parse_manifest(const std::string& text, const std::filesystem::path& path);
Manifest read_manifest(const std::filesystem::path& checkpoint);

// Fills one file; faults stay in it.
using Fill = std::function<void(NewFile& to)>;

// Leaves RUN/checkpoints/step-N with these files, durable, then removes all but the newest `keep`
// (0: none is removed) and what dead saves left. On a fault every checkpoint is as it was. Fills in
// manifest.files.
Outcome save_checkpoint(Env& env, const std::filesystem::path& run, Manifest manifest,
                        const std::vector<std::pair<std::string, Fill>>& files, int keep);

struct Checkpoint {
  int64_t step = 0;
  std::filesystem::path folder;
};
// Whole ones, oldest first.
std::vector<Checkpoint> checkpoints_of(const std::filesystem::path& run);
// `folder` itself if it is a checkpoint, else the newest of a run. Throws Error if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& folder);
std::filesystem::path run_of(const std::filesystem::path& checkpoint);
// Puts later ones aside, for a run that goes on from an older one; the next save removes them.
Outcome set_later_aside(Env& env, const std::filesystem::path& run, int64_t step);

// What is wrong, a line a file, beginning with its name; empty: every byte is as it was written.
std::vector<std::string> damage(const std::filesystem::path& checkpoint);

}  // namespace myriad
