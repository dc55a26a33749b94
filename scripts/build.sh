#!/usr/bin/env bash
# Configures (once) and builds a preset of CMakePresets.json: build.sh PRESET [TARGET...]. Output only when it fails,
# apart from one line. The environment variable MYRIAD_WERROR=ON makes warnings errors, OFF takes that back.
set -euo pipefail
cd "$(dirname "$0")/.."

export CCACHE_BASEDIR=$PWD  # a checkout elsewhere shares the cache
preset=$1
shift
cmake=cmake
[[ -x /usr/bin/cmake ]] && cmake=/usr/bin/cmake
folder=build/$preset
log=$(mktemp)
trap 'rm -f "$log"' EXIT

option=()
[[ -z ${MYRIAD_WERROR-} ]] || option=("-DMYRIAD_WERROR=$MYRIAD_WERROR")
if [[ ! -f $folder/build.ninja ]] ||
  { [[ -n ${MYRIAD_WERROR-} ]] && ! grep -q "^MYRIAD_WERROR:BOOL=$MYRIAD_WERROR\$" "$folder/CMakeCache.txt"; }; then
  echo "build: configuring $folder" >&2
  "$cmake" --preset "$preset" "${option[@]}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
fi
echo "build: $folder" >&2
target=()
[[ $# -eq 0 ]] || target=(--target "$@")
# A log ends in the failed commands; on success it tells nothing that a reader needs.
"$cmake" --build "$folder" -j"$(nproc)" "${target[@]}" >"$log" 2>&1 || { tail -n 60 "$log" >&2; exit 1; }
