#!/bin/bash
# All tests: in release what computes, whole runs, and slurm on a cluster in a box; under the address and
# undefined-behaviour sanitizers what parses, has threads or exchanges. cmake/AdaptiveTrain.cmake says which is which.
# --long adds all that each build leaves to the other, the thread sanitizer, lint, the long tests, and Debian
# packages that are compiled anew.
# Run as root on Debian 12; may be run again.
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

# The packages are made from the same sources by the same compiler as the release: its results are kept for that, in this tree.
export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=$PWD/build/ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=yes \
  CCACHE_SLOPPINESS=locale,pch_defines,time_macros

# section TITLE...: what comes next, and how many seconds have passed.
section() { echo "== $* (at $SECONDS s)"; }

build() { # PRESET [CMAKE-BUILD-ARGUMENT...]
  section "build $*"
  local log
  log=$(mktemp)
  if ! { cmake --preset "$1" && cmake --build --preset "$@"; } >"$log" 2>&1; then
    grep -E 'error|FAILED' "$log" | head -n 20 >&2 || tail -n 30 "$log" >&2
    echo "test.sh: building $1 failed, see $log" >&2
    return 1
  fi
  rm -f "$log"
}

# build_rpms: into build/rpm, where tests/slurm/packages.bats takes them from. The cache has
# nothing for a distribution's own flags. Debian's rpm has no macros of systemd.
build_rpms() {
  section "build rpm"
  if ! packaging/rpm/build --working-tree build/rpm -- --load "$PWD/tests/slurm/el9.macros" --define 'optflags %{nil}' \
    >build/rpm.log 2>&1; then
    tail -n 40 build/rpm.log >&2
    echo "test.sh: building the RPM packages failed, see build/rpm.log" >&2
    return 1
  fi
}

# build_the_rest: with the processor time that nothing else wants. It gives way at once: the last in its session, and the
# session the last of all (sched(7): SCHED_IDLE, autogroups).
build_the_rest() {
  chrt --idle --pid 0 "$BASHPID"
  if [[ -e /proc/self/autogroup ]]; then echo 19 >/proc/self/autogroup; fi
  build_rpms && build asan
}

# build_debs: into build/deb, compiled as a distribution does it.
build_debs() {
  section "build deb"
  if ! DEB_BUILD_OPTIONS="parallel=$(nproc)" packaging/debian/build --working-tree build/deb >build/deb.log 2>&1; then
    tail -n 40 build/deb.log >&2
    echo "test.sh: building the Debian packages failed, see build/deb.log" >&2
    return 1
  fi
}

# not_ok LOG: what bats files say of their tests that failed. The job that failed comes last, so of a long text the first 6 lines
# and the last 40 are printed.
not_ok() {
  awk '
    function tell(  i) {
      for (i = 1; i <= lines; i++) if (i <= 6 || i > lines - 40) print line[i]; else if (i == 7) print "# ..."
      lines = 0
    }
    /^not ok/ { tell(); line[lines = 1] = $0; next }
    lines && /^#/ { line[++lines] = $0; next }
    { tell() }
    END { tell() }' "$1" 2>/dev/null | head -n 120
}

failed=()
check() { # PRESET CTEST-ARGUMENT...
  section "test $1: ${*:2}"
  local last=build/$1/Testing/Temporary
  ctest --test-dir "build/$1" --output-on-failure --no-tests=error "${@:2}" || {
    # The end of what is printed must tell what failed and how, wherever that was. Ranks speak before their test does.
    failed+=("$1 ${*:2}: $(cut -d: -f2- "$last/LastTestsFailed.log" 2>/dev/null | tr '\n' ' ')")
    failed+=("$(grep -hE -B 8 -A 16 ': Failure$' "$last/LastTest.log" 2>/dev/null | sed -n 1,60p; not_ok "$last/LastTest.log")")
  }
}

section "packages"
packaging/debian/install-packages
# The user that tests run as must not matter for where profiles go.
unset XDG_STATE_HOME ADAPTIVE_TRAIN_OPTIONS
build release
check release -L 'unit|multi_process' -LE 'gpu|long' -j 2
# The cluster's tests have deadlines, measure links, and wait for much: the other builds take what they leave.
export -f section build build_rpms build_the_rest
# shellcheck disable=SC2016
setsid bash -o pipefail -c 'SECONDS=$0; build_the_rest' "$SECONDS" &
rest=$!
trap 'kill -- "-$rest" 2>/dev/null || true' EXIT
check release -L slurm -LE 'gpu|long' -E 'slurm.packages'
section "wait for what is built beside them"
wait "$rest" || failed+=("building what comes next: see above, before the cluster's tests")
trap - EXIT
ADAPTIVE_TRAIN_RPMS=$PWD/build/rpm check release -R 'slurm.packages'
check asan -L 'unit|multi_process' -LE 'gpu|long' -j 2
if [[ $long ]]; then
  section "lint"
  packaging/debian/install-packages clang-format clang-tidy clang-16 python3-venv
  tests/lint "$PWD" build/release || failed+=("lint")
  build tsan
  OMP_NUM_THREADS=1 check tsan -L 'unit|multi_process' -LE 'gpu'
  if build_debs; then ADAPTIVE_TRAIN_DEBS=$PWD/build/deb check release -R 'slurm.debian_packages'; else failed+=("build deb"); fi
  build release --target checked_tests benches
  check release -L 'long|checked' -LE gpu
  build asan --target compute_tests
  # Memory and the time of steps are not a plan's with a sanitizer beside them.
  check asan -L 'fuzz|compute' -E 'multi_process.memory|GoingBack'
fi
if grep -qw amx_bf16 /proc/cpuinfo && grep -qw avx512_bf16 /proc/cpuinfo; then
  echo "bfloat16 products: this processor's AMX was run, and AMX and AVX512-BF16 emulated"
elif grep -qw avx512_bf16 /proc/cpuinfo; then
  echo "bfloat16 products: this processor's AVX512-BF16 was run, and AMX and AVX512-BF16 emulated"
else
  echo "bfloat16 products: AMX and AVX512-BF16 emulated only, this processor has neither"
fi
if ((${#failed[@]})); then
  printf '== FAILED %s\n' "${failed[@]}"
  exit 1
fi
section "all passed"
