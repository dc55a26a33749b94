"""Signals reach one thread that does not compute, and a run that is asked to stop saves and leaves.

signals_test.py MYRIAD. What is checked:
- While a command computes, every thread but the one named `signals` has all asynchronous signals blocked (SigBlk in
  /proc/PID/task/*/status), and no handler is installed for any of them. So no signal frame can come to lie on the
  stack of a thread that computes, on whatever processor this runs.
- 40 signals at random moments of runs with large products (hidden size 512): exit status 0 and a checkpoint; eight of
  the runs are resumed and end with the bits of a run that nobody disturbed.
- Signals that a command does not ask for do what they do in any program; Ctrl-Z stops a run and it goes on; nohup
  keeps HUP away; a terminal that closes lets the run save; a second INT leaves at once.
tests/kill_test.py is about SIGKILL, and about signals to a small run.
"""
import concurrent.futures
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

myriad = pathlib.Path(sys.argv[1]).resolve()
source = pathlib.Path(__file__).resolve().parent.parent

OPEN = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS,
        signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}
ASYNCHRONOUS = set(signal.valid_signals()) - OPEN - {signal.SIGKILL, signal.SIGSTOP}
assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGPROF,
        signal.SIGWINCH} <= ASYNCHRONOUS

STEPS = 10
RUN = """
model: {model_type: llama, hidden_size: 512, num_hidden_layers: 1, num_attention_heads: 8, num_key_value_heads: 4,
        head_dim: 64, intermediate_size: 1024, vocab_size: 600}
data: {corpus: %s/data/sample/documents.jsonl, cache: %s/cache, vocabulary: 600, held_out_tokens: 600}
train: {sequence_length: 256, tokens_per_step: 512, steps: %d, save_every: 0, learning_rate: 1.0e-3}
layout: {dp: 2}
generate: {prompts: []}
"""


def names(mask):
    return {n for n in signal.valid_signals() if mask >> (n - 1) & 1}


def threads(pid):
    """[(name, signals blocked, signals with a handler)] of a process, or nothing if it changed meanwhile."""
    found = {}
    try:
        for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            found[status] = (lines["Name"].strip(), names(int(lines["SigBlk"], 16)), names(int(lines["SigCgt"], 16)))
        taker = [status for status, (name, *_) in found.items() if name == "signals"]
        # The taker lived while the masks of the others were read: it ends before they change.
        return list(found.values()) if taker and taker[0].exists() else []
    except (OSError, KeyError, ValueError):
        return []


def check_threads(process, what, until, most_seconds=60):
    """Reads the masks while `process` runs, until until(number of readings)."""
    readings, most, end = 0, 0, time.monotonic() + most_seconds
    while process.poll() is None and not until(readings):
        assert time.monotonic() < end, f"{what}: no thread takes the signals, or it takes too long; {readings} readings"
        found = threads(process.pid)
        for name, blocked, handled in found:
            assert not handled & ASYNCHRONOUS, f"{what}: handlers for {handled & ASYNCHRONOUS}"
            if blocked != ASYNCHRONOUS | OPEN:  # as in a thread that is just being made
                assert not blocked & OPEN, f"{what}: thread {name} blocks {blocked & OPEN}"
            if name != "signals":
                assert ASYNCHRONOUS <= blocked, f"{what}: thread {name} is open to {ASYNCHRONOUS - blocked}"
        readings += bool(found)
        most = max(most, len(found))
        time.sleep(0.005)
    assert readings > 0, f"{what}: no thread that takes the signals was seen before the end"
    return readings, most


class Runs:
    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "run.yaml"
        self.file.write_text(RUN % (source, folder, STEPS))
        measured = folder / "config/myriad/clusters/laptop.yaml"  # else each run measures the machine first
        measured.parent.mkdir(parents=True)
        shutil.copy(source / "clusters/laptop.yaml", measured)
        self.environment = dict(os.environ, XDG_CONFIG_HOME=str(folder / "config"), TERM="xterm")

    def start(self, *args, through=(), **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
        command = [*through, myriad, *map(str, args)]
        return subprocess.Popen(command, text=True, env=self.environment, cwd=self.folder, **options)

    def train(self, name, *args, **options):
        return self.start("train", self.file, "--out", self.folder / name, *args, **options)

    def has_begun(self, name):
        """Signals ask for a checkpoint from here on: the first file of the folder is there."""
        return (self.folder / name / "config.yaml").exists()

    def seconds(self, name):
        """Of each step that is done."""
        metrics = self.folder / name / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
        return [json.loads(line)["seconds"] for line in lines if line.endswith("\n") and '"norm"' in line]

    def steps(self, name):
        return len(self.seconds(name))

    def checkpoints(self, name):
        return sorted((self.folder / name / "checkpoints").glob("step-????????"))

    def weights(self, name):
        return (self.folder / name / "model.safetensors").read_bytes()

    def left_well(self, name, process):
        text = process.communicate(timeout=120)[0]
        assert process.returncode == 0, f"{name}: status {process.returncode}\n{text}"
        return text


def wait_for(condition, process=None, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        assert process is None or process.poll() is None, process.communicate()[0]
        time.sleep(0.005)


def masks_while_training(runs):
    p = runs.train("whole", "--quiet", "-s", "train.save_every=1000")
    wait_for(lambda: runs.steps("whole") >= 1, p)
    readings, most = check_threads(p, "train", lambda n: runs.steps("whole") == STEPS)
    runs.left_well("whole", p)
    assert most >= 2, most
    print(f"train: {readings} readings of up to {most} threads")


def masks_of_other_commands(runs):
    """TERM then ends those that are still at work, as it ends any program."""
    text = runs.folder / "text.txt"
    text.write_text("The kernel reads one more line of text. " * 400)
    whole = runs.folder / "whole"
    for command in (["generate", whole, "--prompt", "The kernel", "--max-tokens", 250],
                    ["eval", whole, "--text", text, "--stride", 16],
                    ["verify", "layouts", "--max-ranks", 4],
                    ["verify", "golden", source / "tests/golden/llama_gqa"],
                    ["simulate", runs.file, "--cluster", "h100"],
                    ["calibrate", "--out", runs.folder / "measured.yaml"]):
        what = " ".join(map(str, command[:2]))
        began = time.monotonic()
        p = runs.start(*command)
        readings, most = check_threads(p, what, lambda n: n > 0 and time.monotonic() > began + 0.7)
        p.send_signal(signal.SIGTERM)
        out = p.communicate()[0]
        assert p.returncode in (0, -signal.SIGTERM), f"{what}: {p.returncode}\n{out}"
        assert p.returncode != 0 or what not in ("verify layouts", "calibrate --out"), f"{what}: not stopped"
        print(f"{what}: {readings} readings of up to {most} threads, status {p.returncode}")


def disturbed(runs, whole, name, number, steps, moment, resume):
    """A signal after N steps, at a moment of the next; (it was interrupted, it was resumed)."""
    p = runs.train(name, "--quiet")
    wait_for(lambda: runs.has_begun(name), p)
    wait_for(lambda: runs.steps(name) >= steps, p)
    # Before the first step the local peak is measured: a second of large products.
    time.sleep(moment * (runs.seconds(name)[-1] if steps > 0 else 1.2))
    p.send_signal(number)
    text = runs.left_well(name, p)
    interrupted = not (runs.folder / name / "summary.json").exists()
    if interrupted:
        assert f"myriad train --resume {runs.folder / name}" in text, text
        assert len(runs.checkpoints(name)) == 1 and runs.steps(name) < STEPS, f"{name}: no checkpoint"
        if resume:
            runs.left_well(name, runs.start("train", "--resume", runs.folder / name, "--quiet"))
    if resume or not interrupted:
        assert runs.weights(name) == whole, f"{name}: other weights"
    shutil.rmtree(runs.folder / name)
    return interrupted, interrupted and resume


def defaults(runs):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPROF):
        p = runs.start("verify", "layouts", "--max-ranks", 4)
        wait_for(lambda: threads(p.pid), p)
        for harmless in (signal.SIGWINCH, signal.SIGCHLD, signal.SIGURG):
            p.send_signal(harmless)
        time.sleep(0.1)
        assert p.poll() is None
        p.send_signal(number)
        p.communicate()
        assert p.returncode == -number, p.returncode


def twice(runs, first, second, status):
    name = f"twice{status}"
    p = runs.train(name, "--quiet")
    wait_for(lambda: runs.has_begun(name), p)
    p.send_signal(first)
    time.sleep(0.1)  # the peak is being measured
    p.send_signal(second)
    text = p.communicate()[0]
    assert p.returncode == status, f"{first}, {second}: {p.returncode}\n{text}"
    assert len(runs.checkpoints(name)) == (status == 0)


def job_control(runs, whole):
    p = runs.train("stopped", "--quiet", process_group=0)
    wait_for(lambda: runs.steps("stopped") >= 2, p)
    p.send_signal(signal.SIGTSTP)
    assert os.WIFSTOPPED(os.waitpid(p.pid, os.WUNTRACED)[1])
    done = runs.steps("stopped")
    time.sleep(0.5)
    assert runs.steps("stopped") == done < STEPS
    p.send_signal(signal.SIGCONT)
    runs.left_well("stopped", p)
    assert runs.weights("stopped") == whole


def no_hang_up(runs, whole):
    p = runs.train("nohup", "--quiet", through=["nohup"], stdin=subprocess.DEVNULL)
    wait_for(lambda: runs.has_begun("nohup"), p)
    p.send_signal(signal.SIGHUP)
    runs.left_well("nohup", p)
    assert runs.weights("nohup") == whole


def closed_terminal(runs):
    ours, theirs = pty.openpty()
    p = runs.train("closed", stdin=theirs, stdout=theirs, stderr=theirs, through=["setsid", "--ctty"])
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = b""
    while runs.steps("closed") < 2:
        assert p.poll() is None, shown
        try:
            shown += os.read(ours, 4096)
        except BlockingIOError:
            time.sleep(0.005)
    os.close(ours)
    assert p.wait() == 0, p.returncode
    assert len(runs.checkpoints("closed")) == 1


def main(folder):
    runs = Runs(folder)
    timed = time.monotonic()

    def done(what):
        nonlocal timed
        now = time.monotonic()
        print(f"{what}: {now - timed:.1f} s", flush=True)
        timed = now

    masks_while_training(runs)
    done("masks of train")
    masks_of_other_commands(runs)
    done("masks of other commands")
    defaults(runs)
    done("defaults")

    whole = runs.weights("whole")
    moments = random.Random(11)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:  # half of a run waits for the clock
        others = [pool.submit(twice, runs, signal.SIGINT, signal.SIGINT, 130),
                  pool.submit(twice, runs, signal.SIGHUP, signal.SIGTERM, 143),
                  pool.submit(twice, runs, signal.SIGHUP, signal.SIGHUP, 0),
                  pool.submit(job_control, runs, whole), pool.submit(no_hang_up, runs, whole),
                  pool.submit(closed_terminal, runs)]
        kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        forty = [pool.submit(disturbed, runs, whole, f"signal{i}", kinds[i % 3], moments.choice((0, 0, 1, 2, 3, 4)),
                             moments.random(), i % 5 == 0) for i in range(40)]
        for future in others:
            future.result()
        interrupted, resumed = (sum(column) for column in zip(*(future.result() for future in forty)))
    print(f"40 signals: {interrupted} runs were interrupted, {resumed} of them resumed to the bit")
    assert interrupted >= 35 and resumed >= 7
    done("runs with signals")


with tempfile.TemporaryDirectory() as folder:
    main(pathlib.Path(folder))
print("ok")
