# Ranks and launchers that die, stop or hang on one machine.
load run

setup() { make_run_folder; }
teardown() { kill -9 "$launcher" 2>/dev/null || true; }

# A failure ends these runs; recovery.bats has those that go on.
long_run() {
  train_in_background --train.steps=100000 --recovery.attempts=0
  wait_until 60 steps_done 5
  mapfile -t ranks < <(rank_pids)
  ((${#ranks[@]} == 4))
}

@test "a rank that is SIGKILLed: one clear report, exit 5, no rank left" {
  long_run
  kill -KILL "${ranks[2]}"
  ends_with 5
  grep -E '^adaptive-train: rank 2 on .* failed after step [0-9]+: its process ended: killed by signal 9' "$work/err"
  all_gone "${ranks[@]}"
  [[ $("$bin/adaptive-train" jobs -a --store "$store" -n -P -o State,ExitCode) == "FAILED|5:0" ]]
}

@test "a rank that is SIGSTOPped: found by its silence, exit 5, no rank left" {
  long_run
  kill -STOP "${ranks[1]}"
  ends_with 5
  grep -E '^adaptive-train: rank 1 on .* no heartbeat for 2.5 s' "$work/err"
  all_gone "${ranks[@]}"
}

@test "rank 0 SIGKILLed at many points: always exit 5 and no rank left" {
  for delay in 0.05 0.1 0.15 0.2 0.3 0.5 0.8; do
    rm -rf "$work/run"
    train_in_background --train.steps=100000 --recovery.attempts=0
    wait_until 60 started_ranks
    sleep "$delay"
    mapfile -t ranks < <(rank_pids)
    kill -KILL "${ranks[0]}"
    ends_with 5
    wait_until 60 all_gone "${ranks[@]}"
  done
}

@test "a launcher that is SIGKILLed leaves no rank" {
  long_run
  kill -KILL "$launcher"
  wait_until 60 all_gone "${ranks[@]}"
}

@test "what a SIGKILLed launcher left in the temporary folder goes at the next start" {
  mkdir "$work/tmp"
  export TMPDIR=$work/tmp
  long_run
  kill -KILL "$launcher"
  wait_until 60 all_gone "${ranks[@]}"
  [[ $(ls -A "$work/tmp") == adaptive-train-step-* ]]
  rm -rf "$work/run"
  train --train.steps=2
  ls -A "$work/tmp"
  [[ -z $(ls -A "$work/tmp") ]]
}

@test "a local step that is SIGKILLed leaves no rank and nothing in the temporary folder" {
  mkdir "$work/tmp"
  export TMPDIR=$work/tmp
  long_run
  kill -KILL "$(pgrep -P "$launcher" -f local-step)"
  ends_with 5
  wait_until 60 all_gone "${ranks[@]}"
  ls -A "$work/tmp"
  [[ -z $(ls -A "$work/tmp") ]]
}

@test "a launcher that is SIGSTOPped: the ranks end themselves" {
  long_run
  kill -STOP "$launcher"
  wait_until 60 all_gone "${ranks[@]}"
  grep -q 'nothing heard for 8 s' "$work"/run/logs/rank-*.log
  kill -CONT "$launcher"
  ends_with 5
}

@test "all processes SIGSTOPped for 10 s, as on a suspended machine: the run goes on" {
  long_run
  kill -STOP "$launcher" "${ranks[@]}"
  local before
  before=$(wc -l <"$work/run/metrics.jsonl")
  sleep 10
  # Whoever wakes first has heard nothing for long, and finds nothing unread either.
  kill -CONT "${ranks[@]}"
  sleep 2
  kill -CONT "$launcher"
  sleep 3
  kill -0 "$launcher" "${ranks[@]}"
  (($(wc -l <"$work/run/metrics.jsonl") > before + 1))
  kill -KILL "$launcher"
  wait_until 60 all_gone "${ranks[@]}"
}

@test "a rank that cannot read its data: the run says who waits for whom, and that it goes on" {
  cp "$fakes/libhung_reads.so" "$work/"
  LD_PRELOAD=$work/libhung_reads.so long_run
  echo 2 >"$work/HUNG_READS"
  wait_until 60 grep -Eq '^no step for [0-9]+ s \(step [0-9]+, usually .* s\): rank 2 on .* is at: reading training data \(micro-batch 1, for [0-9]+ s\); ranks 0, 1, 3 wait for it$' "$work/out"
  rm "$work/HUNG_READS"
  wait_until 60 grep -Eq '^step [0-9]+ has ended after [0-9]+ s: the run goes on$' "$work/out"
  kill -INT "$launcher"
  ends_with 130
}

# trained FOLDER ARG...: a run in $work/FOLDER.
trained() {
  train "${@:2}"
  mv "$work/run" "$work/$1"
}

@test "every twentieth message leaves 20 ms late: the same bits as without, for replicas, stages and tensor ranks" {
  cp "$fakes/libheld_sends.so" "$work/"
  for layout in "4 1 1" "2 2 1" "2 1 2"; do
    read -r replicas stages tensor <<<"$layout"
    local keys=(--parallel.data="$replicas" --parallel.pipeline="$stages" --parallel.tensor="$tensor" --parallel.shares=even --train.micro_batch=3 --train.global_batch=12
      --profile.warmup_steps=0)
    trained "prompt-$layout" "${keys[@]}"
    rm -f "$work/HELD_SENDS"
    LD_PRELOAD=$work/libheld_sends.so trained "late-$layout" "${keys[@]}"
    (($(wc -c <"$work/HELD_SENDS") >= 10))
    [[ $(losses "$work/late-$layout" | wc -l) == 20 ]]
    diff <(losses "$work/prompt-$layout") <(losses "$work/late-$layout")
  done
}

@test "a hung fence costs one retry, not the job; retries are in the store" {
  cp "$fakes/libhung_fence.so" "$work/"
  echo 1 >"$work/HUNG_FENCES"
  LD_PRELOAD=$work/libhung_fence.so train | tee "$work/out"
  grep -q '1 launch retry$' "$work/out"
  [[ $(sqlite3 "$work/profiles.db" "SELECT group_concat(outcome) FROM launches") == retried,ok ]]
}

@test "fences that always hang: three launches, then exit 5" {
  cp "$fakes/libhung_fence.so" "$work/"
  echo 9 >"$work/HUNG_FENCES"
  LD_PRELOAD=$work/libhung_fence.so train_in_background
  ends_with 5
  # Nothing tells which rank is missing: none is named alone.
  grep -q '3 launches failed, the last: PMIx exchange: PMIx fence did not end within 50[0-9]* ms on ranks 0, 1, 2, 3$' "$work/err"
  [[ $(cat "$work/HUNG_FENCES") == 6 ]]
}

@test "a worker that cannot run: exit 5 and its reason" {
  mkdir "$work/bin"
  cp "$bin/adaptive-train" "$bin/adaptive-train-probe" "$work/bin/"
  printf '#!/bin/sh\nexit 3\n' >"$work/bin/adaptive-train-worker"
  chmod 755 "$work/bin/adaptive-train-worker"
  bin=$work/bin train_in_background
  ends_with 5
  grep -q 'its process ended: exit code 3' "$work/err"
}
