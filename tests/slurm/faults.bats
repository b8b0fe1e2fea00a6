# Ranks, nodes and links that fail: one report, launcher exit 5, Slurm records 5:0, and nobody is left 15 s after the event.
load box
load job

setup_file() { box_up_once; }
teardown_file() { box_down; }
setup() { make_job_home; }

# fails_within_15s REPORT: from now ($event) on: the report in the job's output, 5:0 in Slurm, no rank anywhere.
fails_within_15s() {
  wait_until $((event + 15 - SECONDS)) grep -Eq "$1" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  wait_until $((event + 15 - SECONDS)) job_over "$job"
  wait_until $((event + 15 - SECONDS)) no_rank_on n1 n2 n3 n4
  echo "all within $((SECONDS - event)) s of the event"
  show_job "$job"
  [[ $(job_field "$job" ExitCode) == 5:0 ]]
  box_on n1 adaptive-train jobs -j "$job" -n -P -o State,ExitCode | grep -x 'FAILED|5:0'
}

@test "a rank SIGKILLed" {
  start_training
  event=$SECONDS
  box_root n3 kill -KILL "$(worker_pid n3)"
  fails_within_15s '^adaptive-train: rank 2 on n3 failed after step [0-9]+: '
}

@test "a rank SIGSTOPped" {
  start_training
  event=$SECONDS
  box_root n2 kill -STOP "$(worker_pid n2)"
  fails_within_15s '^adaptive-train: rank 1 on n2 failed after step [0-9]+: no heartbeat for 2.5 s'
}

@test "the step's daemon on a node SIGKILLed: its rank ends all the same" {
  start_training
  event=$SECONDS
  box_root n2 bash -c 'kill -KILL $(pgrep -f "slurmstepd: .*'"$job"'\.[0-9]")'
  box_root n3 kill -KILL "$(worker_pid n3)"
  fails_within_15s '^adaptive-train: rank [12] on n[23] failed'
}

@test "a node killed" {
  start_training
  event=$SECONDS
  box kill n4
  wait_until 60 grep -Eq '^adaptive-train: rank 3 on n4 failed after step [0-9]+: ' "$home/slurm-$job.out"
  wait_until $((event + 15 - SECONDS)) job_over "$job"
  wait_until $((event + 15 - SECONDS)) no_rank_on n1 n2 n3
  show_job "$job"
  [[ $(job_field "$job" ExitCode) == 5:0 ]]
  box revive n4
}

@test "a node cut off: also inside it no rank is left" {
  start_training
  event=$SECONDS
  box cut n3
  fails_within_15s '^adaptive-train: rank 2 on n3 failed after step [0-9]+: no heartbeat for 2.5 s'
  box mend n3
}

@test "the batch host cut off: the ranks elsewhere end, and those on it too" {
  start_training
  event=$SECONDS
  box cut n1
  wait_until 60 no_rank_on n2 n3 n4
  wait_until $((event + 15 - SECONDS)) no_rank_on n1
  grep -q "nothing heard for 8 s" "$home/runs/$job"/logs/rank-[123].log
  box_root ctl scancel "$job" # a rank may have had it requeued
  box mend n1
}

@test "the launcher SIGKILLed: no rank is left, and jobs shows the run as LOST" {
  start_training
  event=$SECONDS
  launcher=$(box_root n1 pgrep -x adaptive-train)
  box_root n1 kill -KILL "$launcher"
  wait_until 60 no_rank_on n1 n2 n3 n4
  [[ $(box_on n1 adaptive-train jobs -j "$job" -n -P -o State) == LOST ]]
}
