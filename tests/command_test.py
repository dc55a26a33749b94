#!/usr/bin/env python3
"""The myriad command as its users meet it: exit statuses, one line of JSON, what a run leaves behind.

usage: command_test.py PATH_TO_MYRIAD
"""
import json
import math
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
                self.CLUSTER.replace("memory_bytes: 80e9, ", ""): ["device.memory_bytes is missing", "above 0"],
                self.CLUSTER.replace("memory_bytes: 80e9", "memory_bytes: 0"): ["memory_bytes must be a number above 0, not 0"],
                self.CLUSTER.replace("bandwidth: 2e11", "bandwidth: 0"): ["levels.node.bandwidth must be a number above 0, not 0"],
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

    def test_a_damaged_file_is_named(self):
        """A file cut short is damage, status 1; no such folder is bad input, status 2."""
        with tempfile.TemporaryDirectory() as folder:
            for file in (GOLDEN / "llama_gqa").iterdir():
                (pathlib.Path(folder) / file.name).write_bytes(file.read_bytes())
            weights = pathlib.Path(folder) / "model.safetensors"
            weights.write_bytes(weights.read_bytes()[:-100])
            r = myriad("verify", "golden", folder)
            self.assertEqual(r.returncode, 1, r.stderr)
            self.assertIn("model.safetensors", r.stderr)
        self.assertEqual(myriad("verify", "golden", folder).returncode, 2)


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


class Generation(unittest.TestCase):
    """What a run, a checkpoint of it and its export have to say."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.out = cls.folder / "run"
        r = myriad("train", "examples/tiny.yaml", "--out", cls.out, "--quiet", "-s", f"data.cache={cls.folder}/cache",
                   "-s", "train.steps=20", "-s", "train.save_every=10", "-s", "generate.every=10")
        assert r.returncode == 0, r.stderr
        r = myriad("export", cls.out, "--out", cls.folder / "hf")
        assert r.returncode == 0, r.stderr

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def json_of(self, *args):
        r = myriad(*args, "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(r.stdout.count("\n"), 1)
        return json.loads(r.stdout)

    def test_the_same_from_run_checkpoint_and_export(self):
        texts = [self.json_of("generate", model, "--prompt", "The", "--max-tokens", 20, "--seed", 5)
                 for model in (self.out, self.out / "checkpoints" / "step-00000020", self.folder / "hf")]
        for other in texts[1:]:
            self.assertEqual(other["ids"], texts[0]["ids"])
            self.assertEqual(other["text"], texts[0]["text"])
        self.assertGreater(texts[0]["tokens_per_second"], 0)
        self.assertNotEqual(self.json_of("generate", self.out, "--prompt", "The", "--max-tokens", 20, "--seed", 6)["ids"],
                            texts[0]["ids"])

    def test_a_text_does_not_depend_on_its_company(self):
        prompts = ["The", "安装", "a longer text, which goes on for a while", "x"]
        lines, listed = self.folder / "prompts.txt", self.folder / "prompts.json"
        lines.write_text("\n\n".join(prompts) + "\n")
        listed.write_text(json.dumps(prompts))
        common = ["--max-tokens", 20, "--temperature", 1.5]
        first = self.json_of("generate", self.out, "--prompts", lines, *common)["results"]
        self.assertEqual([r["prompt"] for r in first], prompts)
        for n in (1, 3, 16):
            self.assertEqual(self.json_of("generate", self.out, "--prompts", listed, "--batch", n, *common)["results"], first)
        self.assertEqual(self.json_of("generate", self.out, "--prompt", "The", *common)["ids"], first[0]["ids"])
        r = myriad("generate", self.out, "--prompts", lines, *common)
        printed = "".join(t["prompt"] + t["text"] + "\n" for t in first)
        self.assertEqual(r.stdout, printed.replace("\r", "\n"), "Python reads any line end as one")
        self.assertIn("tokens/s", r.stderr)

    def test_ends(self):
        common = ["generate", self.out, "--prompt", "The", "--temperature", 0]
        text = self.json_of(*common, "--max-tokens", 10)
        self.assertLessEqual(text["tokens"], 10)
        stop = text["text"][3:5]
        cut = self.json_of(*common, "--max-tokens", 10, "--stop", "never there", "--stop", stop)
        self.assertEqual((cut["ended"], cut["text"]), ("stop", text["text"][:text["text"].index(stop)]))
        room = len(text["prompt_ids"]) + 3
        self.assertEqual(self.json_of(*common, "--context", room)["tokens"], 3)
        self.assertEqual(self.json_of(*common, "--context", room)["ended"], "context")

    def test_refusals(self):
        for args, *words in ((["--temperature", "-1"], "--temperature", "0"), (["--top-p", "0"], "--top-p", "above 0"),
                             (["--top-p", "1.5"], "--top-p", "nearest: 1"), (["--top-k", "-2"], "--top-k", "nearest: 0"),
                             (["--max-tokens", "-1"], "--max-tokens"), (["--batch", "17"], "--batch", "nearest: 16"),
                             (["--stop", ""], "--stop"), (["--context", "2"], "--prompt", "--context"),
                             (["--context", "-3"], "--context", "nearest: 1"), (["--prompts", "x"], "--prompt")):
            r = myriad("generate", self.out, "--prompt", "The kernel and more", *args)
            self.assertEqual((r.returncode, r.stdout), (2, ""), args)
            for word in words:
                self.assertIn(word, r.stderr)
        self.assertEqual(myriad("generate", self.folder / "nothing", "--prompt", "x").returncode, 2)
        self.assertEqual(myriad("eval", self.out, "--text", self.folder / "nothing").returncode, 2)
        r = myriad("eval", self.out, "--text", ROOT / "README.md", "--stride", 100)
        self.assertEqual(r.returncode, 2)
        self.assertIn("nearest: 48", r.stderr)

    def test_eval(self):
        text = self.folder / "text.txt"
        text.write_text("The kernel can be installed. 安装程序。\n" * 5)
        side = self.json_of("eval", self.out, "--text", text)
        self.assertEqual((side["window"], side["stride"], side["bytes"]), (48, 48, len(text.read_bytes())))
        self.assertAlmostEqual(side["perplexity"], math.exp(side["nats"] / side["tokens"]), places=6)
        self.assertAlmostEqual(side["bits_per_byte"], side["nats"] / math.log(2) / side["bytes"], places=9)
        slid = self.json_of("eval", self.folder / "hf", "--text", text, "--window", 48, "--stride", 7)
        self.assertEqual(slid["tokens"], side["tokens"])
        self.assertGreater(slid["windows"], side["windows"])

    def test_a_folder_with_sentencepiece(self):
        run, hf, spm = self.folder / "wide", self.folder / "spm", GOLDEN / "tokenizers" / "small_spm.model"
        r = myriad("train", "examples/tiny.yaml", "--out", run, "--quiet", "-s", f"data.cache={self.folder}/cache", "-s",
                   "train.steps=2", "-s", "model.vocab_size=2048", "-s", "data.vocabulary=2048")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(myriad("export", run, "--out", hf).returncode, 0)
        (hf / "tokenizer.json").unlink()
        (hf / "tokenizer.model").write_bytes(spm.read_bytes())
        got = self.json_of("generate", hf, "--prompt", "The kernel 安装", "--max-tokens", 30, "--temperature", 1, "--context", 60)
        ids = self.folder / "ids.json"
        ids.write_text(json.dumps([got["prompt_ids"], got["prompt_ids"] + got["ids"]]))
        before, whole = self.json_of("data", "decode", "--tokenizer", spm, "--in", ids)
        self.assertEqual(whole[:len(before)], before)
        self.assertEqual(got["text"].rstrip("\uFFFD"), whole[len(before):].rstrip("\uFFFD"), "but for what is open at the end")
        text = self.folder / "text.txt"
        text.write_text("The kernel can be installed.")
        self.assertGreater(self.json_of("eval", hf, "--text", text)["tokens"], 4)

    def test_samples_of_the_run(self):
        lines = [json.loads(line) for line in (self.out / "samples.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines], [10, 10, 20, 20])


class Show(unittest.TestCase):
    def test_prints(self):
        for what in ("program", "body", "layout", "schedule"):
            r = myriad("show", what, "examples/tiny.yaml")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertTrue(r.stdout.strip())


if __name__ == "__main__":
    MYRIAD = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
