#!/usr/bin/env python3
"""report_test.py MYRIAD [--keep FOLDER]: a tiny run leaves a report that stands by itself, in words and in a browser.

Checks report.html (self-contained, well-formed, curves with points), timeline.json (each rank's bars in order, the bubble of summary.json),
`report`, `compare`, and the progress line on terminals of several widths. Where chromium is installed, the page is opened in light, dark
and phone size: no console errors, and something is drawn. Exit status 1 with the first failure."""
import fcntl
import html.parser
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOID = {"meta", "link", "br", "img", "input", "hr"}
CHARTS = ["loss", "heldout", "norm", "learning_rate", "tokens_per_second"]


def check(fact, what):
    if not fact:
        sys.exit(f"report_test: {what}")


def call(*command, **options):
    done = subprocess.run([str(c) for c in command], cwd=ROOT, capture_output=True, text=True, timeout=300, **options)
    check(done.returncode == 0, f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


class Page(html.parser.HTMLParser):
    """Tags must nest; notes curves by chart and everything that points outside."""

    def __init__(self, text):
        super().__init__()
        self.open, self.curves, self.outside, self.chart, self.bars = [], {}, [], None, 0
        self.feed(text)
        self.close()
        check(not self.open, f"tags left open: {self.open}")

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        for key in ("src", "href", "action", "data", "poster"):
            if key in a and not a[key].startswith(("data:", "#")):
                self.outside.append(a[key])
        if tag == "figure":
            self.chart = a.get("id")
        if tag == "path" and a.get("class", "").startswith("curve"):
            self.curves.setdefault(self.chart, []).append(a["d"])
        if tag == "path" and a.get("class", "").startswith("bar"):
            self.bars += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        check(self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}, line {self.getpos()[0]}")
        self.open.pop()


def check_page(text, curves_of):
    page = Page(text)
    check(not page.outside, f"the page points outside: {page.outside}")
    check(not re.search(r"https?://|@import|url\(", text), "the page names an address")
    for chart in CHARTS:
        paths = page.curves.get(chart, [])
        check(len(paths) == curves_of, f"chart {chart} has {len(paths)} curves")
        for d in paths:
            check(re.fullmatch(r"M-?[\d.]+ -?[\d.]+(L-?[\d.]+ -?[\d.]+)*", d), f"chart {chart}: path {d[:80]}")
    check("prefers-color-scheme: dark" in text, "no dark colours")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    for chart in CHARTS:
        check(len(data[chart]["curves"]) == curves_of and data[chart]["curves"][0]["x"], f"no points to hover over in {chart}")
    return page


def check_timeline(folder, ranks):
    trace = json.loads((folder / "timeline.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    check(abs(trace["bubble"] - summary["measured"]["bubble"]) < 1e-9, "two bubbles")
    rows = {}
    for e in trace["traceEvents"]:
        if e["ph"] == "X" and e["pid"] == 0:
            rows.setdefault(e["tid"], []).append(e)
    check(sorted(rows) == list(range(ranks)), f"rows of ranks {sorted(rows)}")
    end = trace["seconds"] * 1e6
    for rank, bars in rows.items():
        kinds = {b["cat"] for b in bars}
        check({"forward", "backward", "optimizer"} <= kinds, f"rank {rank} shows only {kinds}")
        runs = [b for b in bars if b["cat"] in ("forward", "backward", "optimizer")]
        for one, next_one in zip(runs, runs[1:]):
            check(one["ts"] + one["dur"] <= next_one["ts"] + 0.01, f"rank {rank}: bars overlap at {next_one['ts']}")
        check(runs[-1]["ts"] + runs[-1]["dur"] <= end + 0.01, f"rank {rank} works after the end")


def on_terminal(command, width, extra):
    """What a program prints on a terminal of this width."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ.update(extra)
        os.execv(command[0], command)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    out = b""
    while True:
        try:
            piece = os.read(fd, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
    check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, f"status on a terminal of {width}: {out[-500:]}")
    return out.decode()


def check_terminal(myriad, run, folder):
    for width in (200, 80, 40, 20):
        out = on_terminal([myriad, "train", *run, "--out", str(folder / f"tty{width}")], width, {"NO_COLOR": "1", "TERM": "xterm"})
        check("\x1b" not in out, "escape sequences where NO_COLOR is set")
        lines = [l for l in re.split(r"[\r\n]", out) if re.match(r"step +\d+/", l)]
        check(lines, f"no progress line at width {width}")
        check(max(map(len, lines)) < width, f"a progress line of {max(map(len, lines))} columns on {width}")
        check("left" in lines[-1] or width < 40, f"width {width}: {lines[-1]}")
    plain = call(myriad, "train", *run, "--out", folder / "plain")
    check("\r" not in plain and "\x1b" not in plain and re.search(r"^step +\d+/\d+  loss", plain, re.M), "plain lines where there is no terminal")
    quiet = call(myriad, "train", *run, "--out", folder / "quiet", "--quiet")
    said = [l for l in quiet.splitlines() if not l.startswith("  warning  ")]
    check(said == [str(folder / "quiet")], f"--quiet says {quiet!r}")


def pixels(png):
    """Distinct rows of a PNG's raw data: a blank page has hardly any."""
    raw, data = png.read_bytes(), b""
    at = 8
    while at < len(raw):
        length, kind = struct.unpack(">I4s", raw[at:at + 8])
        if kind == b"IDAT":
            data += raw[at + 8:at + 8 + length]
        at += 12 + length
    width, height = struct.unpack(">II", raw[16:24])
    lines = zlib.decompress(data)
    step = len(lines) // height
    return width, height, len({lines[i * step:(i + 1) * step] for i in range(height)})


def check_browser(page, folder):
    browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
    if not browser:
        print("report_test: no chromium here, the page was not opened (apt-get install chromium fonts-wqy-microhei)")
        return
    for name, size, more in (("light", "1200,2600", []), ("dark", "1200,2600", ["--blink-settings=preferredColorScheme=0"]), ("phone", "390,3800", [])):
        shot = folder / f"{name}.png"
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
                               f"--user-data-dir={folder / 'chromium'}", f"--window-size={size}", f"--screenshot={shot}", *more, page.as_uri()],
                              capture_output=True, text=True, timeout=120)
        check(shot.exists(), f"no screenshot ({name}): {done.stderr[-1000:]}")
        console = [l for l in done.stderr.splitlines() if "CONSOLE" in l]
        check(not console, f"console ({name}): {console}")
        width, height, distinct = pixels(shot)
        check(distinct > 200, f"{name}: only {distinct} distinct lines of {width} x {height} pixels")
        print(f"report_test: {name}, {width} x {height}, {distinct} distinct lines")


def main():
    myriad = str(pathlib.Path(sys.argv[1]).resolve())
    keep = sys.argv[3] if sys.argv[2:3] == ["--keep"] else None
    folder = pathlib.Path(keep or tempfile.mkdtemp(prefix="myriad-report-"))
    run = ["examples/tiny.yaml", "-s", "train.steps=12", "-s", "train.evaluate_every=4", "-s", f"data.cache={folder / 'cache'}"]
    call(myriad, "train", *run, "--out", folder / "a")
    call(myriad, "train", *run, "--out", folder / "b", "-s", "layout.tp=1", "-s", "train.learning_rate=5e-3")
    text = (folder / "a" / "report.html").read_text()
    page = check_page(text, 1)
    check(page.bars > 8, "no timeline")
    check_timeline(folder / "a", 8)
    before = text
    check(call(myriad, "report", folder / "a").strip() == str(folder / "a" / "report.html"), "report says where")
    check((folder / "a" / "report.html").read_text() == before, "rebuilt from the files, the report differs")
    shown = call(myriad, "compare", folder / "a", folder / "b", "--out", folder / "compare.html")
    check("layout.tp" in shown and "train.learning_rate" in shown and "held-out bits per byte" in shown, f"compare shows\n{shown}")
    check_page((folder / "compare.html").read_text(), 2)
    refused = subprocess.run([myriad, "report", str(folder)], capture_output=True, text=True)
    check(refused.returncode == 2 and "metrics.jsonl" in refused.stderr, f"a folder that is no run: {refused.stderr}")
    check_terminal(myriad, run, folder)
    check_browser(folder / "a" / "report.html", folder)
    if not keep:
        shutil.rmtree(folder)
    print("report_test: good")


if __name__ == "__main__":
    main()
