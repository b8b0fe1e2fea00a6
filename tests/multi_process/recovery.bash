# What the bats files on recovery share: runs whose ranks fail, held against one whose ranks do not.
# shellcheck shell=bash

source "$(dirname "${BASH_SOURCE[0]}")/run.bash"

setup() { make_run_folder; }
teardown() { kill -9 "$launcher" 2>/dev/null || true; }

# Replicas with equal shares have the same bits each time.
keys=(--train.steps=400 --checkpoint.every=20 --parallel.shares=even --train.global_batch=12)

# whole ARG...: without a failure, in $work/whole.
whole() { train "${keys[@]}" "$@" --run-dir "$work/whole"; }

# fails_at STEP SIGNAL RANK: once that step is done.
fails_at() {
  wait_until 60 steps_done "$1"
  mapfile -t ranks < <(rank_pids)
  kill "-$2" "${ranks[$3]}"
}

# grep_times N WORDS: at least so many lines of the output.
grep_times() { (($(grep -c "$2" "$work/out") >= $1)); }

# gone_on N: N times so far.
gone_on() { (($(grep -c '^going on' "$work/out") == $1)); }

# killed_twice LAYOUT: the run goes on with the bits of one that did not fail, each step once.
killed_twice() {
  rm -rf "$work/whole" "$work/run"
  local layout_keys
  read -ra layout_keys <<<"$1"
  whole "${layout_keys[@]}" --train.micro_batch=2
  train_in_background "${keys[@]}" "${layout_keys[@]}" --train.micro_batch=2
  fails_at 50 KILL 2
  wait_until 60 gone_on 1
  wait_until 60 grep_times 1 '^training again [0-9.]* s after the failure was seen, [0-9]* steps\{0,1\} lost$'
  fails_at 110 KILL 0
  ends_with 0
  grep -Eq '^rank 2 on .* failed after step [0-9]+: its process ended: killed by signal 9' "$work/out"
  grep -q '^going on (failure 1 of this run)$' "$work/out"
  gone_on 2
  diff <(losses "$work/whole") <(losses "$work/run")
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 400)" ]]
  wait_until 60 all_gone "${ranks[@]}"
}

# lost_nothing N: resumed N times from memory, each time at least from the step that $committed has, a line each.
lost_nothing() {
  local resumed
  mapfile -t resumed < <(sed -n 's/^resumed from the memory of step \([0-9]*\)$/\1/p' "$work/out")
  echo "committed before the failures: ${committed[*]}; resumed: ${resumed[*]}"
  ((${#resumed[@]} == $1)) || return 1
  for i in "${!resumed[@]}"; do ((resumed[i] >= committed[i])) || return 1; done
}

# no_step_lost LAYOUT: with each step's state in memory, no step that was reported is lost in two failures.
no_step_lost() {
  local memory=(--train.steps=400 --train.global_batch=12 --train.micro_batch=2 --parallel.shares=even --recovery.memory_every=1)
  rm -rf "$work/whole" "$work/run"
  local layout_keys committed=()
  read -ra layout_keys <<<"$1"
  train "${memory[@]}" "${layout_keys[@]}" --run-dir "$work/whole"
  train_in_background "${memory[@]}" "${layout_keys[@]}"
  for failure in 1 2; do
    wait_until 60 steps_done $((failure * 30))
    mapfile -t ranks < <(rank_pids)
    committed+=("$(wc -l <"$work/run/metrics.jsonl")")
    key=$(key_of "${ranks[0]}")
    kill -KILL "${ranks[$failure]}"
    wait_until 60 gone_on "$failure"
    wait_until 90 grep_times "$failure" '^resumed from the memory of step'
  done
  ends_with 0
  lost_nothing 2
  diff <(losses "$work/whole") <(losses "$work/run")
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 400)" ]]
  (($(grep -c '^training again .* seen, 0 steps lost$' "$work/out") == 2))
  nothing_kept "$key"
}

# key_of PID: of a rank's run, the end of the names of its folders in shared memory.
key_of() { tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^ADAPTIVE_TRAIN_MEMORY_KEY=//p'; }
# nothing_kept KEY: in shared memory.
nothing_kept() { [[ $1 && -z $(find /dev/shm -maxdepth 1 -name "adaptive-train.*.$1") ]]; }
