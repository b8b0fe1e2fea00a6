# Nodes that fail while a job goes on in its allocation.
load box
load job

setup_file() {
  export ADAPTIVE_TRAIN_BOX=${ADAPTIVE_TRAIN_BOX:-/var/tmp/adaptive-train-box}
  box_up_once
}
teardown_file() { box_down; }
setup() {
  make_job_home
  wait_until 90 all_idle
}
all_idle() { [[ $(box_root ctl sinfo -h -N -o %t | grep -cx idle) == 4 ]]; }

keys=(--train.steps=3000 --checkpoint.every=50)
# failing_job SBATCH-ARGUMENT...: in $job, past a checkpoint; $event is now.
failing_job() {
  job=$(submit -N4 "$@" -- "${keys[@]}")
  wait_until 60 training "$job" 120
  event=$SECONDS
}
# goes_on WORDS: within 30 s, past where it was.
goes_on() {
  wait_until 30 grep -Eq "^going on $1 from the checkpoint of step [0-9]+ \(failure [0-9]+ of this run\)$" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  wait_until 30 grep -q '^resumed from the checkpoint of step' "$home/slurm-$job.out"
  echo "goes on $((SECONDS - event)) s after the event"
}
nodes_of() { jq -r '[.ranks[].node] | join(" ")' "$home/runs/$1/plan.json"; }
# same_losses: those of a job without failures, each step once.
same_losses() {
  whole=$(submit -N4 -- "${keys[@]}")
  finished_with "$whole" 0:0
  paste <(losses "$job") <(losses "$whole") | awk '
    { d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $2) bad++; n++ } END { print n " steps, " bad + 0 " differ"; exit !(n == 3000 && !bad) }'
}

@test "a node killed: the job goes on with three, and its losses are those of a job without failures" {
  failing_job
  box kill n4
  goes_on 'without n4'
  [[ $(nodes_of "$job") == "n1 n2 n3" ]]
  finished_with "$job" 0:0
  box revive n4
  wait_until 90 all_idle
  same_losses
}

@test "a node cut off: a spare takes its place, and no rank is left on it" {
  job=$(box_on ctl sbatch --parsable -N4 --adaptive-train=spares=1 job.sh "${keys[@]}")
  wait_until 60 training "$job" 120
  event=$SECONDS
  [[ $(nodes_of "$job") == "n1 n2 n3" ]]
  box cut n2
  goes_on 'without n2 \(n4 takes its place\)'
  [[ $(nodes_of "$job") == "n1 n3 n4" ]]
  wait_until $((event + 15 - SECONDS)) no_rank_on n2
  finished_with "$job" 0:0
  box mend n2
}

@test "two nodes, one after the other" {
  failing_job
  box cut n3
  goes_on 'without n3'
  wait_until 60 training "$job" 300
  box kill n4
  wait_until 30 grep -Eq '^going on without n4 ' "$home/slurm-$job.out"
  finished_with "$job" 0:0
  [[ $(nodes_of "$job") == "n1 n2" ]]
  box mend n3
  box revive n4
}

@test "two nodes at once" {
  failing_job
  box cut n2
  box cut n3
  finished_with "$job" 0:0
  [[ $(nodes_of "$job") == "n1 n4" ]]
  box mend n2
  box mend n3
}

@test "a rank killed: its node stays" {
  failing_job
  box_root n3 kill -KILL "$(worker_pid n3)"
  wait_until 30 grep -Eq '^going on from the checkpoint of step [0-9]+ \(failure 1 of this run\)$' "$home/slurm-$job.out"
  finished_with "$job" 0:0
  [[ $(nodes_of "$job") == "n1 n2 n3 n4" ]]
}

@test "no plan for what is left: 75, and the same command goes on when the node is back" {
  keys+=(--parallel.data=4)
  failing_job
  box kill n4
  wait_until 60 grep -q '^adaptive-train: .*; no plan without n4: ' "$home/slurm-$job.out"
  wait_until 60 job_over "$job"
  [[ $(job_field "$job" ExitCode) == 75:0 || $(job_field "$job" JobState) == PENDING ]]
  box revive n4
}

# sleeps ARG...: a job of two nodes, in $job, that lasts a minute and a half and writes its environment.
sleeps() {
  job=$(box_on ctl "$@")
  wait_until 30 grep -q ^SLURM_JOB_ID "$home/slurm-$job.out"
  second=$(box_root ctl scontrol show hostnames "$(job_field "$job" NodeList)" | tail -n 1)
}
sleeping='env; sleep 50'

@test "--adaptive-train keeps the allocation of a job that loses a node, wherever the option stands; other jobs end as ever" {
  printf '#!/bin/bash\n#SBATCH --adaptive-train\n%s\n' "$sleeping" >"$home/lines.sh"
  printf '#!/bin/bash\n%s\n' "$sleeping" >"$home/plain.sh"
  jobs=() states=()
  for way in "sbatch --parsable -N 2 --adaptive-train plain.sh" "sbatch --parsable -N 2 lines.sh" "env ADAPTIVE_TRAIN_OPTIONS=spares=0 sbatch --parsable -N 2 plain.sh" \
    "sbatch --parsable -N 2 --no-requeue plain.sh --adaptive-train"; do
    read -ra words <<<"$way"
    sleeps "${words[@]}"
    ! grep NO_KILL "$home/slurm-$job.out"
    box kill "$second"
    wait_until 90 job_over "$job"
    box revive "$second"
    wait_until 90 all_idle
    states+=("$(job_field "$job" JobState)")
  done
  echo "${states[*]}"
  [[ "${states[*]}" == "COMPLETED COMPLETED COMPLETED NODE_FAIL" ]]
}
