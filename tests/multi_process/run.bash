# What the bats files of this folder share: a text, a small configuration, the programs of the build under test.
# shellcheck shell=bash

source "$(dirname "${BASH_SOURCE[0]}")/../small_model.bash"
source "$(dirname "${BASH_SOURCE[0]}")/../wait_until.bash"
: "${ADAPTIVE_TRAIN_BUILD:?the build folder to test, such as build/release}"
bin=$ADAPTIVE_TRAIN_BUILD/bin
fakes=$ADAPTIVE_TRAIN_BUILD/lib

# In sanitizer builds UCX's memory hooks and signal handlers collide with the sanitizer's, PMIx and
# UCX leak at exit, and a preloaded fake comes before the sanitizer's runtime.
export UCX_MEM_EVENTS=no UCX_HANDLE_ERRORS=none
export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0

# make_run_folder: $work with the small model, 4 ranks. Under a sanitizer a step of fewer tokens takes long enough.
make_run_folder() {
  work=$(mktemp -d "$BATS_TEST_TMPDIR/run.XXXXXX")
  write_small_model "$work" '[parallel]' 'data = 4'
  ! has_sanitizer || sed -i 's/^sequence = 32$/sequence = 8/' "$work/config.toml"
  store=file:$work/profiles.db
}

has_sanitizer() { grep -q '^ADAPTIVE_TRAIN_SANITIZE:STRING=.' "$ADAPTIVE_TRAIN_BUILD/CMakeCache.txt"; }

# train ARG...: a run to its end, at most five minutes.
train() { timeout --kill-after=10 300 "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" --store "$store" "$@" 3>&-; }

# train_in_background ARG...: sets $launcher; output in $work/out and $work/err.
train_in_background() {
  "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" --store "$store" "$@" >"$work/out" 2>"$work/err" 3>&- &
  launcher=$!
}

# ends_with CODE...: the background run ends within 180 s, with one of these exit codes; sets $status.
ends_with() {
  local give_up=$((SECONDS + 180))
  while kill -0 "$launcher" 2>/dev/null; do
    if ((SECONDS > give_up)); then
      echo "the launcher still runs" >&2
      kill -9 "$launcher"
      return 1
    fi
    sleep 0.05
  done
  status=0
  wait "$launcher" || status=$?
  cat "$work/out" "$work/err"
  echo "exit code $status, expected $*"
  [[ " $* " == *" $status "* ]]
}

# steps_done N: metrics.jsonl has at least N lines.
steps_done() { [[ $(cat "$work/run/metrics.jsonl" 2>/dev/null | wc -l) -ge $1 ]]; }

# rank_pids: processes of this run's ranks, in the order of the ranks.
rank_pids() { sort_ranks < <(started_ranks); }
# started_ranks: in no order; fails if there is none.
started_ranks() { pgrep -P "$(pgrep -P "$launcher" -f local-step || echo 0)" -f adaptive-train-worker; }
sort_ranks() {
  local pid
  while read -r pid; do
    printf '%s %s\n' "$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^PMIX_RANK=//p')" "$pid"
  done | sort -n | cut -d' ' -f2
}

all_gone() {
  local pid
  for pid in "$@"; do
    # A zombie of ours counts as gone.
    [[ -d /proc/$pid && $(sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null) != [ZX] ]] && return 1
  done
  return 0
}

# What keeps the layout, and with it the bits: by what the first run's store tells, the second may get other shares.
# shellcheck disable=SC2034
same_layout=(--parallel.shares=even --train.micro_batch=3)

# losses FOLDER: one loss a line.
losses() { jq -r .loss "$1/metrics.jsonl"; }

# losses_agree FOLDER FOLDER [TOLERANCE [STEPS]]: STEPS (20) each, within 1e-4 relative.
losses_agree() {
  paste <(losses "$1") <(losses "$2") | awk -v tolerance="${3:-1e-4}" -v steps="${4:-20}" '
    { d = $1 - $2; if (d < 0) d = -d; if (d / $1 > worst) worst = d / $1; n++ }
    END { printf "%d steps, largest relative difference %.2e\n", n, worst; exit !(n == steps && worst < tolerance) }'
}

# lock_store FILE [MODE]: another process holds its write lock, or with EXCLUSIVE keeps readers out as well, until unlock_store.
lock_store() {
  local answer
  coproc LOCK { sqlite3 "$1" 2>&1; }
  locks=$LOCK_PID # bash forgets LOCK_PID as soon as it has ended
  echo "BEGIN ${2-IMMEDIATE}; SELECT 'locked';" >&"${LOCK[1]}"
  read -r -t 10 answer <&"${LOCK[0]}"
  [[ $answer == locked ]]
}
unlock_store() {
  eval "exec ${LOCK[1]}>&-"
  wait "$locks"
}
