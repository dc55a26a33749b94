#!/usr/bin/env python3
"""transformers_logits.py MYRIAD [--model FOLDER ...] [--steps N]

Does Transformers compute what Myriad does? A small Llama and a small Qwen3 are trained and exported (or Hugging Face folders
given with --model are taken); both sides read the same ids. Prints, one JSON line a model, the largest difference of
logits, absolute and over the largest logit, and how many tokens of greedy continuations are equal. Exit status 1 beyond
TOLERANCE, or where a continuation or the ids of a text differ.

Outside continuous integration: needs torch, transformers and safetensors from PyPI."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOLERANCE = 1e-4  # fp32 on both sides, over the largest logit
TEXT = "The package manager installs what a program needs. 安装程序会询问您的语言。 Files lie below /usr/share/doc.\n" * 3
PROMPTS = ["The kernel can", "如果您想安装", "To install the package, "]
MODELS = {
    "llama": {"model_type": "llama", "rope_theta": 10000.0},
    "qwen3": {"model_type": "qwen3", "rope_theta": 1000000.0, "tie_word_embeddings": True},
}
SIZES = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
         "intermediate_size": 160, "max_position_embeddings": 512, "rms_norm_eps": 1e-6}


def myriad(*args):
    done = subprocess.run([MYRIAD, *map(str, args)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"myriad {' '.join(map(str, args))}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def make(name, folder, steps):
    overrides = {"model": json.dumps({**SIZES, **MODELS[name]}), "data.vocabulary": 1024, "data.cache": folder / "cache",
                 "data.corpus": ROOT / "data/sample/documents.jsonl", "train.sequence_length": 256,
                 "train.tokens_per_step": 1024, "train.steps": steps, "train.warmup_steps": 5, "layout": "{dp: 2}",
                 "generate.prompts": "[]"}
    flags = [x for key, value in overrides.items() for x in ("-s", f"{key}={value}")]
    myriad("train", "examples/tiny.yaml", "--out", folder / name, "--quiet", *flags)
    myriad("export", folder / name, "--out", folder / f"{name}-hf")
    return folder / f"{name}-hf"


def compare(model_folder, scratch):
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    text = scratch / "text.txt"
    text.write_text(TEXT)
    out = scratch / "logits.safetensors"
    evaluated = json.loads(myriad("eval", model_folder, "--text", text, "--window", 256, "--logits", out, "--json"))
    ours = load_file(out)
    ids = ours["ids"].long()
    with torch.no_grad():
        theirs = model(ids[None]).logits[0]
    difference = (theirs - ours["logits"]).abs().max().item()
    largest = theirs.abs().max().item()
    nats = torch.nn.functional.cross_entropy(theirs[:-1].double(), ids[1:], reduction="sum").item()

    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    same_ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"] in (ids.tolist(), ids.tolist()[1:])

    prompts = scratch / "prompts.json"
    prompts.write_text(json.dumps(PROMPTS))
    results = json.loads(myriad("generate", model_folder, "--prompts", prompts, "--temperature", 0, "--max-tokens", 64,
                                "--json"))["results"]
    equal = total = 0
    for r in results:
        prompt = torch.tensor([r["prompt_ids"]])
        with torch.no_grad():
            made = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=64)
        made = made[0, prompt.shape[1]:].tolist()
        if r["ended"] == "end":
            made = made[:-1]
        total += max(len(made), len(r["ids"]))
        equal += sum(a == b for a, b in zip(made, r["ids"]))
    figures = {"model": model_folder.name, "tokens": len(ids), "largest_difference": difference,
               "relative_difference": difference / largest, "relative_nats": abs(nats - evaluated["nats"]) / nats,
               "same_ids": same_ids, "greedy_tokens_equal": equal, "greedy_tokens": total}
    print(json.dumps(figures), flush=True)
    return figures["relative_difference"] <= TOLERANCE and figures["relative_nats"] <= TOLERANCE and same_ids and equal == total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("myriad")
    parser.add_argument("--model", action="append", type=pathlib.Path, default=[])
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    MYRIAD = str(pathlib.Path(options.myriad).resolve())
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        folders = options.model or [make(m, scratch, options.steps) for m in MODELS]
        sys.exit(0 if all([compare(f, scratch) for f in folders]) else 1)
