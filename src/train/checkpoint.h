// What a run keeps and how it goes on: the files of a checkpoint (model, first_moments and
// second_moments.safetensors with published names, whole tensors, in the run's own precision;
// config.json, config.yaml, tokenizer.json) know nothing of the layout they were made in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "train/job.h"
#include "train/run_config.h"
#include "train/text_data.h"

namespace myriad {

// As manifest.json has it: every key of the resolved configuration with its value as text.
std::map<std::string, std::string> flat_configuration(const RunConfig& config);
Manifest manifest_of(const RunConfig& config, const TextData& text, int64_t step);

// After `step` steps, durable when it returns; what the disk refuses is returned and changes
// nothing.
Outcome save_run(Env& env, const std::filesystem::path& run, Job& job, const RunConfig& config,
                 const TextData& text, int64_t step);

// Parameters and moments into a job of any layout. Throws Failure naming every damaged file, Error
// where tensors and model do not fit.
void restore_run(Job& job, const std::filesystem::path& checkpoint);

// Throws Error with every difference that changes what the run means (data, tokenizer, model,
// optimizer, schedule, seed) unless a key of `allowed`, or one above it, names it. Layout, workers,
// kernels, evaluation, generation and saving may change freely.
void check_same_run(const Manifest& saved, const Manifest& now,
                    const std::vector<std::string>& allowed);

// The whole lines of a metrics.jsonl up to a step; throws Error if a line within is no JSON.
std::string metrics_up_to(const std::string& lines, int64_t step);

// A Hugging Face folder from a run, a checkpoint or another such folder; out must not exist or be
// empty, and appears whole. Weights in `dtype`, f32 or bf16; none: bf16 where `from` is a folder
// that says so (torch_dtype), else f32. Throws Error or Failure.
void export_model(Env& env, const std::filesystem::path& from, const std::filesystem::path& out,
                  uint64_t shard_bytes, std::optional<DType> dtype = {});

}  // namespace myriad
