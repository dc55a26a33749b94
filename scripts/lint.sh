#!/usr/bin/env bash
# Style: clang-format (version 14) on every source, and the checks of .clang-tidy on sources changed since a commit:
#   scripts/lint.sh [--format] [SINCE]    SINCE: by default where this branch left main; on main, and where CI is set,
#                                         the commit before
# --format: clang-format alone. The tidy checks read build/release/compile_commands.json, take ten seconds or more a
# file, and stop after MYRIAD_TIDY_SECONDS (150): files not reached are named. Exit status 1: something is to be mended.
set -euo pipefail
cd "$(dirname "$0")/.."

only_format=
[[ ${1-} != --format ]] || { only_format=1; shift; }
# Other versions format otherwise; a Debian that has no version 14 checks no style.
scripts/install.sh lint || { echo "lint: without clang-format-14 and clang-tidy-14 no style is checked" >&2; exit 0; }

find src tools bench tests -name '*.h' -o -name '*.cc' -o -name '*.inc' | xargs -P"$(nproc)" -n 50 clang-format-14 --dry-run -Werror ||
  { echo "lint: run clang-format-14 -i on these files" >&2; exit 1; }
[[ -z $only_format ]] || exit 0

if [[ -n ${1-} ]]; then
  since=$1
else
  git rev-parse HEAD >/dev/null || { echo "lint: without git no file is known to have changed" >&2; exit 0; }
  since=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true)
  [[ -z ${CI-} && -n $since && $since != $(git rev-parse HEAD) ]] || since=$(git rev-parse --verify -q HEAD~1 || true)
fi
[[ -n $since ]] || { echo "lint: no commit to compare with" >&2; exit 0; }
# Sources before tests; a header is seen through the sources that changed with it.
mapfile -t changed < <(git diff --name-only --diff-filter=d "$since" -- 'src/*.cc' 'tools/*.cc' |
  awk '{ print (/_test\.cc$/ ? 1 : 0), $0 }' | sort | cut -d' ' -f2)
[[ ${#changed[@]} -gt 0 ]] || exit 0

export END=$(($(date +%s) + ${MYRIAD_TIDY_SECONDS:-150}))
tidy() {
  local left=$((END - $(date +%s))) status=124 out=
  [[ $left -le 0 ]] ||
    { status=0; out=$(timeout "$left" clang-tidy-14 --quiet -p build/release --extra-arg=-Wno-error "$1" 2>/dev/null) || status=$?; }
  [[ $status -ne 124 ]] || { echo "lint: not reached: $1" >&2; return 0; }
  [[ $status -eq 0 ]] || echo "$out"
  return "$status"
}
export -f tidy
printf '%s\n' "${changed[@]}" | xargs -P"$(nproc)" -I{} bash -c 'tidy "$1"' _ {} ||
  { echo "lint: .clang-tidy lists the checks" >&2; exit 1; }
