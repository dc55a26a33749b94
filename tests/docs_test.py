#!/usr/bin/env python3
"""What the documentation names must be there: docs_test.py PATH_TO_MYRIAD.

In README.md, HACKING.md, docs/*.md and the README.md of folders: links and paths lead to files, `myriad` commands name
sub-commands and options that `--help` lists, and those that only read files of this repository are run. The examples
of every `--help` are held to the same.
"""
import collections
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MYRIAD = pathlib.Path(sys.argv[1]).resolve()
BUILD = MYRIAD.parent
CHEAP = {("show", "program"), ("show", "body"), ("show", "layout"), ("show", "schedule"), ("simulate",),
         ("verify", "golden")}
WRITES = {"--out", "--trace"}
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
SPAN = re.compile(r"`([^`]+)`")
PATH = re.compile(r"^[\w.-]+(?:/[\w.-]+)+/?$")
Place = collections.namedtuple("Place", "file line text")


def documents():
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")),
            *sorted((ROOT / "tests").rglob("README.md")), *sorted((ROOT / "data").rglob("README.md"))]


def lines_of(file):
    """(place, whether it stands in a block of code)."""
    fenced = False
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if text.lstrip().startswith("```"):
            fenced = not fenced
            continue
        yield Place(file.relative_to(ROOT).as_posix(), number, text), fenced or text.startswith("    ")


def missing(path, file):
    """Whether a path in a document leads nowhere; paths that name no part of this repository are not judged."""
    path = path.rstrip("/.")
    if re.search(r"[*{}<>$]|\b[A-Z]{2,}\b(?!\.md)|-N\b", path.replace("README.md", "")):
        return False  # a pattern, or a place holder such as NAME
    first = path.split("/")[0]
    if first in ("..", "runs", "corpus"):
        return False  # outside the repository, or what commands leave
    if path.startswith("build/release/"):
        return not (BUILD / path[len("build/release/"):]).exists()
    here = (ROOT / file).parent
    bases = [base for base in (ROOT, ROOT / "src", here) if (base / first).exists()]
    return bool(bases) and not any(list(base.glob(path + end)) for base in bases for end in ("", ".h", ".cc", ".py"))


class Help:
    """What `myriad WORDS --help` lists."""
    known = {}

    def __new__(cls, words):
        if words not in cls.known:
            self = super().__new__(cls)
            done = subprocess.run([MYRIAD, *words, "--help"], capture_output=True, text=True, check=True)
            self.text = done.stdout
            parts = re.split(r"^(\w+):$", self.text, flags=re.M)
            self.parts = dict(zip(parts[1::2], parts[2::2]))
            self.commands = re.findall(r"^  ([a-z]\w*)", self.parts.get("Subcommands", ""), re.M)
            self.options = set(re.findall(r"(?:^  |,)(--?[A-Za-z][\w-]*)", self.parts.get("Options", ""), re.M))
            cls.known[words] = self
        return cls.known[words]


def words_of(command):
    """The words of a command line as documents write it, without what `[...]` and `...` add; None: not a command."""
    command = re.sub(r"\s(?:\||>|&&|\\$).*", "", command)
    try:
        words = shlex.split(re.sub(r"\[(?=[-A-Z])|\](?=\s|$)|\.\.\.(?=\s|$|\])", "", command), comments=True)
    except ValueError:
        return None
    return words or None


def check(command):
    """(the sub-command, its arguments, what is wrong with them or None)."""
    words, at = words_of(command), ()
    if not words:
        return (), [], None
    rest = words[1:]
    while rest and rest[0] in Help(at).commands:
        at, rest = at + (rest[0],), rest[1:]
    if rest and Help(at).commands and not rest[0].startswith("-"):
        return at, rest, f"{rest[0]}: no such sub-command of myriad {' '.join(at)}"
    for word in rest:
        option = word.split("=")[0]
        if re.match(r"--?[A-Za-z]", word) and option not in Help(at).options:
            return at, rest, f"{option}: no such option of myriad {' '.join(at)}"
    return at, rest, None


def runs(at, rest):
    """Whether a command is cheap and reads only what is in the repository."""
    if at not in CHEAP or not rest or WRITES & set(rest) or "--help" in rest:
        return False
    return (ROOT / rest[0]).exists()


def commands_of(place, code):
    for text in [place.text] if code else SPAN.findall(place.text):
        text = text.strip()
        if re.match(r"(?:build/release/)?myriad +[a-z-]", text):
            yield text


def all_helps(at=()):
    yield at
    for command in Help(at).commands:
        yield from all_helps(at + (command,))


def main():
    faults, commands = [], []
    paths = 0
    for file in documents():
        for place, code in lines_of(file):
            where = f"{place.file}:{place.line}"
            for link in [] if code else LINK.findall(place.text):
                paths += 1
                if "://" not in link and not (file.parent / link).exists():
                    faults.append(f"{where}: the link {link} leads nowhere")
            named = re.split(r"[\s`,;()\[\]]", place.text) if code else SPAN.findall(place.text)
            for path in {word.strip() for span in named for word in span.split()}:
                if PATH.match(path):
                    paths += 1
                    if missing(path, place.file):
                        faults.append(f"{where}: {path} does not exist")
            commands += [(where, command) for command in commands_of(place, code)]
            for script, argument in re.findall(r"(\./run|\./test) ([a-z]+)\b(?=[`\s]|$)", place.text):
                if f"{argument})" not in (ROOT / script).read_text() and (code or f"`{script} {argument}" in place.text):
                    faults.append(f"{where}: {script} knows no {argument}")
    for at in all_helps():
        commands += [(f"myriad {' '.join(at)} --help", line.strip())
                     for line in Help(at).parts.get("Examples", "").splitlines() if line.strip()]
    tried = set()
    for where, command in commands:
        at, rest, wrong = check(command)
        if wrong:
            faults.append(f"{where}: {wrong}")
        elif runs(at, rest) and (at, *rest) not in tried:
            tried.add((at, *rest))
            done = subprocess.run([MYRIAD, *at, *rest], cwd=ROOT, capture_output=True, text=True, timeout=300)
            if done.returncode:
                faults.append(f"{where}: {command}: status {done.returncode}\n{done.stderr[-500:]}")
    for fault in faults:
        print(fault)
    print(f"docs_test: {paths} paths and links, {len(commands)} commands, {len(tried)} of them run, {len(faults)} faults")
    sys.exit(1 if faults or not tried else 0)


if __name__ == "__main__":
    main()
