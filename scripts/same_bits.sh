#!/usr/bin/env bash
# Runs what must not change a bit by two `myriad` binaries and compares losses, norms, final weights, predicted and
# measured figures:
#   scripts/same_bits.sh OLD NEW [FOLDER]     (in the root of the project; a few minutes)
# FOLDER (default: a temporary one) keeps the results of OLD, so that a second call does not run them again.
# Exit status 1: something differs; the first differences are printed.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -ge 2 ]] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2") folder=${3:-$(mktemp -d)}
mkdir -p "$folder"
small=(-s data.corpus=data/sample/documents.jsonl -s train.steps=50 -s train.evaluate_every=50)

runs() {  # BINARY OUT
  local myriad=$1 out=$2
  run() { "$myriad" train "examples/$2.yaml" --out "$out/$1" --quiet "${@:3}" >/dev/null 2>"$out/$1.log"; }
  mkdir -p "$out"
  run tiny tiny
  run one one "${small[@]}"
  run bilingual bilingual "${small[@]}"
  run bilingual_bf16 bilingual "${small[@]}" -s train.dtype=bf16
  run moe moe "${small[@]}"
  run moe_bf16 moe "${small[@]}" -s train.dtype=bf16
  local golden
  for golden in tests/golden/*/expected.json; do
    golden=$(dirname "$golden")
    "$myriad" verify golden "$golden" -s layout.dp=2 -s layout.tp=2 --json >"$out/golden_$(basename "$golden").json" 2>&1 || true
    "$myriad" verify golden "$golden" --json >"$out/golden_one_$(basename "$golden").json" 2>&1 || true
  done
  local table
  for table in tests/predictions/*.csv; do
    "$myriad" verify predictions "$table" --json >"$out/predictions_$(basename "$table").json" 2>&1 || true
  done
  "$myriad" verify layouts --max-ranks 4 --json >"$out/layouts.json" 2>&1 || true
  local run
  for run in telechat2-115b telechat2-39b dense-1.2t; do
    "$myriad" simulate "examples/$run.yaml" --cluster ascend-910b --json >"$out/simulate_$run.json" 2>&1 || true
  done
}

[[ -f $folder/old/done ]] || { runs "$old" "$folder/old" && touch "$folder/old/done"; }
rm -rf "$folder/new"
runs "$new" "$folder/new"

python3 - "$folder/old" "$folder/new" <<'EOF'
import hashlib, json, pathlib, re, sys
old, new = map(pathlib.Path, sys.argv[1:])
# What a clock says, and where files lie.
clock = re.compile(r"second|mfu|tokens_per|throughput|path|folder|wait|bubble|machine|gflop|flops_per_s|when|version|utili[sz]ation")
def plain(x):
    if isinstance(x, dict): return {k: plain(v) for k, v in x.items() if not clock.search(k)}
    return [plain(v) for v in x] if isinstance(x, list) else x
def text(path):
    if path.suffix == ".safetensors": return hashlib.sha256(path.read_bytes()).hexdigest()
    lines = path.read_text().splitlines()
    if path.name.startswith(("simulate", "predictions")): return lines  # no clock: all is predicted
    try:
        return json.dumps(plain(json.loads(path.read_text())), sort_keys=True, indent=0).splitlines()
    except ValueError:
        return [json.dumps(plain(json.loads(l)), sort_keys=True) if l.startswith("{") else l for l in lines]
different = compared = 0
for a in sorted(old.rglob("*")):
    if a.suffix not in (".safetensors", ".json", ".jsonl") or a.name.startswith("timeline"): continue
    b = new / a.relative_to(old)
    compared += 1
    x, y = text(a), text(b) if b.exists() else None
    if x != y:
        different += 1
        print(f"{a.relative_to(old)} differs")
        if isinstance(x, list) and isinstance(y, list):
            for p, q in zip(x, y):
                if p != q:
                    at = next((i for i, (c, d) in enumerate(zip(p, q)) if c != d), min(len(p), len(q)))
                    print("  was", p[max(0, at - 80):at + 120]); print("  is ", q[max(0, at - 80):at + 120]); break
print(f"{compared} files compared, {different} differ")
sys.exit(1 if different or not compared else 0)
EOF
