#!/usr/bin/env bash
# Installs the Debian packages that Myriad is built from, with the argument `lint` those that scripts/lint.sh runs; does
# nothing when all are there.
# Exit status 2: something is missing and cannot be installed; the message says what to do.
set -euo pipefail

packages=(g++ cmake ninja-build ccache libcli11-dev libyaml-cpp-dev nlohmann-json3-dev libfmt-dev libgtest-dev
  libhwy-dev libdnnl-dev libopenblas-pthread-dev libzstd-dev zlib1g-dev libxxhash-dev libicu-dev
  libsentencepiece-dev python3)
[[ ${1-} != lint ]] || packages=(clang-format-14 clang-tidy-14 git)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install: this is not a Debian system; install what these packages hold: ${packages[*]}" >&2
  exit 2
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

give_up() {
  echo "install: $1. Run as root:" >&2
  echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 2
}

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || give_up "${#missing[@]} packages are missing, and there is neither root nor sudo"
  as_root=(sudo)
fi

echo "install: ${#missing[@]} packages: ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  if ! "${as_root[@]}" "$@" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    return 1
  fi
}
quietly apt-get update -q || give_up "the package lists could not be fetched"
quietly env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" ||
  give_up "the packages could not be installed"
