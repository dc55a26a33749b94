// myriad eval: how well a model predicts a text, as perplexity and bits per byte. The text is read
// in windows that may overlap, and each token counts once, in the first window that holds it with
// what it is predicted from (`text_loss`). Bits per byte leave out the bytes of a first token that
// nothing predicts. --logits also writes the logits of one pass over the whole text. Read
// `run_eval` first.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "data/files.h"
#include "data/samples.h"
#include "tools/commands.h"
#include "train/open_model.h"
#include "train/perplexity.h"

namespace myriad {

namespace {

struct Options {
  std::string folder, text, logits;
  int64_t window = 0, stride = 0;
  bool json = false;
};

Job make_job(const OpenModel& m, int64_t sequence, Pool& pool, Job::Options options) {
  return Job(JobConfig{.model = m.model,
                       .plan = resolve(Plan{}, static_cast<int>(m.model.layers), 1),
                       .rows = 1,
                       .sequence = sequence},
             pool, std::move(options));
}

// Writes ids [n] and logits [n, vocabulary] of one pass over the whole text. The logits at a token
// predict the next one.
void write_logits(const OpenModel& m, const std::vector<int32_t>& ids, int64_t window, Pool& pool,
                  const std::string& path) {
  const int64_t n = std::ssize(ids);
  if (n > window) {
    throw Error(fmt::format("the text has {} tokens, more than the window of {}", n, window),
                "--logits",
                m.most_context == 0 || m.most_context >= n ? fmt::format("--window {}", n)
                                                           : "a shorter text");
  }
  Job job = make_job(m, n, pool, {.train = false, .logits_rows = 1});
  job.load(m.weights);
  Batch batch{.sequence = n};
  add_row(batch, ids, std::vector<int32_t>(ids.size(), kNoTarget));
  const std::vector<double> logits = job.logits(batch);
  const std::vector<float> rounded(logits.begin(), logits.end());
  const std::vector<TensorEntry> entries = {
      {.name = "ids", .type = Stored::i32, .shape = {n}, .bytes = std::as_bytes(std::span(ids))},
      {.name = "logits",
       .type = Stored::f32,
       .shape = {n, m.model.vocabulary},
       .bytes = std::as_bytes(std::span(rounded))}};
  if (const Outcome o = write_safetensors(path, entries); !o.ok()) throw Failure(o.reason);
}

int run_eval(const Options& o) {
  const std::string text = read_file(o.text);
  const OpenModel m = open_model(o.folder);
  const int64_t window = m.context(o.window, "--window"),
                stride = o.stride == 0 ? window : o.stride;
  if (stride < 1 || stride > window) {
    throw Error(fmt::format("must be from 1 to the window ({}), not {}", window, stride),
                "--stride", fmt::format("nearest: {}", std::clamp<int64_t>(stride, 1, window)));
  }
  const std::vector<int32_t> ids = m.encode(text, false);
  if (ids.size() < 2) throw Error("holds no token that could be predicted", o.text);
  // Unless the model puts a token before every text, nothing predicts the first token.
  const int64_t bytes = std::ssize(text) -
                        (m.first_token >= 0 ? 0 : std::ssize(m.tokenizer->decode({ids.data(), 1})));
  Pool pool(0);
  if (!o.logits.empty()) write_logits(m, ids, window, pool, o.logits);
  constexpr int64_t kTokens = 2048;  // in one call
  const int64_t length = std::min(window, std::ssize(ids) - 1);
  Job job =
      make_job(m, length, pool,
               {.train = false, .evaluation_rows = std::clamp<int64_t>(kTokens / length, 1, 8)});
  job.load(m.weights);
  const TextLoss loss = text_loss(job, ids, std::min(stride, length));
  if (o.json) {
    print_json({{"perplexity", loss.perplexity()},
                {"bits_per_byte", loss.bits_per_byte(bytes)},
                {"nats", loss.nats},
                {"tokens", loss.tokens},
                {"bytes", bytes},
                {"window", window},
                {"stride", stride},
                {"windows", loss.windows}});
  } else {
    fmt::print(
        "perplexity {:.4f}, {:.4f} bits per byte\n{} tokens, {} bytes; {} windows of {}, stride "
        "{}\n",
        loss.perplexity(), loss.bits_per_byte(bytes), loss.tokens, bytes, loss.windows, window,
        stride);
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* c =
      app.add_subcommand("eval", "How well a model predicts a text: perplexity and bits per byte");
  c->add_option("MODEL", o->folder, "A run, a checkpoint of one, or a Hugging Face folder")
      ->required()
      ->type_name("FOLDER");
  c->add_option("--text", o->text, "The text, UTF-8")->required()->type_name("FILE");
  c->add_option("--window", o->window,
                "Tokens that the model sees at most; by default as in training")
      ->type_name("N");
  c->add_option("--stride", o->stride,
                "Tokens from one window to the next, at most the window; by default the window")
      ->type_name("M");
  c->add_option("--logits", o->logits,
                "Also writes the logits of one pass over the text (safetensors: ids, logits)")
      ->type_name("FILE");
  add_json(*c, o->json);
  add_examples(*c, {"myriad eval runs/bilingual --text README.md",
                    "myriad eval hf --text README.md --window 256 --stride 128 --json"});
  c->callback([o, &status] { status = run_eval(*o); });
}

}  // namespace myriad
