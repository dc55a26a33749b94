#!/usr/bin/env python3
"""docs/configuration.md holds the tables that `myriad show keys` prints: keys_test.py MYRIAD [--write]

With --write the tables in the page are replaced by the program's."""
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = "| key | type | default | rule |\n"


def main():
    printed = subprocess.run([sys.argv[1], "show", "keys"], capture_output=True, text=True, check=True).stdout
    tables = [HEAD + part.split("\n\n")[0].rstrip("\n") + "\n" for part in printed.split(HEAD)[1:]]
    page = PAGE.read_text()
    found = re.findall(re.escape(HEAD) + r"(?:\|.*\n)+", page)
    if len(tables) < 6 or len(found) != len(tables):
        sys.exit(f"{PAGE} has {len(found)} tables of keys, `myriad show keys` prints {len(tables)}")
    wrong = [(a, b) for a, b in zip(found, tables) if a != b]
    if "--write" in sys.argv:
        for a, b in wrong:
            page = page.replace(a, b)
        PAGE.write_text(page)
        return
    for a, b in wrong:
        for old, new in zip(a.splitlines(), b.splitlines()):
            if old != new:
                sys.exit(f"{PAGE} says\n  {old}\nbut the program's table is\n  {new}\nRun tests/keys_test.py MYRIAD --write.")
        sys.exit(f"{PAGE}: a table has other rows than the program's; run tests/keys_test.py MYRIAD --write")
    print(f"{len(tables)} tables of keys are the program's")


main()
