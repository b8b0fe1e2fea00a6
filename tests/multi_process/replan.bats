# Layers are timed in the first steps, and the planner runs again with the measurements.
load run

setup() { make_run_folder; }

# decisions: lines of the run's output about decisions on plans.
decisions() { grep -cE '^(the plan stays|moving to another plan): ' "$work/out"; }

@test "after the warm-up one line tells what was decided, with its figures; losses are as without measuring" {
  train --train.steps=40 >"$work/out"
  cat "$work/out"
  [[ $(decisions) == 1 ]]
  grep -qE '^(the plan stays|moving to another plan): .*[0-9] s a step' "$work/out"
  [[ $(jq -s 'map(.step) == [range(1; 41)]' "$work/run/metrics.jsonl") == true ]]
  train --train.steps=40 --profile.warmup_steps=0 --run-dir "$work/unmeasured" >"$work/out"
  [[ $(decisions) == 0 ]]
  paste <(losses "$work/run") <(losses "$work/unmeasured") | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $1) exit 1 }'
}

@test "what was measured of the layers is in profile.json: each layer, times above 0, variances between 0 and 1" {
  train >"$work/out"
  jq -e '[.layers[].layer] | unique == ["block", "embedding", "head"]' "$work/run/profile.json"
  jq -e '.layers | all(.forward_s > 0 and .backward_s > 0 and .update_s > 0 and .gradient_variance > 0 and .gradient_variance < 1)' "$work/run/profile.json"
}

@test "of stages, too: every layer's figures come from ranks that have it, and are those of one rank" {
  local model=(--model.layers=4 --parallel.data=1 --train.micro_batch=2)
  train "${model[@]}" --parallel.pipeline=1 --run-dir "$work/one" >"$work/out"
  store=file:$work/other.db train "${model[@]}" --parallel.pipeline=3 >"$work/out"
  jq -e '[.layers[].layer] | unique == ["block", "embedding", "head"]' "$work/run/profile.json"
  jq -e '.layers | all(.forward_s > 0 and .backward_s > 0 and .update_s > 0)' "$work/run/profile.json"
  jq -e --slurpfile one "$work/one/profile.json" '
    def variances: .layers | map({(.layer): .gradient_variance}) | add;
    variances as $staged | ($one[0] | variances) | to_entries | all((.value / $staged[.key] - 1 | fabs) < 1e-3)' "$work/run/profile.json"
}

@test "a run that ends before anything could be decided says nothing of it" {
  train --train.steps=4 >"$work/out"
  [[ $(decisions) == 0 ]]
}
