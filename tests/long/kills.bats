# 40 runs in which a random rank is killed or stopped at a random moment, before or during training.
load ../multi_process/run

setup() { make_run_folder; }
teardown() { kill -9 "$launcher" 2>/dev/null || true; }

@test "whenever a rank dies or stops, the run ends with 5 and no rank is left" {
  RANDOM=20261121
  for round in $(seq 40); do
    rm -rf "$work/run"
    train_in_background --train.steps=1000000
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
