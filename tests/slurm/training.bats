# The main job: sbatch --adaptive-train on four nodes, as an ordinary user.
load box
load job

setup_file() { box_up_once; }
teardown_file() { box_down; }
setup() { make_job_home; }

@test "4 ranks on 4 nodes and 1 rank on one node agree, with even and uneven batches" {
  four=$(submit -N4 -- --train.global_batch=12)
  finished_with "$four" 0:0
  one=$(submit -N1 -- --train.global_batch=12)
  finished_with "$one" 0:0
  losses_agree "$four" "$one"
  uneven=$(submit -N4 --)
  finished_with "$uneven" 0:0
  one=$(submit -N1 --)
  finished_with "$one" 0:0
  jq -e '[.ranks[].samples] == [3,3,2,2] and [.ranks[].node] == ["n1","n2","n3","n4"]' "$home/runs/$uneven/plan.json"
  losses_agree "$uneven" "$one"
}

@test "dropping one rank's gradient makes that comparison fail" {
  one=$(submit -N1 --)
  finished_with "$one" 0:0
  mkdir "$home/fake"
  cp "$(box_value BOX_PREFIX)"/bin/adaptive-train{,-probe} "$home/fake/"
  cp "$ADAPTIVE_TRAIN_BUILD/bin/worker_dropping_gradients" "$home/fake/adaptive-train-worker"
  chmod -R a+rX "$home/fake"
  dropped=$(box_on ctl sbatch --parsable -N4 --adaptive-train --wrap "exec $home/fake/adaptive-train run config.toml")
  finished_with "$dropped" 0:0
  run losses_agree "$dropped" "$one"
  echo "$output"
  [[ $status -ne 0 && $output == "20 steps"* ]]
}

@test "snapshots come from the prolog; without the option the same step probes as the user and says so" {
  with=$(submit -N2 -- --train.steps=2)
  finished_with "$with" 0:0
  [[ $(grep -c '(snapshot by the prolog)' "$home/slurm-$with.out") == 2 ]]
  without=$(box_on ctl sbatch --parsable -N2 job.sh --train.steps=2)
  finished_with "$without" 0:0
  [[ $(grep -c '(snapshot by the user)' "$home/slurm-$without.out") == 2 ]]
  grep -q 'note: no snapshot from the prolog' "$home/slurm-$without.out"
}

@test "salloc works as sbatch does" {
  box_on ctl salloc -N2 --adaptive-train=log=debug adaptive-train run config.toml --run-dir runs/salloc
  [[ $(wc -l <"$home/runs/salloc/metrics.jsonl") == 20 ]]
}

@test "jobs shows a user the own jobs, with state and exit code" {
  job=$(submit -N2 -- --train.steps=3)
  finished_with "$job" 0:0
  run box_on n3 adaptive-train jobs -j "$job" -n -P -o JobID,User,State,ExitCode,Nodes,Steps
  [[ $output == "$job|ada|COMPLETED|0:0|2|3" ]]
}

@test "a folder that another job of the same number left is not taken up" {
  job=$(box_on ctl sbatch --parsable -N2 --adaptive-train --wrap 'mkdir -p runs/$SLURM_JOB_ID
    echo "{\"format_version\":1,\"cluster\":\"box\",\"job_id\":$SLURM_JOB_ID,\"submit_time\":1.0}" >runs/$SLURM_JOB_ID/job.json
    adaptive-train run config.toml --train.steps=2')
  finished_with "$job" 0:0
  [[ ! -e $home/runs/$job/metrics.jsonl ]]
  [[ $(cat "$home"/runs/"$job"-2*/metrics.jsonl | wc -l) == 2 ]]
}

@test "a run folder that is not shared is found before the first step" {
  job=$(submit -N2 -- --run-dir /tmp/private)
  finished_with "$job" 4:0
  grep -q 'n2: run folder not shared: /tmp/private' "$home/slurm-$job.out"
}

@test "a wrong configuration ends the job with 2:0, a plan that cannot be with 3:0" {
  job=$(submit -N2 -- --train.stepz=3)
  finished_with "$job" 2:0
  job=$(submit -N4 -- --parallel.data=11)
  finished_with "$job" 3:0
}

@test "inherited SLURM_NTASKS_PER_NODE and a small allocation of CPUs do not bend the plan" {
  job=$(submit -N2 --ntasks-per-node=3 --cpus-per-task=1 -- --train.steps=3)
  finished_with "$job" 0:0
  jq -e '[.ranks[].node] == ["n1","n2"]' "$home/runs/$job/plan.json"
}

@test "a plan has no more memory than the job asked for" {
  job=$(submit -N2 --mem=300M -- --train.steps=2)
  finished_with "$job" 0:0
  grep -E 'memory of .*: 0\.3 GiB of [0-9.]+ GiB: the job.s --mem' "$home/slurm-$job.out"
  jq -e '[.ranks[].device_memory_bytes] == [314572800, 314572800]' "$home/runs/$job/plan.json"
  job=$(submit -N2 --mem=8M -- --train.steps=2)
  finished_with "$job" 3:0
  grep -F "the job's --mem" "$home/slurm-$job.out"
}

@test "a model that fits no node's limit trains across four, and goes on on three" {
  local model=(--model.layers=8 --model.hidden=384 --model.heads=4 --train.global_batch=12 --train.micro_batch=1 --optimizer.schedule=constant)
  job=$(submit -N1 --mem=256M -- "${model[@]}" --train.steps=20)
  finished_with "$job" 3:0
  grep -F "the job's --mem" "$home/slurm-$job.out"
  one=$(submit -N1 -- "${model[@]}" --train.steps=20)
  finished_with "$one" 0:0
  job=$(submit -N4 --mem=256M -- "${model[@]}" --train.steps=10)
  finished_with "$job" 0:0
  within_limits "$job" 4
  mv "$home/runs/$job" "$home/runs/large"
  job=$(submit -N3 --mem=256M -- "${model[@]}" --train.steps=20 --run-dir runs/large)
  finished_with "$job" 0:0
  grep 'resumed from the checkpoint of step 10' "$home/slurm-$job.out"
  mv "$home/runs/large" "$home/runs/$job"
  within_limits "$job" 3
  losses_agree "$job" "$one"
}
# within_limits JOB NODES: it ran on so many, and no rank had more than 256 MiB, by the plan and as measured.
within_limits() {
  jq -e --argjson nodes "$2" '([.ranks[].node] | unique | length) == $nodes and ([.ranks[].memory_bytes] | max) <= 268435456' "$home/runs/$1/plan.json"
  jq -es 'map(.peak_memory_bytes) | max <= 268435456' "$home/runs/$1/metrics.jsonl"
}

@test "scancel --signal=TERM --batch saves and ends with 143" {
  start_training
  box_on ctl scancel --batch --signal=TERM "$job"
  finished_with "$job" 143:0
  ls "$home/runs/$job/checkpoints" | grep step-
}

@test "a requeued job saves within KillWait and goes on where it was" {
  start_training
  box_root ctl scontrol requeue "$job"
  wait_until 60 requeued
  step=$(ls "$home/runs/$job/checkpoints" | sed -n 's/^step-0*//p' | tail -n 1)
  sleep 3 # slurmd refuses the credential of a job that comes back within two seconds
  box_root ctl scontrol update JobId="$job" StartTime=now
  wait_until "$launch_patience" grep -q "resumed from the checkpoint of step $step" "$home/slurm-$job.out" || { show_job "$job"; return 1; }
  box_on ctl scancel --batch --signal=TERM "$job"
  finished_with "$job" 143:0
  [[ $(box_on n1 adaptive-train jobs -j "$job" -n -P -o State) == REQUEUED$'\n'CANCELLED ]]
}
requeued() { [[ $(job_field "$job" JobState) == PENDING && $(job_field "$job" Restarts) == 1 ]]; }

@test "two stages of two replicas train on four nodes as one rank does: examples/pipeline.toml" {
  cp "$BATS_TEST_DIRNAME"/../../examples/pipeline.toml "$home/"
  chown --reference="$home" "$home/pipeline.toml"
  local run="exec adaptive-train run pipeline.toml --profile.measure=false --profile.warmup_steps=0 --train.steps=20"
  job=$(box_on ctl sbatch --parsable -N4 --adaptive-train --wrap "$run")
  finished_with "$job" 0:0
  jq -e '(.stages | length) == 2 and .data == 2 and ([.ranks[].node] | unique | length) == 4' "$home/runs/$job/plan.json"
  one=$(box_on ctl sbatch --parsable -N1 --adaptive-train --wrap "$run --parallel.pipeline=1 --parallel.data=1")
  finished_with "$one" 0:0
  losses_agree "$job" "$one"
}

@test "tensor ranks in two stages of two replicas train on four nodes as one rank does: examples/hybrid.toml" {
  cp "$BATS_TEST_DIRNAME"/../../examples/hybrid.toml "$home/"
  chown --reference="$home" "$home/hybrid.toml"
  local run="exec adaptive-train run hybrid.toml --profile.measure=false --profile.warmup_steps=0 --train.steps=20"
  job=$(box_on ctl sbatch --parsable -N4 --adaptive-train --wrap "$run")
  finished_with "$job" 0:0
  jq -e '.tensor == 2 and (.stages | length) == 2 and .data == 2 and ([.ranks[].node] | unique | length) == 4' "$home/runs/$job/plan.json"
  one=$(box_on ctl sbatch --parsable -N1 --adaptive-train --wrap "$run --parallel.tensor=1 --parallel.pipeline=1 --parallel.data=1")
  finished_with "$one" 0:0
  losses_agree "$job" "$one"
}
