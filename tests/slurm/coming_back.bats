# Runs that Slurm ends or moves, and that come back: signals, preemption, the end of a job's time, requeues, a lost launcher or batch host.
load box
load job

setup_file() {
  box_up_once --slurm 'RequeueExit=75;PreemptType=preempt/partition_prio;PreemptMode=REQUEUE;PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=20 MaxTime=INFINITE;PartitionName=lower Nodes=ALL PriorityTier=1 GraceTime=5 MaxTime=INFINITE;PartitionName=high Nodes=ALL PriorityTier=9 MaxTime=INFINITE'
}
teardown_file() { box_down; }
setup() {
  make_job_home
  wait_until 60 launches_on_all # n1 may have been cut off a moment ago
}
teardown() {
  box_root ctl scancel --user=ada
  box mend n1
}
launches_on_all() { box_on n1 srun --quiet -N4 true 2>/dev/null; }

# long_job SBATCH-ARGUMENT... -- KEY...: sets $job, past its first steps.
long_job() {
  local sbatch=()
  while (($#)) && [[ $1 != -- ]]; do sbatch+=("$1") && shift; done
  shift
  job=$(submit "${sbatch[@]}" -- --train.steps=1000000 "$@")
  wait_for_steps "$job" 20
}
# saved_and_requeued REASON: the run says that, with the last step saved, and Slurm has the job in its queue again.
saved_and_requeued() {
  wait_until 60 grep -Eq "^adaptive-train: stopped by $1 after saving$" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  wait_until 60 requeued
  step=$(newest_step)
  [[ $(tail -n 1 "$home/runs/$job/metrics.jsonl" | jq .step) == "$step" ]]
  [[ $(box_on n1 adaptive-train jobs -j "$job" -n -P -o State,ExitCode) == "REQUEUED|75:0" ]]
}
# requeued [TIMES]: 1 unless given.
requeued() { [[ $(job_field "$job" JobState) == PENDING && $(job_field "$job" Restarts) == "${1-1}" ]]; }
newest_step() { ls "$home/runs/$job/checkpoints" | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tail -n 1; }
# comes_back STEP: the requeued job goes on from there.
comes_back() {
  sleep 3 # slurmd refuses the credential of a job that comes back within two seconds
  box_root ctl scontrol update JobId="$job" StartTime=now
  wait_until "$launch_patience" grep -q "^resumed from the checkpoint of step $1$" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
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
  wait_until 60 grep -q '^saved step' "$home/slurm-$job.out"
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

@test "preempted with 5 s of grace: saved where a save takes less; where it takes more, none is begun, and the run says what is lost" {
  slow_disk 0
  long_job -N4 -p lower -- "${large_blocks[@]}"
  other=$(box_on ctl sbatch --parsable -N4 --exclusive -p high --wrap 'sleep 2')
  saved_and_requeued 'Terminated from Slurm'
  wait_until 60 job_over "$other"
  comes_back "$step"
  slow_disk 1000
  box_on ctl scancel -s USR1 "$job"
  wait_until 60 grep -q '^saved step' "$home/slurm-$job.out"
  step=$(newest_step)
  wait_until 60 steps_after "$step"
  box_on ctl sbatch --parsable -N4 --exclusive -p high --wrap 'sleep 2'
  wait_until 60 grep -Eq '^adaptive-train: stopped by Terminated from Slurm without saving: a save takes [0-9]+ s, and the job is killed in [0-5] s; ' "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  lost=$(($(tail -n 1 "$home/runs/$job/metrics.jsonl" | jq .step) - step))
  grep -q "the newest known checkpoint is that of step $step: .*, $lost steps after it are lost$" "$home/slurm-$job.out"
  wait_until 60 requeued 2
  [[ $(box_on n1 adaptive-train jobs -j "$job" -n -P -o State,ExitCode | sort -u) == "REQUEUED|75:0" ]]
  [[ $(newest_step) == "$step" ]]
}
large_blocks=(--model.hidden=384 --model.heads=8 --model.sequence=16 --checkpoint.every=0)
# slow_disk MILLISECONDS: for each large block of a checkpoint, of which 4 ranks with large_blocks have some 8 each.
slow_disk() {
  mkdir -p "$home/fake" && echo "$1" >"$home/fake/SLOW_DISK"
  if [[ ! -e $home/fake/libslow_disk.so ]]; then
    cp "$fakes/libslow_disk.so" "$home/fake/"
    sed -i "s|^exec|export LD_PRELOAD=$home/fake/libslow_disk.so\nexec|" "$home/job.sh"
  fi
  chown -R --reference="$home" "$home/fake"
}
steps_after() { [[ $(tail -n 1 "$home/runs/$job/metrics.jsonl" | jq .step) -gt $1 ]]; }

@test "SIGTERM again and again in a slow save: it is completed. Cancelled where a save takes longer than KillWait: the run says what is lost" {
  slow_disk 0
  long_job -N4 -- "${large_blocks[@]}"
  slow_disk 400
  box_on ctl scancel -s TERM "$job"
  wait_until 60 grep -q '^Terminated from Slurm: saving, then stopping$' "$home/slurm-$job.out"
  for _ in 1 2 3; do sleep 0.5 && box_on ctl scancel -s TERM "$job"; done
  saved_and_requeued 'Terminated from Slurm'
  comes_back "$step"
  slow_disk 1000
  box_on ctl scancel -s USR1 "$job"
  wait_until 60 grep -Eq '^saved step' "$home/slurm-$job.out"
  step=$(newest_step)
  wait_until 60 steps_after "$step"
  box_on ctl scancel "$job"
  wait_until 60 grep -Eq "^adaptive-train: stopped by Terminated( from Slurm)? without saving: a save takes [0-9]+ s, and the job is killed in [0-5] s; the newest known checkpoint is that of step $step: " "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  wait_until 60 state_is CANCELLED
  [[ $(newest_step) == "$step" ]]
  wait_until 60 shown_again "$job" CANCELLED
}
# shown_again JOB STATE: by jobs, of the last run.
shown_again() { [[ $(box_on n1 adaptive-train jobs -j "$1" -n -P -o State | tail -n 1) == "$2" ]]; }

@test "preempted in a round of local steps: the round is completed and saved; one that takes too long ends early, and no step is lost" {
  local rounds=(--compression.mode=local --optimizer.warmup_steps=0 --checkpoint.every=0)
  long_job -N2 -p low -- "${rounds[@]}" --compression.local_steps=40
  other=$(box_on ctl sbatch --parsable -N4 --exclusive -p high --wrap 'sleep 2')
  saved_and_requeued 'Terminated from Slurm'
  ((step % 40 == 0))
  wait_until 60 job_over "$other"
  comes_back "$step"
  box_on ctl scancel "$job"
  wait_until 60 job_over "$job"
  long_job -N2 -p lower -- "${rounds[@]}" --compression.local_steps=1000000
  box_on ctl sbatch --parsable -N4 --exclusive -p high --wrap 'sleep 2'
  saved_and_requeued 'Terminated from Slurm'
  grep -q '^the round of local steps ends early, as there is no time for all of it$' "$home/slurm-$job.out"
}

@test "--signal with and without B:, scontrol requeue, scancel: no step is lost, and the job is where it should be" {
  keys=(--train.steps=1000000 --checkpoint.before_end_seconds=0)
  # Slurm sends these up to 30 s before it was asked to: sooner, and ranks might not be there yet.
  to_steps=$(submit -N1 --exclusive --time=1 --signal=TERM@12 -- "${keys[@]}")
  to_script=$(submit -N1 --exclusive --time=1 --signal=B:USR1@12 -- "${keys[@]}")
  back=$(submit -N1 --exclusive -- "${keys[@]}")
  cancelled=$(submit -N1 --exclusive -- "${keys[@]}")
  for job in "$back" "$cancelled"; do wait_for_steps "$job" 20; done
  box_root ctl scontrol requeue "$back"
  box_on ctl scancel "$cancelled"
  # Slurm signals both the launcher and the ranks: either is heard first.
  for job in "$back" "$cancelled"; do nothing_lost 'Terminated( from Slurm)?'; done
  job=$back && wait_until 60 requeued || { show_job "$job"; show_nodes; return 1; }
  wait_until 60 shown_as "$back" REQUEUED
  wait_until 60 shown_as "$cancelled" CANCELLED
  job=$to_steps && nothing_lost 'Terminated from Slurm'
  wait_until 60 requeued
  shown_as "$to_steps" REQUEUED
  wait_until 60 grep -q '^saved step' "$home/slurm-$to_script.out"
  [[ $(job_field "$to_script" JobState) == RUNNING ]]
  shown_as "$to_script" RUNNING
}
# nothing_lost REASON: of $job, which saves and ends for it.
nothing_lost() {
  wait_until 90 grep -Eq "^adaptive-train: stopped by $1 after saving$" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  [[ $(tail -n 1 "$home/runs/$job/metrics.jsonl" | jq .step) == "$(newest_step)" ]]
}
# shown_as JOB STATE: by jobs, of the first run.
shown_as() { shown_on n1 "$@"; }
# shown_on NODE JOB STATE
shown_on() { [[ $(box_on "$1" adaptive-train jobs -j "$2" -n -P -o State | head -n 1) == "$3" ]]; }

@test "three tasks of an array, 50 s before their minute is over: each saves by itself in its own folder, and goes on there" {
  long_job -N1 --exclusive --time=60 -- --checkpoint.before_end_seconds=120
  shortened=$job
  box_root ctl scontrol update JobId="$shortened" TimeLimit=3
  array=$(box_on ctl sbatch --parsable --array=3-5 -N1 --exclusive --time=1 --adaptive-train --output='slurm-%A_%a.out' job.sh --train.steps=1000000 --checkpoint.before_end_seconds=50)
  for task in 3 4 5; do
    wait_until 60 grep -Eq "^adaptive-train: stopped by the end of the job's time in [0-9]+ s after saving$" "$home/slurm-${array}_$task.out" || { cat "$home/slurm-${array}_$task.out"; return 1; }
    [[ $(grep -c "^the end of the job's time" "$home/slurm-${array}_$task.out") == 1 ]]
    [[ -d $home/runs/${array}_$task/checkpoints ]]
    [[ $(box_on n1 adaptive-train jobs -j "${array}_$task" -n -P -o State,ExitCode) == "REQUEUED|75:0" ]]
  done
  job=${array}_5
  wait_until 60 requeued
  comes_back "$(newest_step)"
  # The end of a job's time is asked for once a minute.
  wait_until 90 grep -Eq "^adaptive-train: stopped by the end of the job's time in 1[0-9][0-9] s after saving$" "$home/slurm-$shortened.out" || { show_job "$shortened"; return 1; }
}

@test "suspended for 20 s: nobody is silent or holds anything up, no step took that long, and the run goes on" {
  long_job -N4 --
  box_root ctl scontrol suspend "$job"
  wait_until 60 state_is SUSPENDED
  sleep 3 # Slurm stops processes two seconds after it has said that it will
  steps=$(wc -l <"$home/runs/$job/metrics.jsonl")
  sleep 17
  [[ $(wc -l <"$home/runs/$job/metrics.jsonl") == "$steps" ]]
  [[ $(box_on n1 adaptive-train jobs -j "$job" -n -P -o State) == RUNNING ]]
  box_root ctl scontrol resume "$job"
  wait_for_steps "$job" $((steps + 50))
  run grep -E 'no step for|silent|failed|resumed from|going on' "$home/slurm-$job.out"
  [[ $output == "" ]]
  jq -es 'map(.step_s) | max < 15' <(head -n $((steps + 50)) "$home/runs/$job/metrics.jsonl")
}
state_is() { [[ $(job_field "$job" JobState) == "$1" ]]; }

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
  wait_until 60 no_rank_on n1 n2 n3 n4
  wait_until 60 job_over "$job"
  for node in n2 n3 n4; do wait_until 60 none_of_ours_on "$node"; done
}
none_of_ours_on() { ! box_root "$1" pgrep -f 'adaptive-train (requeue-lost|run)'; }

@test "a batch host cut off, another dead: the launcher ends, a rank has the job requeued, and each run goes on on the others" {
  long_job -N2 -w n1,n2 -- --checkpoint.every=20
  cut=$job
  long_job -N2 -w n3,n4 -- --checkpoint.every=20
  dead=$job
  for job in "$cut" "$dead"; do wait_until 60 grep -q '^saved step' "$home/slurm-$job.out"; done
  box cut n1
  box kill n3
  wait_until 60 no_rank_on n1 n2 n4
  wait_until 60 grep -q "^adaptive-train: no other node is heard, nor Slurm's controller: this node is cut off" "$home/slurm-$cut.out"
  for job in "$cut" "$dead"; do
    wait_until 90 requeued || { show_job "$job"; box_root ctl sinfo -N; return 1; }
    shown_on n2 "$job" REQUEUED
    box_root ctl scontrol update JobId="$job" ReqNodeList=
  done
  wait_until 60 grep -q 'lost its batch host n1: requeuing it$' "$home/runs/$cut"/logs/rank-*.log
  wait_until 60 grep -q 'lost its batch host n3: requeuing it$' "$home/runs/$dead"/logs/rank-*.log
  for job in "$cut" "$dead"; do
    comes_back '[0-9]*'
    [[ $(box_on n2 adaptive-train jobs -j "$job" -n -P -o State | tail -n 1) == RUNNING ]]
  done
  box revive n3
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
