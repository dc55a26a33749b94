#!/usr/bin/env python3
"""Draws src/floors.txt, the libraries and what each may see, as docs/architecture.svg.

  scripts/draw_floors.py            writes the picture
  scripts/draw_floors.py --check    exit status 1 if the committed picture is another

A library stands one floor above the highest that it sees directly; lines lead down to these. Colours fit light and
dark pages.
"""
import argparse
import pathlib
import re
import sys
from html import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHAT = {
    "base": "errors, pool, exact sums",
    "ir": "graphs and programs",
    "passes": "model + plan to program",
    "kernels": "plain and fast",
    "comm": "between ranks",
    "model": "emits pieces",
    "ckpt": "files of weights",
    "cluster": "what a cluster costs",
    "data": "texts, tokens, samples",
    "report": "pages",
    "machine": "walker, profile",
    "exec": "computes a program",
    "simulate": "prices a program",
    "plan": "predicts runs",
    "train": "jobs and the loop",
    "calibrate": "measures this machine",
    "verify": "oracles",
    "tools": "the myriad command",
}
WIDE, HIGH, GAP_X, GAP_Y, EDGE = 148, 46, 16, 44, 12


def read(path):
    sees = {}
    for line in path.read_text().splitlines():
        match = re.match(r"^([a-z]+):\s*(.*)$", line)
        if match and match[1] != "bench":
            sees[match[1]] = match[2].split()
    return sees


def curve(x0, y0, x1, y1, t):
    """A point of the line from (x0, y0) down to (x1, y1), which leaves and arrives upright."""
    s = t * t * (3 - 2 * t)
    return x0 + (x1 - x0) * s, y0 + (y1 - y0) * (1.5 * t * (1 - t) + t ** 3)


def hidden(sees, level, column, name, other):
    """How many boxes the line from `name` to `other` passes behind."""
    top, bottom = HIGH, (level[name] - level[other]) * (HIGH + GAP_Y)
    behind = set()
    for k in range(1, 40):
        x, y = curve(column[name], top, column[other], bottom, k / 40)
        for third in sees:
            if level[other] < level[third] < level[name]:
                over = (level[name] - level[third]) * (HIGH + GAP_Y)
                if over - 4 < y < over + HIGH + 4 and abs(x - column[third]) * (WIDE + GAP_X) < WIDE / 2 + 4:
                    behind.add(third)
    return len(behind)


def places_of(sees):
    """Floor and column of each library: moves and swaps within a floor as long as one shows more of the lines."""
    level = {}
    for library, below in sees.items():
        level[library] = 1 + max((level[name] for name in below), default=-1)
    floors = [[name for name in sees if level[name] == h] for h in range(max(level.values()) + 1)]
    columns = max(map(len, floors)) + 1
    column = {name: i + (columns - len(floor)) // 2 for floor in floors for i, name in enumerate(floor)}

    def cost(moved):
        lines = [(name, other) for name in sees for other in sees[name]]
        return sum(12 * hidden(sees, level, column, *line) + abs(column[line[0]] - column[line[1]])
                   for line in lines if moved & ({*line} | {n for n in sees if level[line[1]] < level[n] < level[line[0]]}))

    better = True
    while better:
        better = False
        for name in sees:
            for to in range(columns):
                there = next((n for n in sees if level[n] == level[name] and column[n] == to and n != name), None)
                moved, was = {name, there} - {None}, column[name]
                before = cost(moved)
                column[name], column[there or name] = (to, was) if there else (to, to)
                if cost(moved) < before - 1e-9:
                    better = True
                else:
                    column[name] = was
                    if there:
                        column[there] = to
    return level, column


def draw(sees):
    level, column = places_of(sees)
    width = (max(column.values()) + 1) * (WIDE + GAP_X) - GAP_X + 2 * EDGE
    height = (max(level.values()) + 1) * (HIGH + GAP_Y) - GAP_Y + 2 * EDGE

    def x(name):
        return EDGE + WIDE / 2 + column[name] * (WIDE + GAP_X)

    def y(name):
        return height - EDGE - HIGH - level[name] * (HIGH + GAP_Y)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           'font-family="system-ui, sans-serif" text-anchor="middle" role="img">',
           "<title>The libraries of Myriad; lines lead down to what each sees directly</title>",
           "<style>.box{fill:#f4f6f9;stroke:#5b6b82}.name{fill:#14202f;font-size:15px;font-weight:600}"
           ".what{fill:#44546a;font-size:11px}.line{fill:none;stroke:#7a8aa0;stroke-width:1.3}"
           "@media (prefers-color-scheme:dark){.box{fill:#1d2733;stroke:#8394ab}.name{fill:#e8eef6}.what{fill:#b3c0d1}"
           ".line{stroke:#6f8098}}</style>"]
    for name, below in sees.items():
        for other in below:
            top, bottom = y(name) + HIGH, y(other)
            bend = (bottom - top) / 2
            out.append(f'<path class="line" d="M{x(name):.0f} {top:.0f}C{x(name):.0f} {top + bend:.0f} {x(other):.0f} '
                       f'{bottom - bend:.0f} {x(other):.0f} {bottom:.0f}"/>')
    for name in sees:
        out.append(f'<rect class="box" x="{x(name) - WIDE / 2:.0f}" y="{y(name):.0f}" width="{WIDE}" height="{HIGH}" rx="7"/>')
        out.append(f'<text class="name" x="{x(name):.0f}" y="{y(name) + 20:.0f}">{escape(name)}</text>')
        out.append(f'<text class="what" x="{x(name):.0f}" y="{y(name) + 36:.0f}">{escape(WHAT.get(name, ""))}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    picture, text = ROOT / "docs/architecture.svg", draw(read(ROOT / "src/floors.txt"))
    if not options.check:
        picture.write_text(text)
    elif not picture.is_file() or picture.read_text() != text:
        sys.exit("docs/architecture.svg is not what src/floors.txt says: run scripts/draw_floors.py")


if __name__ == "__main__":
    main()
