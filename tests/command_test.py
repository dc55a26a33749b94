#!/usr/bin/env python3
"""The myriad command as its users meet it: exit statuses, one line of JSON, what a run leaves behind.

usage: command_test.py PATH_TO_MYRIAD
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MYRIAD = None
GOLDEN = ROOT / "tests" / "golden"


def myriad(*args, cwd=ROOT):
    return subprocess.run([MYRIAD, *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=600)


class Refusals(unittest.TestCase):
    """Status 2, before any work, with a message that names rule, value and what would be legal."""

    def refused(self, args, *words):
        r = myriad(*args)
        self.assertEqual(r.returncode, 2, r.stderr + r.stdout)
        if "--json" in args:
            self.assertEqual(json.loads(r.stdout)["status"], 2)
        else:
            self.assertEqual(r.stdout, "")
        for word in words:
            self.assertIn(word, r.stderr)

    def test_command_line(self):
        self.refused(["no-such-command"])
        self.refused(["train"])
        self.refused(["train", "no_such_file.yaml"], "no_such_file.yaml")

    def test_illegal_layouts(self):
        tiny = ["train", "examples/tiny.yaml"]
        self.refused(tiny + ["-s", "layout.dp=0"], "layout.dp", "1")
        self.refused(tiny + ["-s", "layout.pp=64"], "virtual stages", "64")
        self.refused(tiny + ["-s", "layout.micro_batches=1000"], "micro-batches", "1000")
        self.refused(tiny + ["-s", "layout.schedule=zigzag"], "zigzag", "gpipe")
        self.refused(tiny + ["-s", "layout.tpp=2"], "tpp", "tp")
        self.refused(tiny + ["-s", "train.tokens_per_step=1000", "-s", "train.sequence_length=300"], "tokens_per_step")

    def test_golden(self):
        self.refused(["verify", "golden", GOLDEN / "llama_gqa", "-s", "layout.pp=5", "--json"], "virtual stages", "5")
        self.refused(["verify", "golden", GOLDEN / "nothing_here"])
        self.refused(["verify", "golden", GOLDEN / "mixtral_micro", "--json"], "micro-batches")


class Simulation(unittest.TestCase):
    CLUSTER = """
device: {memory_bytes: 80e9, memory_bandwidth: 2e12, peak_flops: {bf16: 300e12}}
devices: 8
levels: [{name: node, devices: 2, bandwidth: 2e11, latency: 1e-5}, {name: net, bandwidth: 2e10, latency: 1e-5}]
"""

    def simulated(self, *args):
        r = myriad("simulate", "examples/tiny.yaml", "--json", *args)
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout)

    def test_which_cluster(self):
        self.assertEqual(self.simulated("-s", "cluster=h100")["cluster"], "h100")
        self.assertEqual(self.simulated("-s", "cluster=h100", "--cluster", "b200")["cluster"], "b200")
        self.assertEqual(self.simulated()["cluster"], "laptop")

    def test_odd_clusters(self):
        with tempfile.TemporaryDirectory() as folder:
            def simulate(text, *args):
                file = pathlib.Path(folder) / "odd.yaml"
                file.write_text(text)
                return myriad("simulate", "examples/tiny.yaml", "--cluster", file, "--json", *args)

            for odd, words in {
                self.CLUSTER.replace("memory_bytes: 80e9, ", ""): ["device.memory_bytes is not given"],
                self.CLUSTER.replace("memory_bytes: 80e9", "memory_bytes: 0"): ["memory_bytes is 0", "positive"],
                self.CLUSTER.replace("bandwidth: 2e11", "bandwidth: 0"): ["levels.node.bandwidth is 0", "positive"],
                self.CLUSTER.replace("devices: 8", "devices: 4"): ["8 ranks", "4 devices"],
            }.items():
                r = simulate(odd)
                self.assertEqual(r.returncode, 2, r.stdout)
                for word in words:
                    self.assertIn(word, r.stderr)
            out = simulate(self.CLUSTER, "-s", "layout={tp: 4, dp: 2}")
            self.assertIn("tp 4 spans nodes of 2", " ".join(json.loads(out.stdout)["warnings"]))


class Golden(unittest.TestCase):
    def test_one_line_of_json(self):
        r = myriad("verify", "golden", GOLDEN / "llama_gqa", "-s", "layout.tp=2", "-s", "layout.dp=2", "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(r.stdout.count("\n"), 1)
        out = json.loads(r.stdout)
        self.assertTrue(out["ok"])
        self.assertEqual(out["case"], "llama_gqa")
        for key in ("logits", "loss", "gradient", "norm", "after"):
            self.assertGreaterEqual(out[key], 0)
        self.assertIn("weight", out["gradient_name"])

    def test_a_wrong_case_fails(self):
        """Another case's weights: the run is made, the check fails, status 1."""
        with tempfile.TemporaryDirectory() as folder:
            for file in (GOLDEN / "llama_gqa").iterdir():
                (pathlib.Path(folder) / file.name).write_bytes(file.read_bytes())
            expected = json.loads((pathlib.Path(folder) / "expected.json").read_text())
            expected["steps"][3]["cross_entropy"] *= 1.001
            (pathlib.Path(folder) / "expected.json").write_text(json.dumps(expected))
            r = myriad("verify", "golden", folder, "--json")
            self.assertEqual(r.returncode, 1, r.stderr)
            self.assertFalse(json.loads(r.stdout)["ok"])


class Training(unittest.TestCase):
    def test_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "run"
            r = myriad("train", "examples/tiny.yaml", "--out", out, "--json", "-s", f"data.cache={folder}/cache")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(r.stdout.count("\n"), 1)
            json.loads(r.stdout)
            summary = json.loads((out / "summary.json").read_text())
            self.assertEqual(summary["steps_different"], 0)
            self.assertGreater(summary["steps_compared"], 0)
            for key in ("flops", "collectives", "peak_bytes"):
                self.assertEqual(summary["predicted"][key], summary["measured"][key])
            self.assertEqual(len(summary["measured"]["peak_bytes"]), 8)
            for key in ("heldout_bits_per_byte", "gzip_bits_per_byte", "zstd_bits_per_byte", "mfu"):
                self.assertGreater(summary[key], 0)
            steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            losses = [s["loss"] for s in steps if "loss" in s]
            self.assertLess(losses[-1], losses[0])
            self.assertLess(summary["data_wait_seconds"], 0.1 * summary["step_seconds"])
            self.seen(out, summary)
            r = myriad("generate", out, "--prompt", "the", "--max-tokens", "5", "--json")
            self.assertEqual(r.returncode, 0, r.stderr)
            r = myriad("train", out / "config.yaml", "--out", folder + "/again", "--quiet")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual((out / "model.safetensors").read_bytes(), pathlib.Path(folder, "again", "model.safetensors").read_bytes())

    def seen(self, out, summary):
        """`data show` gives back the documents of the corpus, piece by piece."""
        r = myriad("data", "show", out, "--step", "3", "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        step = json.loads(r.stdout)
        self.assertEqual(len(step["rows"]), 5)
        corpus = [json.loads(line) for line in (ROOT / "data/sample/documents.jsonl").read_text().splitlines()]
        texts = "\n".join(d["text"] for d in corpus)
        for row in step["rows"]:
            self.assertEqual(sum(len(d["ids"]) for d in row["documents"]) + row["padding"], 48)
            for d in row["documents"]:
                self.assertIn(d["text"].strip("\ufffd"), texts)
                self.assertIn(d["source"], {c.get("source", "") for c in corpus})
        r = myriad("data", "show", out / "config.yaml", "--step", "3", "--row", "2", "--json")
        self.assertEqual(json.loads(r.stdout)["rows"], step["rows"][2:3])
        r = myriad("data", "show", out, "--step", "3", "--row", "2")
        self.assertIn("document", r.stdout)
        r = myriad("data", "show", out, "--step", "1000000")
        self.assertEqual(r.returncode, 2)
        r = myriad("data", "show", out, "--step", "1", "-s", "data.held_out_permille=500")
        self.assertEqual(r.returncode, 2)
        self.assertIn(summary["data"]["hash"], r.stderr)


class Show(unittest.TestCase):
    def test_prints(self):
        for what in ("program", "body", "layout", "schedule"):
            r = myriad("show", what, "examples/tiny.yaml")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertTrue(r.stdout.strip())


if __name__ == "__main__":
    MYRIAD = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
