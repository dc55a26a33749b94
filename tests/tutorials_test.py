#!/usr/bin/env python3
"""What the tutorials show can be done: tutorials_test.py BUILD_FOLDER, or tutorials_test.py --write.

Each page docs/NAME.md of PAGES shows two diffs, docs/tutorials/NAME.diff (the change) and NAME-test.diff (its tests), as
they are. In a copy of src/ the diffs must apply one after the other, the first must touch no more files than the page
promises, and every source that they touch must compile (without code being made) by the commands of the build folder.

A diff that no longer applies is made again: change a checkout by hand as the page says, then `git diff` into the file.
With --write the diffs in the pages are replaced by the files.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {"add-an-operator": 4, "add-a-schedule": 3}  # with the most files that the change itself takes
BLOCK = re.compile(r"^```diff\n(.*?)^```$", re.M | re.S)


def diffs_of(name):
    return [ROOT / "docs" / "tutorials" / f"{name}{end}.diff" for end in ("", "-test")]


def page_of(name):
    return ROOT / "docs" / f"{name}.md"


def write(name):
    texts = iter([file.read_text() for file in diffs_of(name)])
    page = BLOCK.sub(lambda _: f"```diff\n{next(texts)}```", page_of(name).read_text())
    page_of(name).write_text(page)


def touched_by(diff):
    return re.findall(r"^\+\+\+ b/(\S+)$", diff.read_text(), re.M)


def copy_sources(to):
    listed = subprocess.run(["git", "ls-files", "-z", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)


def compile_of(entry, copy):
    """The compiler's arguments for the same source in the copy, checked only."""
    words = shlex.split(entry["command"])
    if pathlib.Path(words[0]).name == "ccache":
        del words[0]
    out = words.index("-o")
    del words[out:out + 2]
    words = [word.replace(f"{ROOT}/src", f"{copy}/src") for word in words if word != "-c"]
    return [*words, "-fsyntax-only"]


def faults_of(name, most, commands):
    change, tests = diffs_of(name)
    if BLOCK.findall(page_of(name).read_text()) != [change.read_text(), tests.read_text()]:
        yield f"docs/{name}.md shows other diffs than docs/tutorials/ has: run tests/tutorials_test.py --write"
    if not 1 <= len(touched_by(change)) <= most:
        yield f"{change.name} touches {len(touched_by(change))} files, the page promises {most}"
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder).resolve()
        copy_sources(copy)
        here = {**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
        for diff in (change, tests):
            done = subprocess.run(["git", "apply", str(diff)], cwd=copy, env=here, capture_output=True, text=True)
            if done.returncode:
                yield f"docs/tutorials/{diff.name} does not apply:\n{done.stderr}"
                return
        sources = [file for diff in (change, tests) for file in touched_by(diff) if file.endswith(".cc")]

        def check(source):
            entry = commands[f"{ROOT}/{source}"]
            return subprocess.run(compile_of(entry, copy), cwd=entry["directory"], capture_output=True, text=True)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for source, done in zip(sources, pool.map(check, sources)):
                if done.returncode:
                    yield f"docs/tutorials/{name}: {source} does not compile:\n{done.stderr[-3000:]}"
        print(f"{name}: {len(touched_by(change))} files, compiled {' '.join(sources)}")


def main():
    if sys.argv[1:] == ["--write"]:
        for name in PAGES:
            write(name)
        return
    listed = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    commands = {entry["file"]: entry for entry in listed}
    faults = [fault for name, most in PAGES.items() for fault in faults_of(name, most, commands)]
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


main()
