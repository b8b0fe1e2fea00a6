#!/bin/bash
# All tests: unit and multi_process in release and under the address and undefined-behaviour sanitizers, then slurm on a
# cluster in a box. --long adds the thread sanitizer, lint and the long tests. Run as root on Debian 12; may be run again.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

long=
case "${1-}" in
  '') ;;
  --long) long=yes ;;
  *)
    echo "usage: ./test.sh [--long]" >&2
    exit 2
    ;;
esac
((EUID == 0)) || {
  echo "test.sh: must be run as root: it installs packages and makes network namespaces" >&2
  exit 1
}

build() { # PRESET
  echo "== build $1"
  local log
  log=$(mktemp)
  if ! { cmake --preset "$1" && cmake --build --preset "$1"; } >"$log" 2>&1; then
    grep -E 'error|FAILED' "$log" | head -n 20 >&2 || tail -n 30 "$log" >&2
    echo "test.sh: building $1 failed, see $log" >&2
    return 1
  fi
  rm -f "$log"
}

check() { # PRESET CTEST-ARGUMENT...
  echo "== test $1: ${*:2}"
  ctest --test-dir "build/$1" --output-on-failure --no-tests=error "${@:2}"
}

echo "== packages"
packaging/debian/install-packages
# The user that tests run as must not matter for where profiles go.
unset XDG_STATE_HOME ADAPTIVE_TRAIN_OPTIONS
status=0
build release
check release -L 'unit|multi_process' -LE 'gpu|long' -j 2 || status=1
# The cluster's tests mostly wait: the next build takes what they leave of the processors.
(renice -n 19 -p "$BASHPID" >/dev/null && build asan) &
asan_build=$!
check release -L slurm -LE 'gpu|long' || status=1
wait "$asan_build"
check asan -L 'unit|multi_process' -LE 'gpu|long' -j 2 || status=1
if [[ $long ]]; then
  echo "== lint"
  packaging/debian/install-packages clang-format clang-tidy
  tests/lint "$PWD" build/release || status=1
  build tsan
  OMP_NUM_THREADS=1 check tsan -L 'unit|multi_process' -LE 'gpu' || status=1
  check release -L long -LE gpu || status=1
  check asan -L 'fuzz|whole_search' || status=1
fi
((status == 0)) && echo "== all passed" || echo "== FAILED"
exit "$status"
