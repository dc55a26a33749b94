// Feeds the two programs of generation and copies a prompt's cache between them.
//
// A prompt is read alone by the prefilling program, in chunks, and its cache, which is row 0 there,
// is then copied to its row of the decoding program. The two programs may shard the rows
// differently, so each rank that holds the row looks for a rank that has the same part of it,
// itself first. A token that is not there has position -1: it is placed nowhere and its document -1
// matches no key, so padding of the last chunk and idle rows change nothing. Nothing clears a row
// of the decoding cache before a new prompt: stale keys lie at later positions, which causality
// hides. Read train/decoder.h first.
#include "train/decoder.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace myriad {

namespace {

bool is_cache(const State& s) { return s.name.kind == StateKind::cache; }

// A cache may lie where another program has computed, and its memory may hold anything. Attention
// gives places that must not be seen the weight 0, but 0 times a NaN would be a NaN.
void clear_caches(Compiled& c) {
  for (size_t i = 0; i < c.program.states.size(); ++i) {
    if (!is_cache(c.program.states[i])) continue;
    for (int r = 0; r < c.program.mesh.ranks(); ++r) {
      const Tensor t = c.executor->state(r, static_cast<int>(i));
      if (t.data && t.bytes() > 0) std::memset(t.data, 0, t.bytes());
    }
  }
}

bool same_part(const Tensor& a, const Tensor& b) {  // within a row
  return std::equal(a.lo + 1, a.lo + a.dims, b.lo + 1) &&
         std::equal(a.size + 1, a.size + a.dims, b.size + 1);
}

// Copies row 0 of `from` to `row` of `to` on every rank that holds it, from the same rank where
// that has the part, else from another.
void copy_cache(const Compiled& from, int from_state, const Compiled& to, int to_state,
                int64_t row) {
  const int ranks = to.program.mesh.ranks();
  for (int r = 0; r < ranks; ++r) {
    const Tensor t = to.executor->state(r, to_state);
    if (!t.data || row < t.lo[0] || row >= t.lo[0] + t.size[0] || t.bytes() == 0) continue;
    const size_t bytes = t.bytes() / static_cast<size_t>(t.size[0]);
    int source = -1;
    for (int i = 0; i < ranks && source < 0; ++i) {
      const Tensor s = from.executor->state((r + i) % ranks, from_state);
      if (s.data && s.size[0] == 1 && same_part(s, t)) source = (r + i) % ranks;
    }
    CHECK(source >= 0, "no rank has {} as rank {} needs it", to.program.states[to_state].name, r);
    std::memcpy(t.data + static_cast<size_t>(row - t.lo[0]) * bytes,
                from.executor->state(source, from_state).data, bytes);
  }
}

// Fills the local part of an i32 input with the value of each global place.
template <class F>
void fill(const Tensor& to, const F& value) {
  for (int64_t i = 0; i < to.size[0]; ++i) {
    for (int64_t j = 0; j < to.size[1]; ++j) {
      to.as<int32_t>()[i * to.size[1] + j] =
          static_cast<int32_t>(value(to.lo[0] + i, to.lo[1] + j));
    }
  }
}

// The tokens of a step. Position -1 stands for no token: it sees no key and puts none in the cache.
using TokenAt = std::function<Decoder::Token(int64_t row, int64_t at)>;

Feed feed_of(const TokenAt& token) {
  return [&token](int, const Value& input, int, const Tensor& to) {
    if (input.port == Port::ids)
      return fill(to, [&](int64_t r, int64_t s) { return token(r, s).id; });
    if (input.port == Port::positions)
      return fill(to,
                  [&](int64_t r, int64_t s) { return std::max<int64_t>(0, token(r, s).position); });
    if (input.port == Port::documents)
      return fill(to, [&](int64_t r, int64_t s) { return token(r, s).position < 0 ? -1 : 0; });
    if (input.port == Port::cache_slots)
      return fill(to, [&](int64_t r, int64_t s) { return token(r, s).position; });
    if (input.port == Port::cache_positions)
      return fill(to, [](int64_t, int64_t place) { return place; });
    if (input.port == Port::cache_documents) return fill(to, [](int64_t, int64_t) { return 0; });
    CHECK(input.port == Port::live, "no input {}", input.name);
    *to.as<double>() = 0;
  };
}

}  // namespace

Decoder::Decoder(Job& job) : job_(job) {
  CHECK(job.options().generation.rows > 0, "the job has no programs for generation");
  clear_caches(job.decoding());
}

void Decoder::read(int64_t row, std::span<const int32_t> ids) {
  CHECK(row < rows() && std::ssize(ids) <= tokens(), "{} tokens in row {}", ids.size(), row);
  clear_caches(job_.prefilling());
  const int64_t n = std::ssize(ids), chunk = std::min(kPrefill, job_.config().sequence);
  for (int64_t first = 0; first < n; first += chunk) {
    const TokenAt token = [&](int64_t, int64_t at) {
      const int64_t i = first + at;
      return i < n ? Token{ids[static_cast<size_t>(i)], i} : Token{};
    };
    job_.run(job_.prefilling(), feed_of(token), "");
  }
  if (n > 0) copy_row(row);
}

void Decoder::copy_row(int64_t row) {
  const Compiled &from = job_.prefilling(), &to = job_.decoding();
  for (size_t i = 0; i < to.program.states.size(); ++i) {
    const State& s = to.program.states[i];
    if (!is_cache(s)) continue;
    const auto same = std::find_if(
        from.program.states.begin(), from.program.states.end(),
        [&](const State& other) { return other.unit == s.unit && other.name == s.name; });
    copy_cache(from, static_cast<int>(same - from.program.states.begin()), to, static_cast<int>(i),
               row);
  }
}

std::vector<double> Decoder::step(std::span<const Token> tokens) {
  CHECK(std::ssize(tokens) == rows(), "{} tokens for {} rows", tokens.size(), rows());
  const TokenAt token = [&](int64_t row, int64_t) { return tokens[static_cast<size_t>(row)]; };
  return job_.run(job_.decoding(), feed_of(token), "logits");
}

}  // namespace myriad
