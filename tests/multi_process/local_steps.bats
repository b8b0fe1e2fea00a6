# Replicas that make steps apart (compression.mode = "local"): what they learn, and what stops and failures leave of it.
bats_require_minimum_version 1.5.0
load run
load same_run

setup() { make_run_folder; }
teardown() { [[ -z ${launcher-} ]] || kill -9 "$launcher" 2>/dev/null || true; }

# settings KEY=VALUE...: rounds of 4 steps from step 3 on: to 6, 10, 14, 18, and to the last, 20.
settings() {
  settings=("${same_layout[@]}" --model.hidden=64 --model.sequence=64 --model.layers=4 --compression.mode=local --compression.local_steps=4
    "${@/#/--}")
}

@test "replicas that meet every 4 steps learn about as fast as those that sum all gradients; the plan says how much less they sum" {
  settings train.steps=120 train.global_batch=16 optimizer.lr=0.003
  train "${settings[@]}"
  grep -q 'replicas make up to 4 steps apart, as asked for' "$work/run/plan.txt"
  train "${settings[@]}" --compression.mode=off --run-dir "$work/dense"
  [[ $(losses "$work/run" | head -n 2) == "$(losses "$work/dense" | head -n 2)" ]]
  [[ $(losses "$work/run" | tail -n 1) != "$(losses "$work/dense" | tail -n 1)" ]]
  # Step 3 is the first local one, of the same parameters. A mean's norm is at most the root mean square of the norms.
  jq -es --slurpfile dense "$work/dense/metrics.jsonl" '.[2].grad_norm / $dense[2].grad_norm | . > 1 and . < 2.5' "$work/run/metrics.jsonl"
  jq -es '[.[0].density, .[2].density] == [1, 0]' "$work/run/metrics.jsonl"
  jq -es --slurpfile dense "$work/dense/metrics.jsonl" '.[-1].validation_loss / $dense[-1].validation_loss | . > 0.9 and . < 1.1' "$work/run/metrics.jsonl"
}

@test "replicas with unlike shares weigh by them: the norm, the loss and the means" {
  settings parallel.data=2 parallel.shares=auto train.micro_batch=1 train.global_batch=9 train.steps=60 optimizer.lr=0.003
  train "${settings[@]}"
  jq -e '[.ranks[].samples] | sort == [4, 5]' "$work/run/plan.json"
  train "${settings[@]}" --compression.mode=off --run-dir "$work/dense"
  jq -es --slurpfile dense "$work/dense/metrics.jsonl" '.[2].grad_norm / $dense[2].grad_norm | . > 1 and . < 1.8' "$work/run/metrics.jsonl"
  jq -es --slurpfile dense "$work/dense/metrics.jsonl" '.[-1].validation_loss / $dense[-1].validation_loss | . > 0.9 and . < 1.1' "$work/run/metrics.jsonl"
}

@test "a single replica makes the same run with and without it" {
  settings parallel.data=1
  train "${settings[@]}"
  train "${settings[@]}" --compression.mode=off --run-dir "$work/dense"
  diff <(losses "$work/dense") <(losses "$work/run")
}

@test "SIGTERM after every few steps: unlike shares, in bf16" {
  settings train.precision=bf16 train.micro_batch=1 parallel.data=3
  whole
  stop_until_done TERM launcher
  same_run "$work/run"
}

@test "SIGKILL of a rank after every few steps: what is saved is of the end of a round" {
  settings checkpoint.every=3 checkpoint.keep=9
  whole
  stop_until_done KILL rank
  same_run "$work/run"
  local done step
  for done in "$work"/run/checkpoints/step-????????/DONE; do
    step=$((10#$(basename "$(dirname "$done")" | cut -d- -f2)))
    ((step <= 2 || step == 20 || step % 4 == 2))
  done
}

@test "a rank that is killed within a round is started again, and the run ends as one that was left alone" {
  settings recovery.allow_injection=true
  whole
  train "${settings[@]}" --inject "kill rank 2 at step 12" >"$work/out"
  grep -q '^going on (failure 1 of this run)$' "$work/out"
  grep -q '^resumed from the ' "$work/out"
  same_run "$work/run"
}

@test "whole replicas only, in a line" {
  local keys
  for keys in --parallel.pipeline=2 --parallel.tensor=2 --parallel.shard=1; do
    run ! train --compression.mode=local "$keys"
    echo "$output"
    [[ $output == *'compression.mode = "local" needs whole replicas: '* ]]
  done
  run ! train --compression.mode=local --compression.local_steps=0
  [[ $output == *compression.local_steps* ]]
}
