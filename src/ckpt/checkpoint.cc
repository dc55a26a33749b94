// Saves, finds, prunes and checks the checkpoint folders of a run. A save writes all files and,
// last, the manifest into `step-N.part`, flushes them and then renames the folder, so a folder
// named `step-N` is whole whenever the process dies; a step that is saved again changes places with
// its old folder in one call. Pruning renames a folder to `.old` before it removes any file, and
// the next save removes what is left under either ending. The manifest has only one legal text, and
// reading it means writing it again and comparing the bytes, which checks its own checksum as well.
// Read save_checkpoint first, then damage.

#include "ckpt/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

namespace myriad {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kPrefix = "step-";

fs::path folder_of(const fs::path& run, int64_t step) {
  return run / "checkpoints" / fmt::format("{}{:08}", kPrefix, step);
}

// The step in the name of a whole checkpoint's folder, or -1 if the name is not such a one.
int64_t step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  const char *begin = name.data() + std::strlen(kPrefix), *end = name.data() + name.size();
  int64_t step = -1;
  const auto [at, error] = std::from_chars(begin, end, step);
  return error == std::errc() && at == end && step >= 0 ? step : -1;
}

ordered_json body_of(const Manifest& m) {
  ordered_json files = ordered_json::array();
  for (const CheckpointFile& f : m.files)
    files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"xxh3", f.xxh3}});
  return {{"version", m.version},
          {"step", m.step},
          {"data_position", m.data_position},
          {"tokenizer_hash", m.tokenizer_hash},
          {"data_hash", m.data_hash},
          {"configuration", m.configuration},
          {"files", files}};
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

Outcome remove_leftovers(Env& env, const fs::path& checkpoints) {
  for (const fs::path& p : entries_of(checkpoints)) {
    if (p.extension() != ".part" && p.extension() != ".old") continue;
    if (Outcome o = env.remove(p); !o.ok()) return o;
  }
  return {};
}

Outcome write_part(Env& env, const fs::path& part, Manifest& manifest,
                   const std::vector<std::pair<std::string, Fill>>& files) {
  if (Outcome o = env.make_folder(part); !o.ok()) return o;
  manifest.files.clear();
  for (const auto& [name, fill] : files) {
    NewFile file(env, part / name);
    fill(file);
    if (Outcome o = file.finish(); !o.ok()) return o;
    manifest.files.push_back({.name = name, .bytes = file.bytes(), .xxh3 = file.checksum()});
  }
  NewFile file(env, part / kManifest);
  file.write(manifest_text(manifest));
  if (Outcome o = file.finish(); !o.ok()) return o;
  return env.flush(part);
}

// Removes all but the newest `keep` checkpoints. Each is renamed first, because a folder that is
// being removed must not look whole.
Outcome prune(Env& env, const fs::path& run, int keep) {
  const std::vector<Checkpoint> all = checkpoints_of(run);
  const int remove = keep > 0 ? static_cast<int>(std::ssize(all)) - keep : 0;
  for (int i = 0; i < remove; ++i) {
    const fs::path& folder = all[static_cast<size_t>(i)].folder;
    if (Outcome o = env.rename(folder, folder.string() + ".old"); !o.ok()) return o;
  }
  return remove_leftovers(env, run / "checkpoints");
}

}  // namespace

uint64_t Manifest::bytes() const {
  uint64_t sum = 0;
  for (const CheckpointFile& f : files) sum += f.bytes;
  return sum;
}

std::string manifest_text(const Manifest& manifest) {
  ordered_json j = body_of(manifest);
  j["xxh3"] = checksum_of(j.dump(1));
  return j.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const fs::path& path) {
  Manifest m;
  try {
    const ordered_json j = ordered_json::parse(text);
    m.version = j.at("version").get<int>();
    if (m.version != kCheckpointVersion)
      throw Error(fmt::format("is of version {}; this program reads version {}", m.version,
                              kCheckpointVersion),
                  path);
    m.step = j.at("step").get<int64_t>();
    m.data_position = j.at("data_position").get<int64_t>();
    m.tokenizer_hash = j.at("tokenizer_hash").get<std::string>();
    m.data_hash = j.at("data_hash").get<std::string>();
    m.configuration = j.at("configuration").get<std::map<std::string, std::string>>();
    for (const auto& f : j.at("files")) {
      m.files.push_back({.name = f.at("name").get<std::string>(),
                         .bytes = f.at("bytes").get<uint64_t>(),
                         .xxh3 = f.at("xxh3").get<std::string>()});
      if (m.files.back().name.find('/') != std::string::npos)
        throw Damage(fmt::format("names a file {} outside of the checkpoint", m.files.back().name),
                     path);
    }
    if (manifest_text(m) == text) return m;
  } catch (const nlohmann::json::exception& e) {
    throw Damage(fmt::format("is damaged: {}", e.what()), path);
  }
  throw Damage("is damaged: its checksum does not fit", path);
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifest;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(fmt::format("cannot be opened: {}", std::strerror(errno)), path);
  return parse_manifest({std::istreambuf_iterator<char>(in), {}}, path);
}

Outcome save_checkpoint(Env& env, const fs::path& run, Manifest manifest,
                        const std::vector<std::pair<std::string, Fill>>& files, int keep) {
  const fs::path checkpoints = run / "checkpoints", folder = folder_of(run, manifest.step),
                 part = folder.string() + ".part";
  const bool first = !fs::exists(checkpoints), again = fs::exists(folder);
  Outcome o = env.make_folder(checkpoints);
  if (o.ok() && first) o = env.flush(run);
  if (o.ok()) o = env.remove(part);
  if (o.ok()) o = write_part(env, part, manifest, files);
  if (o.ok()) o = again ? env.exchange(part, folder) : env.rename(part, folder);
  if (!o.ok()) {
    std::error_code ignored;  // the fault that is reported is the first one
    fs::remove_all(part, ignored);
    return o;
  }
  if (o = env.flush(checkpoints); !o.ok()) return o;
  return prune(env, run, keep);
}

std::vector<Checkpoint> checkpoints_of(const fs::path& run) {
  std::vector<Checkpoint> out;
  for (const fs::path& p : entries_of(run / "checkpoints")) {
    const int64_t step = step_of(p.filename());
    if (step >= 0 && fs::is_directory(p)) out.push_back({.step = step, .folder = p});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return out;
}

fs::path find_checkpoint(const fs::path& given) {
  const fs::path folder = given.has_filename() ? given : given.parent_path();
  if (!fs::is_directory(folder))
    throw Error("no such folder", folder, "a run or a checkpoint of it");
  if (fs::exists(folder / kManifest)) return folder;
  const std::vector<Checkpoint> all = checkpoints_of(folder);
  if (all.empty()) {
    throw Error(
        "no checkpoint is there", folder,
        "train.save_every: 100 leaves one every 100 steps; `myriad train RUN.yaml` starts anew");
  }
  return all.back().folder;
}

fs::path run_of(const fs::path& checkpoint) {
  return fs::absolute(checkpoint).lexically_normal().parent_path().parent_path();
}

Outcome set_later_aside(Env& env, const fs::path& run, int64_t step) {
  for (const Checkpoint& c : checkpoints_of(run)) {
    if (c.step <= step) continue;
    const fs::path aside = c.folder.string() + ".old";
    if (Outcome o = env.remove(aside); !o.ok()) return o;
    if (Outcome o = env.rename(c.folder, aside); !o.ok()) return o;
  }
  return {};
}

std::vector<std::string> damage(const fs::path& checkpoint) {
  std::vector<std::string> out;
  Manifest manifest;
  try {
    manifest = read_manifest(checkpoint);
  } catch (const Error& e) {
    return {fmt::format("{}: {}", kManifest, e.what())};
  }
  std::set<std::string> known = {kManifest};
  for (const CheckpointFile& f : manifest.files) {
    known.insert(f.name);
    if (!fs::exists(checkpoint / f.name)) {
      out.push_back(f.name + ": is missing");
      continue;
    }
    try {
      uint64_t bytes = 0;
      const std::string sum = checksum_of_file(checkpoint / f.name, bytes);
      if (bytes != f.bytes) {
        out.push_back(fmt::format("{}: has {} bytes, {} were written", f.name, bytes, f.bytes));
      } else if (sum != f.xxh3) {
        out.push_back(fmt::format("{}: its checksum is {}, {} was written", f.name, sum, f.xxh3));
      }
    } catch (const Error& e) {
      out.push_back(fmt::format("{}: {}", f.name, e.what()));
    }
  }
  for (const fs::path& p : entries_of(checkpoint)) {
    if (!known.count(p.filename()))
      out.push_back(fmt::format("{}: is not of the checkpoint", p.filename().string()));
  }
  return out;
}

}  // namespace myriad
