# How jobs really ended: jobs asks Slurm, from a host where none of it ran.
load box
load job

setup_file() { box_up_once; }
teardown_file() { box_down; }
setup() { make_job_home; }

# state JOB: of its first run.
state() { box_on ctl adaptive-train jobs -j "$1" -n -P -o State | head -n 1; }
state_is() { [[ $(state "$1") == "$2" ]] || { echo "job $1: $(state "$1"), expected $2"; return 1; }; }
# It does not end by itself before its time is over.
without_end() { submit -N1 "$@" -- --train.steps=1000000 --checkpoint.before_end_seconds=0; }

@test "a time limit, a requeue, a lost launcher, a cancelled job and a node that failed: each by its name" {
  limited=$(without_end --time=1 -w n1)
  requeued=$(without_end -w n2)
  lost=$(without_end -w n3)
  failed=$(without_end -w n4 --no-requeue --no-kill=off)
  for job in "$limited" "$requeued" "$lost" "$failed"; do wait_for_steps "$job" 5; done
  for job in "$limited" "$requeued" "$lost" "$failed"; do state_is "$job" RUNNING; done
  box_root ctl scontrol requeue "$requeued"
  box_root n3 pkill -KILL -x adaptive-train
  box kill n4
  wait_until 60 state_is "$requeued" REQUEUED
  wait_until 60 state_is "$lost" LOST
  box_on ctl scancel "$requeued"
  wait_until 90 state_is "$failed" NODE_FAIL
  wait_until 120 state_is "$limited" TIMEOUT
  box_on ctl adaptive-train jobs -j "$limited" -n -P -o Reason | grep 'Slurm says TIMEOUT'
  # It is stored: Slurm need not be asked again.
  [[ $(sqlite3 "$home/.local/state/adaptive-train/profiles.db" "SELECT state FROM jobs WHERE slurm_job_id = $failed") == NODE_FAIL ]]
  box_on ctl adaptive-train jobs -a -n -P -o JobID -s TO,NF | sort | diff - <(printf '%s\n' "$limited" "$failed" | sort)
  cancelled=$(without_end -w n1)
  wait_for_steps "$cancelled" 5
  box_on ctl scancel "$cancelled"
  wait_until 60 state_is "$cancelled" CANCELLED
  box revive n4
}

@test "without RequeueExit a saved job is FAILED with 75, and scontrol requeue goes on with it" {
  job=$(submit -N2 -- --train.steps=1000000)
  wait_for_steps "$job" 20
  box_on ctl scancel -s TERM "$job"
  finished_with "$job" 75:0
  [[ $(job_field "$job" JobState) == FAILED ]]
  step=$(tail -n 1 "$home/runs/$job/metrics.jsonl" | jq .step)
  sleep 3 # slurmd refuses the credential of a job that comes back within two seconds
  box_root ctl scontrol requeue "$job"
  box_root ctl scontrol update JobId="$job" StartTime=now
  wait_until "$launch_patience" grep -q "^resumed from the checkpoint of step $step$" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  [[ $(job_field "$job" JobState) == RUNNING ]]
  box_on ctl scancel "$job"
}
