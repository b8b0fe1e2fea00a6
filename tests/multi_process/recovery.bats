# Runs that go on after a failure, from the newest state in memory or the newest checkpoint.
load run

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

@test "ranks that are killed: the run goes on with the bits of one that did not fail, each step once" {
  for layout in "--parallel.data=4" "--parallel.data=2 --parallel.pipeline=2 --parallel.shard=1" "--parallel.data=2 --parallel.tensor=2"; do
    rm -rf "$work/whole" "$work/run"
    local layout_keys
    read -ra layout_keys <<<"$layout"
    whole "${layout_keys[@]}" --train.micro_batch=2
    train_in_background "${keys[@]}" "${layout_keys[@]}" --train.micro_batch=2
    fails_at 50 KILL 2
    wait_until 30 gone_on 1
    wait_until 30 grep_times 1 '^training again [0-9.]* s after the failure was seen, [0-9]* steps\{0,1\} lost$'
    fails_at 110 KILL 0
    ends_with 0
    grep -Eq '^rank 2 on .* failed after step [0-9]+: its process ended: killed by signal 9' "$work/out"
    grep -q '^going on (failure 1 of this run)$' "$work/out"
    gone_on 2
    diff <(losses "$work/whole") <(losses "$work/run")
    [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 400)" ]]
    wait_until 5 all_gone "${ranks[@]}"
  done
  # Both failures are kept, and the job is done.
  [[ $("$bin/adaptive-train" jobs -a --store "$store" -n -P -o State,ExitCode | sort -u) == "COMPLETED|0:0" ]]
  [[ $(sqlite3 "$work/profiles.db" "SELECT count(*) FROM failures") == 6 ]]
}

@test "a rank that is killed before there is a step: the run goes on" {
  train_in_background "${keys[@]}"
  wait_until 30 started_ranks
  kill -KILL "$(started_ranks | head -n 1)"
  ends_with 0
  gone_on 1
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 400)" ]]
}

@test "a rank that is stopped: its node is the launcher's, which is alive, and gets it again" {
  whole --train.micro_batch=3
  train_in_background "${keys[@]}" --train.micro_batch=3
  fails_at 50 STOP 1
  ends_with 0
  grep -Eq '^rank 1 on .* no heartbeat for 2.5 s' "$work/out"
  gone_on 1
  diff <(losses "$work/whole") <(losses "$work/run")
  wait_until 5 all_gone "${ranks[@]}"
}

@test "a rank that is stopped while the run goes on, before it is heard: launched once more" {
  train_in_background "${keys[@]}"
  fails_at 50 KILL 1
  wait_until 5 all_gone "${ranks[@]}"
  wait_until 30 started_ranks
  kill -STOP "$(started_ranks | head -n 1)"
  ends_with 0
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 400)" ]]
  wait_until 5 all_gone "${ranks[@]}"
}

@test "the process that holds the ranks is killed: the run goes on" {
  train_in_background "${keys[@]}"
  wait_until 60 steps_done 50
  kill -KILL "$(pgrep -P "$launcher" -f local-step)"
  ends_with 0
  gone_on 1
}

# lost_nothing N: resumed N times from memory, each time at least from the step that $committed has, a line each.
lost_nothing() {
  local resumed
  mapfile -t resumed < <(sed -n 's/^resumed from the memory of step \([0-9]*\)$/\1/p' "$work/out")
  echo "committed before the failures: ${committed[*]}; resumed: ${resumed[*]}"
  ((${#resumed[@]} == $1)) || return 1
  for i in "${!resumed[@]}"; do ((resumed[i] >= committed[i])) || return 1; done
}

@test "a state in memory takes the place of a checkpoint: no step that was reported is lost, in any layout" {
  local memory=(--train.steps=400 --train.global_batch=12 --train.micro_batch=2 --parallel.shares=even --recovery.memory_every=1)
  for layout in "--parallel.data=4" "--parallel.data=2 --parallel.pipeline=2 --parallel.shard=1" "--parallel.data=4 --parallel.shard=2" \
    "--parallel.data=2 --parallel.tensor=2" "--parallel.data=4 --compression.mode=topk"; do
    rm -rf "$work/whole" "$work/run"
    local layout_keys committed=()
    read -ra layout_keys <<<"$layout"
    train "${memory[@]}" "${layout_keys[@]}" --run-dir "$work/whole"
    train_in_background "${memory[@]}" "${layout_keys[@]}"
    for failure in 1 2; do
      wait_until 60 steps_done $((failure * 30))
      mapfile -t ranks < <(rank_pids)
      committed+=("$(wc -l <"$work/run/metrics.jsonl")")
      key=$(key_of "${ranks[0]}")
      kill -KILL "${ranks[$failure]}"
      wait_until 30 gone_on "$failure"
      wait_until 90 grep_times "$failure" '^resumed from the memory of step'
    done
    ends_with 0
    lost_nothing 2
    diff <(losses "$work/whole") <(losses "$work/run")
    [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 400)" ]]
    (($(grep -c '^training again .* seen, 0 steps lost$' "$work/out") == 2))
    nothing_kept "$key"
  done
}

# key_of PID: of a rank's run, the end of the names of its folders in shared memory.
key_of() { tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^ADAPTIVE_TRAIN_MEMORY_KEY=//p'; }
# nothing_kept KEY: in shared memory.
nothing_kept() { [[ $1 && -z $(find /dev/shm -maxdepth 1 -name "adaptive-train.*.$1") ]]; }

@test "what a copy costs decides how often it is made, and is told" {
  train --train.steps=40 --model.hidden=128 | tee "$work/out"
  grep -Eq '^keeps the state in memory (after every step|every [0-9]+ steps): [0-9.]+ MB, 0.0 MB of them on a second node by the network; a copy takes' "$work/out"
  jq -e '.orders.keeping.on' "$work/run/plan.json"
}

@test "a run that fails for good leaves nothing in shared memory" {
  train_in_background --train.steps=100000 --recovery.attempts=0
  wait_until 60 steps_done 20
  mapfile -t ranks < <(rank_pids)
  key=$(key_of "${ranks[2]}")
  find /dev/shm -maxdepth 1 -name "adaptive-train.*.$key" | grep .
  kill -KILL "${ranks[2]}"
  ends_with 5
  nothing_kept "$key"
}

@test "a run that fails for good: the last step is saved from memory, and the run goes on from there with the same bits" {
  keys+=(--checkpoint.every=0 --recovery.attempts=0 --recovery.memory_every=1 --train.micro_batch=3)
  whole
  train_in_background "${keys[@]}"
  fails_at 50 KILL 2
  ends_with 5
  step=$(sed -n "s/^saved step \([0-9]*\) from this node's memory$/\1/p" "$work/out")
  [[ $(tail -n 1 "$work/run/metrics.jsonl" | jq .step) == "$step" ]]
  grep -q "goes on from the checkpoint of step $step (0 steps came after it)$" "$work/err"
  train "${keys[@]}" | grep "^resumed from the checkpoint of step $step$"
  diff <(losses "$work/whole") <(losses "$work/run")
}

@test "shared memory that is too small is told, and training goes on" {
  # UCX wants shared memory as well.
  export UCX_TLS=tcp,self
  unshare -rm bash -c 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"' bash "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" --store "$store" |
    tee "$work/out"
  (($(grep -Ec '^the state is not kept in memory, a failure loses the steps since the last checkpoint: /dev/shm/.*: No space left on device$' "$work/out") == 1))
  (($(steps_in_file) == 20))
}
steps_in_file() { wc -l <"$work/run/metrics.jsonl"; }

@test "without a checkpoint, and with nothing in memory, it begins again, and says so" {
  train_in_background --train.steps=2000 --recovery.memory=off
  fails_at 5 KILL 3
  ends_with 0
  grep -q '^there is no checkpoint: training begins again$' "$work/out"
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 2000)" ]]
}

@test "failures without a new step between them end the run after recovery.attempts" {
  train_in_background --train.steps=100000 --recovery.attempts=2
  fails_at 300 KILL 1
  # The others die before they come as far.
  while kill -0 "$launcher" 2>/dev/null; do
    mapfile -t ranks < <(rank_pids)
    if ((${#ranks[@]} == 4)); then kill -KILL "${ranks[1]}" 2>/dev/null || true; fi
    sleep 0.05
  done
  ends_with 5
  gone_on 2
  grep -Eq '^adaptive-train: rank 1 on .* failed.*: its process ended: killed by signal 9' "$work/err"
}

@test "a stop while the run goes on is heard" {
  train_in_background "${keys[@]}" --train.steps=100000
  fails_at 50 KILL 1
  wait_until 30 gone_on 1
  kill -INT "$launcher"
  ends_with 130
  wait_until 5 all_gone "${ranks[@]}"
}

@test "a failure after a stop was asked for ends the run" {
  train_in_background "${keys[@]}" --train.steps=100000
  wait_until 60 steps_done 50
  mapfile -t ranks < <(rank_pids)
  kill -STOP "${ranks[1]}"
  kill -TERM "$launcher"
  sleep 1
  kill -KILL "${ranks[1]}"
  ends_with 5
  gone_on 0
}
