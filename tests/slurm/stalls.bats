# A link that carries next to nothing: the run says which, a stop saves all the same, and a launch over it blames no other node.
load box
load job

setup_file() { box_up_once; }
teardown_file() { box_down; }
setup() { make_job_home; }
teardown() {
  box link n3 n4 none
  box link n1 n3 none
}

@test "a link of 1 kbit/s between n3 and n4: named, SIGTERM saves, and the run goes on from there" {
  start_training
  box link n3 n4 1kbit
  wait_until 60 grep -Eq '^no step for [0-9]+ s \(step [0-9]+, usually .* s\): .* from rank (2 on n3|3 on n4) have not reached rank (2 on n3|3 on n4) \(' "$home/slurm-$job.out" ||
    { show_job "$job"; return 1; }
  box_root ctl scancel --batch --signal=TERM "$job"
  wait_until 60 job_over "$job"
  show_job "$job"
  grep -q '^adaptive-train: stopped by Terminated after saving' "$home/slurm-$job.out"
  [[ $(job_field "$job" ExitCode) == 143:0 ]]
  step=$(sed -n 's/^saved step \([0-9]*\): .*/\1/p' "$home/slurm-$job.out" | tail -n 1)
  [[ $(tail -n 1 "$home/runs/$job/metrics.jsonl" | jq .step) == "$step" ]]
  wait_until 60 no_rank_on n1 n2 n3 n4
}

@test "a launch over such a link to the launcher: the rank behind it is named, it ends itself, and no node is drained" {
  box link n1 n3 1kbit
  job=$(submit -N4 -- --train.steps=20 --recovery.attempts=0)
  wait_until 150 job_over "$job" || { show_job "$job"; return 1; }
  show_job "$job"
  [[ $(job_field "$job" ExitCode) == 5:0 ]]
  grep -E '^adaptive-train: .*(rank 2 on n3|rank 2 \(n3\))' "$home/slurm-$job.out"
  wait_until 60 no_rank_on n1 n2 n3 n4
  box link n1 n3 none
  become_idle 120
}
