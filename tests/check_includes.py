#!/usr/bin/env python3
"""Checks every #include "..." of src/ and tools/ against the house of src/floors.txt.

A library may include its own headers and those of the libraries it sees, directly or through others; nothing may
include tools. Files machine/exec* and machine/simulate* are libraries of their own, the rest of machine/ is `machine`. Tests obey the rule of
the folder they stand in. Exit status 1, with a line for each breach, if there is one.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
SUFFIXES = {".h", ".cc", ".inc"}


def read_floors(path):
    """{library: the set of libraries it may include, itself among them}."""
    direct = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r"^([a-z]+):\s*(.*)$", line)
        if match:
            direct[match[1]] = match[2].split()
            unknown = [name for name in direct[match[1]] if name not in direct]
            if unknown:
                sys.exit(f"{path}:{number}: {match[1]} sees {' '.join(unknown)}, which no line above tells of")
    sees = {}
    for library, below in direct.items():  # each sees only lines above it
        sees[library] = {library}.union(*(sees[name] for name in below))
    return sees


def library_of(path):
    """The library of a path relative to src/, or None if it names no folder."""
    parts = pathlib.PurePosixPath(path).parts
    if len(parts) < 2:
        return None
    for library in ("exec", "simulate"):
        if parts[0] == "machine" and parts[1].startswith(library):
            return library
    return parts[0]


def target_of(root, file, include):
    """The included file relative to src/ (or tools/...), looked for as the compiler does, else as it is written."""
    for base, prefix in ((file.parent, None), (root / "src", None), (root, None), (root / "src/kernels/fast", None)):
        found = (base / include).resolve()
        if found.is_file():
            for top in (root / "src", root):
                if top in found.parents:
                    return found.relative_to(top).as_posix()
    return include


def breaches(root):
    sees = read_floors(root / "src/floors.txt")
    files = [file for top in ("src", "tools") for file in sorted((root / top).rglob("*")) if file.suffix in SUFFIXES]
    for file in files:
        place = file.relative_to(root).as_posix()
        library = "tools" if place.startswith("tools/") else library_of(place[len("src/"):])
        if library not in sees:
            yield f"{place}: folder {library} has no line in src/floors.txt"
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            target = target_of(root, file, match[1]) if match else None
            wanted = library_of(target) if target else None
            if wanted == "tools" and library != "tools":
                yield f'{place}:{number}: "{match[1]}": nothing may include tools'
            elif wanted in sees and wanted not in sees[library]:
                told = " ".join(sorted(sees[library] - {library})) or "nothing else"
                yield f'{place}:{number}: "{match[1]}" is of {wanted}; {library} sees {told}'


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(breaches(root))
    for breach in found:
        print(breach)
    print(f"check_includes: {len(found)} breaches" if found else "check_includes: the house stands")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
