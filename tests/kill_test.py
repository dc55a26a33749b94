"""Stops the program as people and machines do, and compares what comes out with a run that nobody stopped.

kill_test.py MYRIAD: SIGKILL at random moments, SIGINT and SIGTERM once (saves, exit status 0, says how to go on) and twice
(leaves at once). Kills at each change of the disk are in src/ckpt/checkpoint_test.cc and src/train/checkpoint_test.cc.
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

myriad = pathlib.Path(sys.argv[1]).resolve()
source = pathlib.Path(__file__).resolve().parent.parent


def main(folder):
    keys = [f"data.corpus={source}/data/sample/documents.jsonl", f"data.cache={folder}/cache", "generate.prompts=[]",
            "data.held_out_tokens=600", "train.save_every=2", "train.steps=12", "layout={}"]
    start = [myriad, "train", source / "examples/tiny.yaml", "--quiet"] + [x for k in keys for x in ("-s", k)]

    measured = folder / "config/myriad/clusters/laptop.yaml"  # else each run measures the machine first
    measured.parent.mkdir(parents=True)
    shutil.copy(source / "clusters/laptop.yaml", measured)
    environment = dict(os.environ, XDG_CONFIG_HOME=str(folder / "config"))

    def process(out):
        saved = list((out / "checkpoints").glob("step-????????"))
        command = [myriad, "train", "--resume", out, "--quiet"] if saved else start + ["--out", out]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    def finish(out):
        p = process(out)
        text = p.communicate()[0]
        assert p.returncode == 0, text
        assert (out / "model.safetensors").read_bytes() == whole, f"{out}: other weights"

    began = time.monotonic()
    p = process(folder / "whole")
    assert p.wait() == 0, p.communicate()[0]
    seconds = time.monotonic() - began
    whole = (folder / "whole/model.safetensors").read_bytes()

    moments = random.Random(7)
    for i in range(4):
        p = process(folder / f"kill{i}")
        time.sleep(moments.uniform(0.02, seconds))
        p.kill()
        p.wait()
        finish(folder / f"kill{i}")

    for number in (signal.SIGINT, signal.SIGTERM):
        out = folder / number.name
        p = process(out)
        while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_text():
            time.sleep(0.002)
        p.send_signal(number)
        text = p.communicate()[0]
        assert p.returncode == 0, text
        if not (out / "summary.json").exists():
            assert f"myriad train --resume {out}" in text, text
        finish(out)

    out = folder / "twice"
    p = process(out)
    while not (out / "config.yaml").exists():
        time.sleep(0.002)
    for _ in range(50):
        p.send_signal(signal.SIGINT)
        time.sleep(0.002)
        if p.poll() is not None:
            break
    assert p.wait() == 128 + signal.SIGINT, p.returncode
    finish(out)


with tempfile.TemporaryDirectory() as folder:
    main(pathlib.Path(folder))
print("ok")
