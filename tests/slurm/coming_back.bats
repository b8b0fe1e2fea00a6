# Runs that Slurm ends or moves, and that come back: signals, preemption, the end of a job's time, requeues, a lost launcher or batch host.
load box
load job

setup_file() {
  export ADAPTIVE_TRAIN_BOX=${ADAPTIVE_TRAIN_BOX:-/var/tmp/adaptive-train-box}
  box_up_once --slurm 'RequeueExit=75;PreemptType=preempt/partition_prio;PreemptMode=REQUEUE;PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=20 MaxTime=INFINITE;PartitionName=high Nodes=ALL PriorityTier=9 MaxTime=INFINITE'
}
teardown_file() { box_down; }
setup() {
  make_job_home
  wait_until 90 all_idle
}
teardown() {
  box_root ctl scancel --user=ada
  box mend n1
}
all_idle() { [[ $(box_root ctl sinfo -h -N -p main -o %t | grep -cx idle) == 4 ]]; }

# long_job SBATCH-ARGUMENT... -- KEY...: sets $job, past its first steps.
long_job() {
  local sbatch=()
  while (($#)) && [[ $1 != -- ]]; do sbatch+=("$1") && shift; done
  shift
  job=$(submit "${sbatch[@]}" -- --train.steps=1000000 "$@")
  wait_until 60 training "$job" 20
}
# saved_and_requeued REASON: the run says that, with the last step saved, and Slurm has the job in its queue again.
saved_and_requeued() {
  wait_until 30 grep -Eq "^adaptive-train: stopped by $1 after saving$" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  wait_until 30 requeued
  step=$(newest_step)
  [[ $(tail -n 1 "$home/runs/$job/metrics.jsonl" | jq .step) == "$step" ]]
  [[ $(box_on n1 adaptive-train jobs -j "$job" -n -P -o State,ExitCode) == "REQUEUED|75:0" ]]
}
requeued() { [[ $(job_field "$job" JobState) == PENDING && $(job_field "$job" Restarts) == 1 ]]; }
newest_step() { ls "$home/runs/$job/checkpoints" | sed -n 's/^step-0*//p' | tail -n 1; }
# comes_back STEP: the requeued job goes on from there.
comes_back() {
  sleep 3 # slurmd refuses the credential of a job that comes back within two seconds
  box_root ctl scontrol update JobId="$job" StartTime=now
  wait_until 60 grep -q "^resumed from the checkpoint of step $1$" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
}

@test "scancel -s TERM, which reaches ranks alone: saved, 75, requeued, and the run goes on from there" {
  long_job -N4 --
  box_on ctl scancel -s TERM "$job"
  saved_and_requeued 'Terminated from Slurm'
  grep -q '^Terminated from Slurm: saving, then stopping$' "$home/slurm-$job.out"
  comes_back "$step"
}

@test "scancel -s USR1 and INT: saves and goes on, once for all ranks; then stops with 130" {
  long_job -N4 --
  box_on ctl scancel -s USR1 "$job"
  wait_until 30 grep -q '^saved step' "$home/slurm-$job.out"
  sleep 1
  [[ $(grep -c '^saving a checkpoint$' "$home/slurm-$job.out") == 1 ]]
  box_on ctl scancel -s INT "$job"
  finished_with "$job" 130:0
}

@test "preempted with 20 s of grace: saved, 75, and back when the other job is done" {
  long_job -N4 -p low --
  other=$(box_on ctl sbatch --parsable -N4 --exclusive -p high --wrap 'sleep 2')
  saved_and_requeued 'Terminated from Slurm'
  wait_until 60 job_over "$other"
  comes_back "$step"
}

@test "a task of an array, 50 s before its minute is over: each saves by itself in its own folder, and goes on there" {
  array=$(box_on ctl sbatch --parsable --array=3,5 -N2 --time=1 --adaptive-train --output='slurm-%A_%a.out' job.sh --train.steps=1000000 --checkpoint.before_end_seconds=50)
  for task in 3 5; do
    wait_until 60 grep -Eq "^adaptive-train: stopped by the end of the job's time in [0-9]+ s after saving$" "$home/slurm-${array}_$task.out" || { cat "$home/slurm-${array}_$task.out"; return 1; }
    [[ $(grep -c "^the end of the job's time" "$home/slurm-${array}_$task.out") == 1 ]]
    [[ -d $home/runs/${array}_$task/checkpoints ]]
    [[ $(box_on n1 adaptive-train jobs -j "${array}_$task" -n -P -o State,ExitCode) == "REQUEUED|75:0" ]]
  done
  job=${array}_5
  wait_until 30 requeued
  comes_back "$(newest_step)"
}

@test "run --continue takes an earlier job's run up, with its configuration" {
  first=$(submit -N2 -- --train.steps=5 --model.layers=1)
  finished_with "$first" 0:0
  job=$(box_on ctl sbatch --parsable -N2 --adaptive-train --wrap "exec adaptive-train run --continue $first --train.steps=9")
  finished_with "$job" 0:0
  grep -q '^resumed from the checkpoint of step 5$' "$home/slurm-$job.out"
  [[ $(jq .step "$home/runs/$first/metrics.jsonl") == "$(seq 9)" ]]
  [[ ! -e $home/runs/$job ]]
}

@test "the launcher SIGKILLed: no rank and no program of ours is left" {
  long_job -N4 --
  box_root n1 kill -KILL "$(box_root n1 pgrep -x adaptive-train)"
  wait_until 15 no_rank_on n1 n2 n3 n4
  wait_until 30 job_over "$job"
  for node in n2 n3 n4; do wait_until 15 none_of_ours_on "$node"; done
}
none_of_ours_on() { ! box_root "$1" pgrep -f 'adaptive-train (requeue-lost|run)'; }

@test "the batch host cut off: its launcher ends, a rank has the job requeued, and the run goes on on the others" {
  long_job -N3 -w n1,n2,n3 -- --checkpoint.every=20
  wait_until 30 grep -q '^saved step' "$home/slurm-$job.out"
  box cut n1
  wait_until 25 no_rank_on n1 n2 n3
  wait_until 15 grep -q "^adaptive-train: no other node is heard, nor Slurm's controller: this node is cut off" "$home/slurm-$job.out"
  wait_until 90 requeued || { show_job "$job"; box_root ctl sinfo -N; return 1; }
  grep -q 'lost its batch host n1: requeued$' "$home/runs/$job"/logs/rank-*.log
  box_root ctl scontrol update JobId="$job" ReqNodeList=
  comes_back '[0-9]*'
}

@test "what a dead step has left on a node: the launch is tried again, and the node is named" {
  # Step 0 is the look at the nodes, step 1 has the ranks.
  job=$(submit -N4 --hold -- --train.steps=20)
  box_root n3 python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('/var/spool/slurmd/stepd.slurm.pmix.$job.1')"
  box_root ctl scontrol release "$job"
  finished_with "$job" 0:0
  grep -q '^launch 1 failed (srun: error: task 2 launch failed: .* (on n3)); launching again$' "$home/slurm-$job.out"
}

@test "a node on which no launch succeeds is left out" {
  job=$(submit -N4 --hold -- --train.steps=20)
  for step in 1 2 3; do
    box_root n3 python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('/var/spool/slurmd/stepd.slurm.pmix.$job.$step')"
  done
  box_root ctl scontrol release "$job"
  finished_with "$job" 0:0
  grep -q '^going on without n3 (failure 1 of this run)$' "$home/slurm-$job.out"
  [[ $(jq -r '[.ranks[].node] | sort | join(" ")' "$home/runs/$job/plan.json") == "n1 n2 n4" ]]
}
