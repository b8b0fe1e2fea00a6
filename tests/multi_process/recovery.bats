# Runs that go on after a failure, from the newest state in memory or the newest checkpoint.
load recovery

@test "ranks that are killed: the run goes on with the bits of one that did not fail, each step once" {
  killed_twice "--parallel.data=2 --parallel.pipeline=2 --parallel.shard=1"
  # Both failures are kept, and the job is done.
  [[ $("$bin/adaptive-train" jobs -a --store "$store" -n -P -o State,ExitCode | sort -u) == "COMPLETED|0:0" ]]
  [[ $(sqlite3 "$work/profiles.db" "SELECT count(*) FROM failures") == 2 ]]
}

@test "a rank that is killed before there is a step: the run goes on" {
  train_in_background "${keys[@]}"
  wait_until 60 started_ranks
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
  wait_until 60 all_gone "${ranks[@]}"
}

@test "a rank that is stopped while the run goes on, before it is heard: launched once more" {
  train_in_background "${keys[@]}"
  fails_at 50 KILL 1
  wait_until 60 all_gone "${ranks[@]}"
  wait_until 60 started_ranks
  kill -STOP "$(started_ranks | head -n 1)"
  ends_with 0
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 400)" ]]
  wait_until 60 all_gone "${ranks[@]}"
}

@test "the only rank is stopped while the run goes on, before it is heard: missed as soon as one that was heard" {
  train_in_background "${keys[@]}" --parallel.data=1
  fails_at 50 KILL 0
  wait_until 60 all_gone "${ranks[@]}"
  wait_until 60 started_ranks
  kill -STOP "$(started_ranks)"
  wait_until 30 grep_times 1 '^launch 1 failed\|no heartbeat'
  ends_with 0
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 400)" ]]
}

@test "the process that holds the ranks is killed: the run goes on" {
  train_in_background "${keys[@]}"
  wait_until 60 steps_done 50
  kill -KILL "$(pgrep -P "$launcher" -f local-step)"
  ends_with 0
  gone_on 1
}

@test "the process that holds the ranks is killed before there is a step: the run goes on" {
  train_in_background "${keys[@]}"
  wait_until 60 started_ranks
  kill -KILL "$(pgrep -P "$launcher" -f local-step)"
  ends_with 0
  grep -q 'killed with the process that holds the ranks, which was killed by signal 9' "$work/out"
  gone_on 1
}

@test "a state in memory takes the place of a checkpoint: no step that was reported is lost" {
  no_step_lost "--parallel.data=4 --compression.mode=topk"
}

# killed_while_held_up FROM KEY...: a rank whose control thread gets no processor is killed; the run goes on from there, and each
# step is reported once.
killed_while_held_up() {
  local from=$1
  shift
  keys+=(--train.micro_batch=3 "$@")
  whole
  train_in_background "${keys[@]}"
  wait_until 60 steps_done 50
  mapfile -t ranks < <(rank_pids)
  control=$(grep -lx control /proc/"${ranks[2]}"/task/*/comm | cut -d / -f 5)
  taskset --cpu-list --pid 0 "$control"
  chrt --idle --pid 0 "$control"
  taskset --cpu-list 0 timeout 60 sh -c 'while :; do :; done' 3>&- &
  sleep 1
  kill -KILL "${ranks[2]}"
  kill %%
  ends_with 0
  grep "^resumed from the $from of step" "$work/out"
  diff <(losses "$work/whole") <(losses "$work/run")
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 400)" ]]
}

@test "a rank that is killed while what it reports is held up: each step is reported once" {
  killed_while_held_up memory --checkpoint.every=0 --recovery.memory_every=1
}

@test "the same where it goes on from a checkpoint" {
  killed_while_held_up checkpoint --checkpoint.every=4 --recovery.memory=off
}

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
  wait_until 60 gone_on 1
  kill -INT "$launcher"
  ends_with 130
  wait_until 60 all_gone "${ranks[@]}"
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
