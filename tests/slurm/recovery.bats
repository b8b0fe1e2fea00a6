# Nodes that fail while a job goes on in its allocation.
load box
load job

setup_file() { box_up_once; }
teardown_file() { box_down; }
setup() { make_job_home; }

# Losses have the same bits whatever the nodes: each step's samples are then those of a job without failures, in the same order.
keys=(--train.steps=3000 --checkpoint.every=50 --train.reproducible=layout --train.micro_batch=1)
# failing_job SBATCH-ARGUMENT...: in $job, past a checkpoint; $event is now.
failing_job() {
  job=$(submit -N4 "$@" -- "${keys[@]}")
  wait_for_steps "$job" 120
  event=$SECONDS
}
# goes_on WORDS: past where it was.
goes_on() {
  wait_until 60 grep -Eq "^going on $1 \(failure [0-9]+ of this run\)$" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  wait_until 60 grep -Eq '^resumed from the (checkpoint|memory) of step' "$home/slurm-$job.out"
  echo "goes on $((SECONDS - event)) s after the event"
  wait_until 20 runs_with_its_failure
  jq -e '([.ranks[].samples] | add) == .global_batch' "$home/runs/$job/plan.json"
}
# runs_with_its_failure: that is what squeue and jobs say of $job.
runs_with_its_failure() {
  [[ $(job_field "$job" JobState) == RUNNING ]]
  box_on n1 adaptive-train jobs -j "$job" -n -P -o State,Failures | tee -a /dev/stderr | grep -qx 'RUNNING|[1-9]'
}
# has_all_losses: those of a job with the same keys and without failures, which runs once.
has_all_losses() {
  local whole=$BATS_FILE_TMPDIR/losses
  if [[ ! -s $whole ]]; then
    local failed=$job
    become_idle 90
    job=$(submit -N4 -- "${keys[@]}")
    finished_with "$job" 0:0
    ! grep -q '^going on' "$home/slurm-$job.out" || return 1
    losses "$job" >"$whole.$job"
    mv "$whole.$job" "$whole"
    job=$failed
  fi
  (($(grep -c '^[0-9.]*$' "$whole") == 3000))
  diff <(losses "$job") "$whole"
}
# failed_as JOB KIND-HOST-BLAMED: its only failure, in the store.
failed_as() {
  [[ $(sqlite3 "$home/.local/state/adaptive-train/profiles.db" "SELECT kind, host, blamed FROM failures JOIN jobs ON jobs.id = job_id
    WHERE slurm_job_id = $1" | tee -a /dev/stderr) == "$2" ]]
}
nodes_of() { jq -r '[.ranks[].node] | sort | join(" ")' "$home/runs/$1/plan.json"; }
@test "a node killed: the job goes on with three, and its losses have the bits of a job without failures" {
  failing_job
  box kill n4
  goes_on 'without n4'
  [[ $(nodes_of "$job") == "n1 n2 n3" ]]
  finished_with "$job" 0:0
  failed_as "$job" 'node_silent|n4|node'
  box revive n4
  has_all_losses
}

# Each step is copied: there is always a copy under way.
@test "a node cut off before there is any checkpoint: the state in the memory of the others is taken up, and nothing that was reported is lost" {
  local memory=(--train.steps=1500 --checkpoint.every=0 --train.micro_batch=1 --train.reproducible=layout --recovery.memory_every=1)
  for layout in "--parallel.shard=1" "--parallel.pipeline=2 --parallel.data=2"; do
    read -ra layout_keys <<<"$layout"
    job=$(submit -N4 -- "${memory[@]}" "${layout_keys[@]}")
    wait_for_steps "$job" 120
    committed=$(wc -l <"$home/runs/$job/metrics.jsonl")
    box cut n4
    wait_until 60 grep -q '^resumed from the memory of step' "$home/slurm-$job.out" || { show_job "$job"; return 1; }
    resumed=$(sed -n 's/^resumed from the memory of step \([0-9]*\)$/\1/p' "$home/slurm-$job.out")
    echo "$committed steps were reported before the failure, resumed from step $resumed"
    ((resumed >= committed))
    finished_with "$job" 0:0
    box mend n4
    become_idle 90
    (($(losses "$job" | wc -l) == 1500))
    nothing_kept n1 n2 n3
  done
}

# kept_on NODE: folders of the job in its shared memory.
kept_on() { box_root "$1" find /dev/shm -maxdepth 1 -name "adaptive-train.*.$job.$1.*"; }
nothing_kept() {
  local node
  for node in "$@"; do [[ -z $(kept_on "$node") ]] || return 1; done
}

@test "what a job that is killed has in memory goes with it" {
  job=$(submit -N4 -- --train.steps=1000000)
  wait_for_steps "$job" 20
  for node in n1 n2 n3 n4; do [[ $(kept_on "$node") ]]; done
  box_on ctl scancel -s KILL --full "$job"
  wait_until 60 job_over "$job"
  wait_until 60 nothing_kept n1 n2 n3 n4
}

@test "a node cut off: a spare takes its place, and no rank is left on it" {
  job=$(box_on ctl sbatch --parsable -N4 --adaptive-train=spares=1 job.sh "${keys[@]}")
  wait_for_steps "$job" 120
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
  wait_for_steps "$job" 300
  box kill n4
  wait_until 60 grep -Eq '^going on without n4 ' "$home/slurm-$job.out"
  finished_with "$job" 0:0
  [[ $(nodes_of "$job") == "n1 n2" ]]
  box mend n3
  box revive n4
  has_all_losses
}

@test "two nodes at once" {
  failing_job
  box cut n2
  box cut n3
  finished_with "$job" 0:0
  [[ $(nodes_of "$job") == "n1 n4" ]]
  box mend n2
  box mend n3
  has_all_losses
}

# Its slurmd is held back, so that its rank is not there before.
@test "a node cut off while ranks are launched again: the launch that misses it has lost it, and no second one is made" {
  failing_job
  box_root n3 pkill -STOP -x slurmd
  box_root n2 pkill -KILL -f "$worker_command"
  wait_until 60 grep -Eq '^going on \(failure 1' "$home/slurm-$job.out"
  box cut n3
  wait_until 60 grep -Eq '^going on without n3( |$)' "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  box_root n3 pkill -CONT -x slurmd
  finished_with "$job" 0:0
  show_job "$job"
  grep -q 'and the slurmd of n3 does not answer' "$home/slurm-$job.out"
  ! grep -q 'launching again' "$home/slurm-$job.out" || return 1
  [[ $(nodes_of "$job") == "n1 n2 n4" ]]
  box mend n3
}

@test "a node cut off while the run goes on without another" {
  failing_job
  box cut n3
  wait_until 60 grep -Eq '^going on without n3 ' "$home/slurm-$job.out"
  box cut n4
  wait_until 60 grep -Eq '^going on without n4 ' "$home/slurm-$job.out"
  finished_with "$job" 0:0
  [[ $(nodes_of "$job") == "n1 n2" ]]
  box mend n3
  box mend n4
  has_all_losses
}

@test "a spare that is dead as well: the run goes on without both" {
  job=$(box_on ctl sbatch --parsable -N4 --adaptive-train=spares=1 job.sh "${keys[@]}")
  wait_for_steps "$job" 120
  [[ $(nodes_of "$job") == "n1 n2 n3" ]]
  box cut n4
  box cut n2
  finished_with "$job" 0:0
  [[ $(nodes_of "$job") == "n1 n3" ]]
  box mend n2
  box mend n4
  has_all_losses
}

# A checkpoint after every step: there is always one that is written.
@test "a node cut off while a checkpoint is written: the run goes on from the newest that is whole" {
  job=$(submit -N4 -- --train.steps=400 --checkpoint.every=1 --recovery.memory=off)
  event=$SECONDS
  wait_for_steps "$job" 60
  box cut n4
  goes_on 'without n4'
  grep -E '^resumed from the checkpoint of step [0-9]+$' "$home/slurm-$job.out"
  finished_with "$job" 0:0
  [[ $(jq .step "$home/runs/$job/metrics.jsonl") == "$(seq 400)" ]]
  box mend n4
}

@test "a rank killed: its node stays" {
  failing_job
  box_root n3 kill -KILL "$(worker_pid n3)"
  wait_until 60 grep -Eq '^going on \(failure 1 of this run\)$' "$home/slurm-$job.out"
  wait_until 20 runs_with_its_failure
  finished_with "$job" 0:0
  has_all_losses
  [[ $(nodes_of "$job") == "n1 n2 n3 n4" ]]
  failed_as "$job" 'killed|n3|'
}

@test "a rank killed before each step: its node is kept aside, and taken back when the other is lost" {
  # Of a model whose steps leave time to kill a rank before there is one.
  job=$(submit -N2 -- --model.layers=8 --model.hidden=384 --model.heads=4 --train.global_batch=12 --train.micro_batch=1 --train.steps=16 --checkpoint.every=2 --recovery.attempts=10)
  wait_until 90 grep -q '^saved step' "$home/slurm-$job.out"
  wait_until 60 killed_until_left_out n1
  wait_for_steps "$job" $(($(wc -l <"$home/runs/$job/metrics.jsonl") + 1))
  box cut n2
  wait_until 60 grep -Fxq 'taking n1 back, as the other nodes are not enough for a plan' "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  box mend n2
  finished_with "$job" 0:0
}
# killed_until_left_out NODE: kills each new rank there; whether the run goes on without the node.
killed_until_left_out() {
  local pid
  if pid=$(worker_pid "$1") && [[ $pid != "$killed" ]]; then
    box_root "$1" kill -KILL "$pid" || true
    killed=$pid
  fi
  grep -Eq "^going on without $1, where a rank ended twice in a row" "$home/slurm-$job.out"
}

@test "a node cut off while nodes are measured: the others are measured again, and train" {
  box link n3 20mbit # or it is over before the cable is out
  job=$(submit -N4 -- --profile.measure=true --train.steps=20)
  wait_until 60 measures n3
  box cut n3
  # Nothing comes now until the node is missed: what was said before is in the file already.
  grep -q '^adaptive-train .*: job' "$home/slurm-$job.out"
  wait_until 120 job_over "$job"
  box link n3 none
  box mend n3
  finished_with "$job" 0:0
  grep -Fx 'measuring again without n3 (failure 1 of measuring)' "$home/slurm-$job.out"
  [[ $(nodes_of "$job") != *n3* ]]
  failed_as "$job" 'node_silent|n3|node'
}
measures() { box_root "$1" pgrep -f "$worker_command measure"; }

@test "a node that run --inject cuts: left out as a real one, and nobody's failure" {
  job=$(submit -N4 -- --train.steps=1000 --checkpoint.every=20 --recovery.allow_injection=true --inject "cut node n3 at step 200")
  event=$SECONDS
  goes_on 'without n3'
  grep -x 'injected: cut node n3 at step 200 (rank 2)' "$home/slurm-$job.out"
  finished_with "$job" 0:0
  failed_as "$job" 'injected|n3|'
  wait_until 60 no_rank_on n3
}

@test "three of four nodes at once, and no plan for the one that is left: 75, and the newest checkpoint is named" {
  job=$(submit -N4 --mem=256M -- --model.layers=8 --model.hidden=384 --model.heads=4 --train.global_batch=12 --train.micro_batch=1 --train.steps=1000 --checkpoint.every=5)
  wait_until 90 grep -q '^saved step' "$home/slurm-$job.out"
  for node in n2 n3 n4; do box cut "$node"; done
  wait_until 60 grep -Eq "^adaptive-train: rank .*; no plan without n2, n3, n4: .*; the same command with --run-dir $home/runs/$job, or adaptive-train run --continue $job, goes on from the checkpoint of step [0-9]+ \\([0-9]+ steps came after it\\)$" "$home/slurm-$job.out" ||
    { show_job "$job"; return 1; }
  for node in n2 n3 n4; do box mend "$node"; done
  wait_until 60 job_over "$job"
  [[ $(job_field "$job" ExitCode) == 75:0 ]]
  box_on n1 adaptive-train jobs -j "$job" -n -P -o State,ExitCode | grep -x 'REQUEUED|75:0'
}
