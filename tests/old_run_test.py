#!/usr/bin/env python3
"""A run folder and checkpoint that an earlier program left must resume, generate and export as they did then.

    old_run_test.py MYRIAD            checks against tests/old_run/expected.json
    old_run_test.py MYRIAD --record   writes that file; only the program that made the folder may do so

The run uses the reference kernels, so that no processor changes a bit. From step 2 it goes to step 4: weights and both
moments must be the same bytes. Run in the root of the project.
"""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent / "old_run"


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, args))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digests(folder, pattern):
    return {path.name: digest(path) for path in sorted(folder.glob(pattern))}


def results(myriad, scratch):
    run_folder = scratch / "run"
    shutil.copytree(HERE / "run", run_folder)
    checkpoint = run_folder / "checkpoints" / "step-00000002"
    exported = scratch / "exported"
    run(myriad, "export", checkpoint, "--out", exported)
    texts = run(myriad, "generate", checkpoint, "--prompt", "The kernel can be", "--max-tokens", 24, "--seed", 5, "--json")
    run(myriad, "train", "--resume", run_folder, "--quiet")
    return {
        "exported": digests(exported, "*"),
        "generated": json.loads(texts),
        "resumed": digests(run_folder / "checkpoints" / "step-00000004", "*.safetensors"),
        "final": digests(run_folder, "*.safetensors"),
    }


def without_times(x):
    if isinstance(x, dict):
        return {k: without_times(v) for k, v in x.items() if not k.endswith(("second", "seconds")) and k != "model"}
    return [without_times(v) for v in x] if isinstance(x, list) else x


def main():
    with tempfile.TemporaryDirectory() as scratch:
        found = without_times(results(sys.argv[1], pathlib.Path(scratch)))
    expected = HERE / "expected.json"
    if "--record" in sys.argv:
        expected.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        return
    wanted = json.loads(expected.read_text())
    for key, value in wanted.items():
        if found[key] != value:
            sys.exit(f"{key} differs:\n  was {value}\n  is  {found[key]}")
    print("the old run resumes, generates and exports to the same bytes")


main()
