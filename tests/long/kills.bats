# Random ranks killed or stopped at random moments: 40 runs that end so, and one that goes on 40 times.
load ../multi_process/run

setup() { make_run_folder; }
teardown() { kill -9 "$launcher" 2>/dev/null || true; }

@test "whenever a rank dies or stops, the run ends with 5 and no rank is left" {
  RANDOM=20261121
  for round in $(seq 40); do
    rm -rf "$work/run"
    train_in_background --train.steps=1000000 --recovery.attempts=0
    wait_until 20 started_ranks
    sleep "$((RANDOM % 2)).$((RANDOM % 1000))"
    mapfile -t ranks < <(rank_pids)
    signal=$((RANDOM % 4 == 0 ? 19 : 9))
    # A rank that stops before it is wired up costs a launch, not the run: that is another test.
    ((signal == 9)) || wait_until 30 steps_done 1
    kill "-$signal" "${ranks[$((RANDOM % 4))]}"
    ends_with 5
    wait_until 5 all_gone "${ranks[@]}"
  done
}

@test "40 failures of a run that goes on: the losses of one without failures, and no rank is left" {
  RANDOM=20261125
  local last=4000 keys=(--train.steps=4000 --checkpoint.every=50 --parallel.data=3 --parallel.shares=even --train.micro_batch=1)
  train "${keys[@]}" --run-dir "$work/whole"
  train_in_background "${keys[@]}"
  local failures=0
  while ((failures < 40)) && kill -0 "$launcher" 2>/dev/null; do
    sleep "$((RANDOM % 2)).$((RANDOM % 1000))"
    mapfile -t ranks < <(rank_pids)
    ((${#ranks[@]} == 3)) || continue
    steps_done 1 || continue
    kill "-$((RANDOM % 8 == 0 ? 19 : 9))" "${ranks[$((RANDOM % 3))]}" && failures=$((failures + 1))
    wait_until 30 gone_on "$failures"
  done
  ends_with 0
  wait_until 5 all_gone "${ranks[@]}"
  diff <(losses "$work/whole") <(losses "$work/run")
  (($(losses "$work/run" | wc -l) == last))
}

# gone_on N: N times, or the run is over.
gone_on() { (($(grep -c '^going on' "$work/out") >= $1)) || ! kill -0 "$launcher" 2>/dev/null; }
