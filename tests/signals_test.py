"""Signals reach one thread that does not compute, and a run that is asked to stop saves and leaves.

signals_test.py MYRIAD. What is checked:
- While a command computes, every thread but the one named `signals` has all asynchronous signals blocked (SigBlk in
  /proc/PID/task/*/status), and no handler is installed for any of them. So no signal frame can come to lie on the
  stack of a thread that computes, on whatever processor this runs.
- 40 signals at random moments of runs with large products (hidden size 512): exit status 0 and a checkpoint; eight of the
  runs are resumed and end with the bits of a run that nobody disturbed.
- Signals that a command does not ask for do what they do in any program; Ctrl-Z stops a run and it goes on; nohup
  keeps HUP away; a terminal that closes lets the run save; a second INT leaves at once.
tests/kill_test.py is about SIGKILL, and about signals to a small run.
"""
import concurrent.futures
import fcntl
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
import termios
import time

myriad = pathlib.Path(sys.argv[1]).resolve()
source = pathlib.Path(__file__).resolve().parent.parent

SYNCHRONOUS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS,
               signal.SIGPIPE, signal.SIGXFSZ}
JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}
OPEN = SYNCHRONOUS | JOB_CONTROL
ASYNCHRONOUS = set(signal.valid_signals()) - OPEN - {signal.SIGKILL, signal.SIGSTOP}
assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGPROF,
        signal.SIGWINCH} <= ASYNCHRONOUS

STEPS = 8
RUN = """
model: {model_type: llama, hidden_size: 512, num_hidden_layers: 1, num_attention_heads: 8, num_key_value_heads: 4,
        head_dim: 64, intermediate_size: 1024, vocab_size: 600}
data: {corpus: %s/data/sample/documents.jsonl, cache: %s/cache, vocabulary: 600, held_out_tokens: 600}
train: {sequence_length: 256, tokens_per_step: 1024, steps: %d, save_every: 0, learning_rate: 1.0e-3}
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
            assert not blocked & SYNCHRONOUS or blocked >= ASYNCHRONOUS | SYNCHRONOUS, f"{what}: {name} blocks {blocked}"
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

    def start(self, *args, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
        return subprocess.Popen([myriad, *map(str, args)], text=True, env=self.environment, cwd=self.folder, **options)

    def train(self, name, *args, **options):
        return self.start("train", self.file, "--out", self.folder / name, *args, **options)

    def has_begun(self, name):
        """Signals ask for a checkpoint from here on: the first file of the folder is there."""
        return (self.folder / name / "config.yaml").exists()

    def steps(self, name):
        metrics = self.folder / name / "metrics.jsonl"
        return sum('"norm"' in line for line in metrics.read_text().splitlines()) if metrics.exists() else 0

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
        time.sleep(0.002)


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
        assert p.returncode == -signal.SIGTERM or command[:2] not in (["verify", "layouts"], ["calibrate", "--out"]), what
        print(f"{what}: {readings} readings of up to {most} threads, status {p.returncode}")


def forty_signals(runs, whole):
    moments = random.Random(11)
    plans = [(f"signal{i}", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[i % 3], moments.uniform(0, 3)) for i in range(40)]

    def disturbed(name, number, delay):
        # A third of the time it takes to come to the first step, the rest in the steps.
        p = runs.train(name, "--quiet")
        wait_for(lambda: runs.has_begun(name), p)
        if delay < 1:
            time.sleep(delay)
        else:
            wait_for(lambda: runs.steps(name) >= 1, p)
            time.sleep((delay - 1) / 2)
        p.send_signal(number)
        text = runs.left_well(name, p)
        resumed = name in {plan[0] for plan in plans[::5]}
        if (runs.folder / name / "summary.json").exists():  # the signal came after the last step
            assert runs.weights(name) == whole, f"{name}: other weights"
            interrupted = False
        else:
            assert f"myriad train --resume {runs.folder / name}" in text, text
            assert len(runs.checkpoints(name)) == 1 and runs.steps(name) < STEPS, f"{name}: no checkpoint"
            interrupted = True
            if resumed:
                runs.left_well(name, runs.start("train", "--resume", runs.folder / name, "--quiet"))
                assert runs.weights(name) == whole, f"{name}: resumed to other weights"
        shutil.rmtree(runs.folder / name)
        return interrupted, interrupted and resumed

    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # half of a run waits for the clock
        results = list(pool.map(lambda plan: disturbed(*plan), plans))
    interrupted, resumed = (sum(column) for column in zip(*results))
    print(f"40 signals: {interrupted} runs were interrupted, {resumed} of them resumed to the bit")
    assert interrupted >= 30 and resumed >= 6, results


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


def twice(runs):
    for first, second, status in ((signal.SIGINT, signal.SIGINT, 130), (signal.SIGHUP, signal.SIGTERM, 143),
                                  (signal.SIGHUP, signal.SIGHUP, 0)):
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
    p = runs.train("stopped", "--quiet", start_new_session=False, preexec_fn=os.setpgrp)
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
    p = runs.train("nohup", "--quiet", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_for(lambda: runs.has_begun("nohup"), p)
    p.send_signal(signal.SIGHUP)
    runs.left_well("nohup", p)
    assert runs.weights("nohup") == whole


def closed_terminal(runs):
    ours, theirs = pty.openpty()

    def lead_a_session():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    p = runs.train("closed", stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=lead_a_session)
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = b""
    while runs.steps("closed") < 2:
        assert p.poll() is None, shown
        try:
            shown += os.read(ours, 4096)
        except BlockingIOError:
            time.sleep(0.002)
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
    done("masks of others")
    defaults(runs)
    done("defaults")
    whole = runs.weights("whole")
    twice(runs)
    job_control(runs, whole)
    no_hang_up(runs, whole)
    closed_terminal(runs)
    done("twice, job control, nohup, closed terminal")
    forty_signals(runs, whole)
    done("forty signals")


with tempfile.TemporaryDirectory() as folder:
    main(pathlib.Path(folder))
print("ok")
