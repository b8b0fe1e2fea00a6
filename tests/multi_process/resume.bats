# However a run is stopped, it goes on as if it had not been: the same losses and the same weights, bit for bit.
load run
load same_run

setup() { make_run_folder; }

# settings KEY=VALUE...: what every run of the test is started with: steps long enough for checkpoints to be written beside them.
settings() { settings=("${same_layout[@]}" --model.hidden=64 --model.sequence=64 --model.layers=4 "${@/#/--}"); }

@test "SIGTERM after every few steps: gpt2 in fp32, 4 ranks" {
  settings train.steps=20
  whole
  stop_until_done TERM launcher
  same_run "$work/run"
}

@test "SIGKILL of a rank after every few steps: llama in bf16 with dropout" {
  settings model.kind=llama model.kv_heads=1 train.precision=bf16 train.dropout=0.2 checkpoint.every=2
  whole
  stop_until_done KILL rank
  same_run "$work/run"
}

@test "SIGKILL of a rank after every few steps: bert in fp16 with full recomputation" {
  settings model.kind=bert model.vocab=257 train.precision=fp16 train.recompute=full checkpoint.every=1
  whole
  stop_until_done KILL rank
  same_run "$work/run"
}

@test "a full disk while checkpoints are written: one line each, training goes on; resumed, it is the same run" {
  settings checkpoint.every=4 checkpoint.keep=9
  whole
  mkdir "$work/small"
  unshare --mount bash -ec '
    mount -t tmpfs -o size=7m tmpfs "$1"
    status=0
    "$2/adaptive-train" run "$3" --run-dir "$1/run" --store "$4" "${@:6}" >"$5" 2>&1 || status=$?
    cp -r "$1/run" "$1.copy"
    exit "$status"' _ "$work/small" "$bin" "$work/config.toml" "$store" "$work/out" "${settings[@]}" --checkpoint.dir="$work/small/run/checkpoints" 3>&- && status=0 || status=$?
  cat "$work/out"
  ((status == 5))
  grep -q 'checkpoint not saved: .*No space left on device' "$work/out"
  mv "$work/small.copy" "$work/run"
  ls "$work/run/checkpoints"
  train "${settings[@]}" --checkpoint.dir="$work/run/checkpoints" | grep 'resumed from the checkpoint of step'
  same_run "$work/run"
}

# newest_step FOLDER: of its complete checkpoints; when one is written beside training, its step is the next at which the
# writer is free.
newest_step() { for done in "$1"/checkpoints/step-????????/DONE; do basename "$(dirname "$done")"; done | sed 's/step-0*//' | sort -n | tail -n 1; }

# spoil FILE HOW
spoil() {
  case $2 in
    truncated) truncate -s -4096 "$1" ;;
    flipped) printf '\x55' | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") / 2)) conv=notrunc status=none ;;
    missing) rm "$1" ;;
  esac
}

@test "a checkpoint that is torn, truncated, flipped or foreign is refused by name, the one before is used, nothing is deleted" {
  settings checkpoint.every=8 checkpoint.keep=9
  whole
  cp -r "$work/whole" "$work/before"
  rm -r "$work/before/checkpoints/step-00000020"
  previous=$(newest_step "$work/before")
  for how in truncated:shard-00002.bin flipped:shard-00001.bin flipped:manifest.json missing:shard-00003.json truncated:shard-00000.json; do
    rm -rf "$work/run"
    cp -r "$work/whole" "$work/run"
    file=$work/run/checkpoints/step-00000020/${how#*:}
    spoil "$file" "${how%%:*}"
    train "${settings[@]}" --checkpoint.dir="$work/run/checkpoints" >"$work/out"
    grep -q "refused: .*step-00000020.*${how#*:}" "$work/out"
    grep -q "resumed from the checkpoint of step $previous$" "$work/out"
    [[ -d $work/run/checkpoints/step-00000020.aside-0 ]]
    same_run "$work/run"
  done
  rm "$work/run/checkpoints/step-00000020/DONE"
  previous=$(newest_step "$work/run")
  train "${settings[@]}" --checkpoint.dir="$work/run/checkpoints" >"$work/out"
  grep -q "resumed from the checkpoint of step $previous$" "$work/out"
  # Another run's checkpoint and nothing else: an error, not a new start over it.
  run train "${settings[@]}" --train.seed=5 --checkpoint.dir="$work/run/checkpoints"
  echo "$output"
  [[ $status -eq 5 && $output == *"train.seed"* ]]
}

@test "1, 2, 3 and 4 ranks consume the same data and reach the same loss, resumed across any of them, sharded or not" {
  settings checkpoint.keep=9
  train "${settings[@]}" --parallel.data=1 --run-dir "$work/whole"
  local from to
  for from in 1 2 3 4; do
    rm -rf "$work/from"
    train "${settings[@]}" --parallel.data="$from" --parallel.shard=$((from % 3)) --checkpoint.every=7 --run-dir "$work/from"
    losses_agree "$work/whole" "$work/from"
    rm -r "$work/from/checkpoints/step-00000020"
    previous=$(newest_step "$work/from")
    for to in 1 2 3 4; do
      rm -rf "$work/run"
      cp -r "$work/from" "$work/run"
      train "${settings[@]}" --parallel.data="$to" --parallel.shard=$(((from + to) % 3)) --checkpoint.dir="$work/run/checkpoints" | grep "resumed from the checkpoint of step $previous$"
      losses_agree "$work/whole" "$work/run"
      jq -es '.[-1].tokens == 640' "$work/run/metrics.jsonl"
    done
  done
}

@test "a run that goes on with other data, optimizer or batch is told so, and refused where samples would come in another order" {
  settings train.steps=8
  train "${settings[@]}"
  train "${settings[@]}" --train.steps=12 --optimizer.lr=0.0005 >"$work/out"
  grep -q 'changed since the checkpoint: optimizer.lr = 0.0005, was 0.001$' "$work/out"
  grep -q 'changed since the checkpoint: train.steps = 12, was 8$' "$work/out"
  head -c 20000 "$work/corpus.txt" >"$work/more"
  cat "$work/more" >>"$work/corpus.txt"
  run train "${settings[@]}" --train.steps=12
  echo "$output"
  [[ $status -eq 5 && $output == *"data.train = "*"set checkpoint.accept = [\"data.train\"]"* ]]
  run train "${settings[@]}" --train.steps=16 --train.global_batch=20 --checkpoint.accept=data.train
  echo "$output"
  [[ $status -eq 5 && $output == *"set checkpoint.accept = [\"train.global_batch\"]"* ]]
  train "${settings[@]}" --train.steps=16 --train.global_batch=20 --checkpoint.accept='["data.train", "train.global_batch"]' >"$work/out"
  grep -q 'resumed from the checkpoint of step 12$' "$work/out"
  # 12 steps of 10 and 4 of 20.
  jq -e '.extra.samples == 200' "$work/run/checkpoints/step-00000016/manifest.json"
}

@test "run --continue goes on with an earlier run, as it was configured; what is no run of the caller's is refused" {
  train --train.steps=4 --model.layers=1
  "$bin/adaptive-train" run --continue L1 --store "$store" --train.steps=6 3>&- | grep 'resumed from the checkpoint of step 4'
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 6)" ]]
  run "$bin/adaptive-train" run --continue L77 --store "$store"
  [[ $status == 2 && $output == *"the store has no job L77 of yours"* ]]
  run "$bin/adaptive-train" run --continue seven --store "$store"
  [[ $status == 2 && $output == *"'seven' is no job"* ]]
  run "$bin/adaptive-train" run --continue L1 --run-dir "$work/run" --store "$store"
  [[ $status == 2 ]]
  run "$bin/adaptive-train" run --store "$store"
  [[ $status == 2 && $output == *"config is required"* ]]
}
