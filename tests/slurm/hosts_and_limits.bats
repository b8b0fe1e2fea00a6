#!/usr/bin/env bats
# shellcheck disable=SC2154 # job.bash sets home and worker_command
# Training where hosts do not have Slurm's names for them, and jobs get no more cores and memory than they asked for.
load box
load job

setup_file() { box_up_limited --nodes 2 --hostnames; }
teardown_file() { box_down; }
setup() {
  make_job_home
  sed -i '/^threads/d' "$home/config.toml"
}

# said_of JOB FIELD: what adaptive-train jobs says.
said_of() { box_on ctl adaptive-train jobs -j "$1" -n -P -o "$2"; }

@test "all that names a node uses Slurm's name, and all of its cores count" {
  sed -i 's/^measure = false/measure = true/' "$home/config.toml"
  job=$(submit -N2 --exclusive -- --train.steps=1000000 --recovery.attempts=0)
  wait_for_steps "$job" 5
  box_root n2 pkill -KILL -f "$worker_command"
  finished_with "$job" 5:0
  local run=$home/runs/$job out=$home/slurm-$job.out
  [[ $(grep -cE '^  n[12]: .*snapshot by the prolog' "$out") -eq 2 ]]
  grep 'links: 1 of 1 pair measured' "$out"
  [[ -n $refusal ]] || grep "  rank 0 on n1: .* ($(nproc) thread" "$out"
  [[ -n $refusal ]] || grep 'memory of n1: .*: control group /slurm_n1/.*, as on 1 more' "$out"
  grep "^adaptive-train: rank 1 on n2 failed after step" "$out"
  [[ -n $refusal ]] || grep "^rank 1 of 2 on n2: CPU, $(nproc) thread" "$run/logs/rank-1.log"
  [[ $(said_of "$job" NodeList) == n1,n2 ]]
  [[ $(box_on ctl adaptive-train nodes | awk 'NR > 1 { print $1 }' | sort | xargs) == "n1 n2" ]]
  box_on ctl adaptive-train links | tee /dev/stderr | grep -E 'bit/s +n1 +n2$'
  # UCX and the event files of TensorBoard name hosts.
  [[ -z $(grep -l host-n "$out" "$run"/*.json) ]]
}

@test "doctor reaches a job's nodes by Slurm's names" {
  job=$(box_on ctl sbatch --parsable --adaptive-train -N2 --wrap 'adaptive-train doctor')
  finished_with "$job" 0:0
  grep '^good  *ports: 2 nodes connect' "$home/slurm-$job.out"
  grep '^good  *run folder: .* is seen from 2 nodes' "$home/slurm-$job.out"
}

@test "doctor tells what control groups leave a job" {
  limited || return 0
  job=$(box_on ctl sbatch --parsable --adaptive-train -N1 --mem=300 --wrap 'adaptive-train doctor')
  finished_with "$job" 4:0
  grep "^trouble  *memory limit: control group /slurm_n1/.* leaves 0.293 GiB" "$home/slurm-$job.out"
}

@test "a job of one core and 300 MiB a node plans with just that, and trains" {
  limited || return 0
  local threads
  threads=$(slurmd -C | sed -n 's/.*ThreadsPerCore=\([0-9]*\).*/\1/p')
  job=$(submit -N2 -c1 --mem=300 --)
  finished_with "$job" 0:0
  local run=$home/runs/$job
  [[ $(jq -c '[.nodes[].processors | .allowed_cores, .allowed_threads]' "$run/cluster.json") == "[1,$threads,1,$threads]" ]]
  [[ $(jq -c '[.devices[] | .threads, .memory_bytes]' "$run/cluster.json") == "[$threads,314572800,$threads,314572800]" ]]
  grep "memory of n1: .*: the job's --mem, as on 1 more" "$home/slurm-$job.out"
  grep "^rank 1 of 2 on n2: CPU, $threads thread" "$run/logs/rank-1.log"
  # A model that the nodes could hold, and this job cannot.
  job=$(submit -N2 -c1 --mem=300 -- --model.hidden=1024 --model.layers=8 --model.heads=8)
  finished_with "$job" 3:0
  grep "^adaptive-train: no feasible plan: memory: .*the job's --mem" "$home/slurm-$job.out"
}

@test "a rank takes no memory that something else of its job holds, and says so" {
  limited || return 0
  cat >"$home/job.sh" <<'SH'
#!/bin/bash
(head -c 190M /dev/zero; sleep 600) | tail -c 400M >/dev/null &
until (($(ps -o rss= -p $!) > 190000)); do sleep 0.1; done
exec adaptive-train run config.toml "$@"
SH
  job=$(submit -N2 -c1 --mem=300 -- --model.hidden=256 --model.layers=8 --model.heads=8 --recovery.attempts=0)
  finished_with "$job" 5:0
  grep '^adaptive-train: rank 0 on n1 failed in memory: .* are free there (control group /slurm_n1/' "$home/slurm-$job.out"
}

@test "out of memory: a rank's end is told as such, and so is the launcher's" {
  limited || return 0
  job=$(submit -N2 -c1 --mem=300 -- --train.steps=1000000 --recovery.attempts=0)
  wait_for_steps "$job" 5
  run_out_of_memory n2 "$worker_command"
  finished_with "$job" 5:0
  grep '^adaptive-train: rank 1 on n2 failed .*: its process ended: Out Of Memory' "$home/slurm-$job.out"
  [[ $(said_of "$job" State,Reason) == 'FAILED|rank 1 on n2 failed '*'Out Of Memory'* ]]
  [[ $(sqlite3 "$home/.local/state/adaptive-train/profiles.db" 'SELECT host, kind FROM failures') == 'n2|out_of_memory' ]]

  job=$(submit -N2 -c1 --mem=300 -- --train.steps=1000000)
  wait_for_steps "$job" 5
  run_out_of_memory n1 '^adaptive-train run'
  # Slurm may still be clearing the nodes.
  wait_until 60 job_over "$job"
  [[ $(said_of "$job" State,Reason) == 'OUT_OF_MEMORY|Slurm says OUT_OF_MEMORY'* ]]
}
