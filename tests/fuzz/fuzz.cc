// Mutated files for every reader: each must be read, or be refused by an error that names the file.
//   fuzz [--seconds S] [--inputs N] [--seed N] [--target NAME] [--input K]
// At least N inputs a target, more until S seconds are over. Input K of a target is a function of
// (seed, target, K) and of the corpus: `--target NAME --input K` does that one again. Each target
// runs in a process of its own, so that a crash or an endless loop is told as well. Exit status 1:
// something was neither read nor refused.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/safetensors.h"
#include "cluster/cluster.h"
#include "data/bpe.h"
#include "data/corpus.h"
#include "data/files.h"
#include "data/packed.h"
#include "fuzz/mutate.h"
#include "train/model_folder.h"
#include "train/run_config.h"

namespace {

using namespace myriad;
namespace fs = std::filesystem;

struct Target {
  std::string name;  // and of the folder of its corpus
  std::string file;  // what a mutated file is called
  std::string more;  // a folder of the repository whose files are seeds, too
  std::function<void(const fs::path&)> read;
  std::function<void(std::string&)> sign = nullptr;  // makes checksums of mutated bytes right again
};

void read_safetensors(const fs::path& path) {
  const SafeTensors file = SafeTensors::open(path);
  for (const std::string& name : file.names()) file.bytes(name);
}

void read_tokenizer(const fs::path& path) {
  const Bpe bpe = Bpe::load(path);
  bpe.decode_text(bpe.encode_with_added("The <|endoftext|> 世界\n\n 42's e\u0301"));
  try {
    bpe.encode(" \xff");
  } catch (const Error& e) {  // no UTF-8, so a vocabulary need not have it: the text is at fault
    CHECK(std::string_view(e.what()).find("0xFF has no token") != std::string_view::npos, "{}",
          e.what());
  }
}

void read_packed(const fs::path& path) {
  const PackedFile file = PackedFile::open(path);
  int64_t sum = 0;
  for (int64_t i = 0; i < file.documents(); ++i) {
    for (const int32_t token : file.document(i)) sum += token;
    sum += file.document_text_bytes(i);
  }
  CHECK(file.documents() == 0 || sum != INT64_MIN);
}

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"safetensors", "model.safetensors", "", read_safetensors},
      {"tokenizer", "tokenizer.json", "", read_tokenizer},
      {"packed", "text.pack", "", read_packed, sign_packed},
      {"manifest", "manifest.json", "", [](const fs::path& p) { read_manifest(p.parent_path()); },
       sign_manifest},
      {"run", "run.yaml", "examples", [](const fs::path& p) { read_run(p, {}); }},
      {"cluster", "cluster.yaml", "clusters", [](const fs::path& p) { read_cluster(p); }},
      {"config", "config.json", "tests/golden", [](const fs::path& p) { read_model_config(p); }},
      {"jsonl", "text.jsonl", "", [](const fs::path& p) { read_corpus(p); }},
      {"gzip", "text.jsonl.gz", "", [](const fs::path& p) { read_corpus(p); }},
      {"zstd", "text.jsonl.zst", "", [](const fs::path& p) { read_corpus(p); }},
  };
  return all;
}

std::vector<std::string> seeds_of(const Target& target) {
  const fs::path source = MYRIAD_SOURCE;
  std::vector<fs::path> files;
  for (const fs::path& folder :
       {source / "tests/fuzz/corpus" / target.name, source / target.more}) {
    if (!fs::is_directory(folder) || folder.filename().empty()) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const fs::path config = entry.path() / "config.json";  // of a golden case
      if (entry.is_regular_file()) files.push_back(entry.path());
      if (target.name == "config" && fs::exists(config)) files.push_back(config);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& file : files) seeds.push_back(read_file(file));
  if (seeds.empty()) throw Error("no corpus", target.name);
  return seeds;
}

// Seen by the parent when the child is gone.
struct Progress {
  int64_t input, read, refused;
  char fault[1000];  // empty: none
};

struct Options {
  double seconds = 0;
  int64_t inputs = 1000, input = -1;
  uint64_t seed = 1;
  std::string target;
};

std::string input_of(const Target& target, const std::vector<std::string>& seeds, uint64_t seed,
                     int64_t k) {
  std::seed_seq sequence{seed, static_cast<uint64_t>(k),
                         static_cast<uint64_t>(&target - targets().data())};
  std::mt19937_64 random(sequence);
  std::string bytes = mutated(seeds, random);
  if (target.sign && random() % 4 != 0) target.sign(bytes);
  return bytes;
}

// Empty: read or refused as it should be.
std::string fault_of(const Target& target, const fs::path& file, bool& was_read) {
  was_read = false;
  std::string message;
  try {
    target.read(file);
    was_read = true;
    return "";
  } catch (const Error& e) {
    message = e.what();
  } catch (const Failure& e) {
    message = e.what();
  } catch (const std::exception& e) {
    return fmt::format("{}: {}", typeid(e).name(), e.what());
  }
  return message.find(file.filename()) != std::string::npos
             ? ""
             : "refused without naming the file: " + message;
}

void run_target(const Target& target, const Options& o, double seconds, const fs::path& folder,
                Progress& progress) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(seconds));
  const std::vector<std::string> seeds = seeds_of(target);
  const fs::path file = folder / target.file;
  const int64_t first = std::max<int64_t>(0, o.input);
  for (int64_t k = first; o.input >= 0 ? k == first : k < o.inputs || Clock::now() < until; ++k) {
    progress.input = k;
    ::alarm(20);  // an input takes milliseconds
    {
      std::ofstream out(file, std::ios::binary);
      out << input_of(target, seeds, o.seed, k);
    }
    bool was_read = false;
    const std::string fault = fault_of(target, file, was_read);
    (was_read ? progress.read : progress.refused) += 1;
    if (fault.empty()) continue;
    fault.copy(progress.fault, sizeof progress.fault - 1);
    return;
  }
}

// True: as it should be.
bool fuzz(const Target& target, const Options& o, double seconds, const fs::path& folder) {
  auto* progress = static_cast<Progress*>(
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  CHECK(progress != MAP_FAILED);
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    run_target(target, o, seconds, folder, *progress);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::string fault = progress->fault;
  if (WIFSIGNALED(status))
    fault = fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    fault = fmt::format("exit status {}", WEXITSTATUS(status));
  fmt::print(
      "{:12} {:7} read, {:7} refused{}\n", target.name, progress->read, progress->refused,
      fault.empty()
          ? ""
          : fmt::format("; input {}: {}\n  again: fuzz --seed {} --target {} --input {}; it is {}",
                        progress->input, fault, o.seed, target.name, progress->input,
                        (folder / target.file).string()));
  ::munmap(progress, sizeof(Progress));
  return fault.empty();
}

int run(const Options& o) {
  std::string name = (fs::temp_directory_path() / "myriad-fuzz-XXXXXX").string();
  const fs::path folder = mkdtemp(name.data());
  fmt::print("seed {}\n", o.seed);
  int faults = 0;
  bool found = false;
  for (const Target& target : targets()) {
    if (!o.target.empty() && o.target != target.name) continue;
    found = true;
    const double share = o.seconds / (o.target.empty() ? static_cast<double>(targets().size()) : 1);
    faults += !fuzz(target, o, share, folder);
  }
  if (!found) throw Error(fmt::format("unknown target {}", o.target));
  if (faults == 0 && o.input < 0) fs::remove_all(folder);
  return faults == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Mutated files for every reader", "fuzz");
  app.add_option("--seconds", o.seconds, "In all, shared by the targets");
  app.add_option("--inputs", o.inputs, "A target, at least");
  app.add_option("--seed", o.seed, "Of the mutations");
  app.add_option("--target", o.target, "This one only");
  app.add_option("--input", o.input, "This one only; its file stays");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
