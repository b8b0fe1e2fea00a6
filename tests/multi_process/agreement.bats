# Any number of ranks trains the same model: losses agree, checkpoints resume, a lost gradient is noticed.
load run

setup() { make_run_folder; }

# same_state FOLDER FOLDER: the checkpoints of step 20, written by as many ranks, hold the same bytes.
same_state() { diff -r --exclude=manifest.json --exclude=DONE "$1/checkpoints/step-00000020" "$2/checkpoints/step-00000020"; }

@test "4 ranks with uneven shares and 1 rank agree within 1e-4 over 20 steps" {
  train
  train --parallel.data=1 --run-dir "$work/one"
  jq -e '[.ranks[].samples] == [3,3,2,2]' "$work/run/plan.json"
  losses_agree "$work/run" "$work/one"
}

@test "4 ranks with even shares and 1 rank agree; so do 3 ranks in micro-batches of 2" {
  train --train.global_batch=12
  train --train.global_batch=12 --parallel.data=1 --run-dir "$work/one"
  train --train.global_batch=12 --parallel.data=3 --train.micro_batch=2 --run-dir "$work/three"
  losses_agree "$work/run" "$work/one"
  losses_agree "$work/three" "$work/one"
}

@test "dropping one rank's gradient makes the comparison fail" {
  mkdir "$work/bin"
  cp "$bin/adaptive-train" "$bin/adaptive-train-probe" "$work/bin/"
  cp "$bin/worker_dropping_gradients" "$work/bin/adaptive-train-worker"
  train --parallel.data=1 --run-dir "$work/one"
  bin=$work/bin train
  run losses_agree "$work/run" "$work/one"
  echo "$output"
  [[ $status -ne 0 && $output == "20 steps"* ]]
}

@test "the same run twice gives the same bits" {
  train "${same_layout[@]}"
  train "${same_layout[@]}" --run-dir "$work/again"
  diff <(losses "$work/run") <(losses "$work/again")
  same_state "$work/run" "$work/again"
}

@test "stopped after 12 steps and resumed, also on another number of ranks, equals the run in one go" {
  train "${same_layout[@]}" --run-dir "$work/whole"
  train "${same_layout[@]}" --checkpoint.every=12 --checkpoint.keep=5 --run-dir "$work/cut"
  rm -r "$work/cut/checkpoints/step-00000020"
  cp -r "$work/cut" "$work/other"
  train "${same_layout[@]}" --run-dir "$work/cut" --checkpoint.dir="$work/cut/checkpoints"
  same_state "$work/whole" "$work/cut"
  diff <(losses "$work/whole") <(losses "$work/cut")
  train --run-dir "$work/other" --checkpoint.dir="$work/other/checkpoints" --parallel.data=2
  losses_agree "$work/whole" "$work/other"
}

@test "metrics: time parts add up to the clock's time, bytes are those of the sums" {
  local began=$EPOCHREALTIME took
  train
  took=$(awk -v from="$began" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }')
  # A step's time is read from the clock; each part is booked by itself.
  jq -es 'all(.[]; ((.compute_s + .exposed_comm_s + .bubble_s + .other_s - .step_s) | fabs) <= 0.02 * .step_s)' "$work/run/metrics.jsonl"
  jq -es 'all(.[]; .compute_s > 0 and .exposed_comm_s > 0 and .other_s > 0 and .bubble_s == 0)' "$work/run/metrics.jsonl"
  jq -es --argjson took "$took" 'map(.step_s) | add | . > 0 and . < $took' "$work/run/metrics.jsonl"
  # 2 (P-1) / P of the float32 gradients, times P ranks; layers of up to 16 KiB are summed by doubling, log2 P of them.
  jq -es --argjson n "$(jq '[.parameters[].shape | reduce .[] as $d (1; . * $d)] | add' "$work/run/checkpoints/step-00000020/manifest.json")" 'all(.[]; .grad_bytes >= 6 * 4 * $n and .grad_bytes < 6.3 * 4 * $n)' "$work/run/metrics.jsonl"
  jq -es '.[-1] | .validation_loss > 0 and .step == 20 and .tokens == 320' "$work/run/metrics.jsonl"
}
