# Ranks stay within the memory that the plan predicts.
load run

setup() { make_run_folder; }

# settings KEY=VALUE...: the settings of every run of the test.
settings() { settings=("${same_layout[@]}" --model.hidden=64 --model.sequence=64 --model.layers=4 "${@/#/--}"); }

# within_plan FOLDER: no rank's peak memory (ru_maxrss, from its first instruction on) was more than 10 % above the plan's.
within_plan() {
  jq -es --slurpfile plan "$1/plan.json" '(map(.peak_memory_bytes) | max) as $peak | $plan[0].memory_bytes as $said |
    "\($said / 1048576 | round) MiB said, \($peak / 1048576 | round) MiB used", $peak < 1.1 * $said' "$1/metrics.jsonl"
}

@test "sharded ranks start and resume within the memory of the plan, not in that of unsharded ones" {
  settings train.precision=bf16 parallel.shard=2 model.hidden=512 model.heads=8 model.sequence=16 checkpoint.keep=9 train.steps=4
  train "${settings[@]}" --run-dir "$work/whole"
  within_plan "$work/whole"
  train "${settings[@]}" --checkpoint.every=2
  rm -r "$work/run/checkpoints/step-00000004"
  # The file keeps only what the resuming ranks of this run report.
  train "${settings[@]}" | grep 'resumed from the checkpoint of step 2$'
  tail -n 2 "$work/run/metrics.jsonl" >"$work/last"
  mv "$work/last" "$work/run/metrics.jsonl"
  within_plan "$work/run"
  diff <(losses "$work/whole" | tail -n 2) <(losses "$work/run")
}

@test "stages of a pipeline stay within the memory of the plan, also with a tied vocabulary that outweighs the blocks" {
  settings train.global_batch=16 train.micro_batch=2 model.hidden=256 model.heads=8 model.vocab=32768 train.steps=2 parallel.pipeline=4 parallel.data=1
  train "${settings[@]}"
  within_plan "$work/run"
  settings train.global_batch=16 train.micro_batch=2 model.hidden=256 model.heads=8 model.sequence=256 train.steps=2 parallel.pipeline=2 parallel.data=2 \
    parallel.shard=1
  train "${settings[@]}" --run-dir "$work/sharded"
  within_plan "$work/sharded"
}

@test "chunks, and schedules that hold more than 1F1B, stay within the memory of the plan" {
  local shape=(train.global_batch=16 train.micro_batch=2 model.hidden=256 model.heads=8 model.sequence=256 model.layers=6 train.steps=2)
  settings "${shape[@]}" parallel.pipeline=4 parallel.data=1 parallel.schedule=gpipe
  train "${settings[@]}" --run-dir "$work/gpipe"
  within_plan "$work/gpipe"
  settings "${shape[@]}" parallel.pipeline=4 parallel.data=1 parallel.schedule=zb-h1
  train "${settings[@]}" --run-dir "$work/zb-h1"
  within_plan "$work/zb-h1"
  settings "${shape[@]}" parallel.pipeline=4 parallel.data=1 parallel.schedule=list
  train "${settings[@]}" --run-dir "$work/list"
  within_plan "$work/list"
  settings "${shape[@]}" parallel.pipeline=4 parallel.data=1 parallel.interleave=2
  train "${settings[@]}" --run-dir "$work/interleaved"
  within_plan "$work/interleaved"
  settings "${shape[@]}" parallel.pipeline=2 parallel.data=2 parallel.schedule=breadth-first parallel.shard=2
  train "${settings[@]}" --run-dir "$work/breadth-first"
  within_plan "$work/breadth-first"
  settings "${shape[@]}" parallel.pipeline=4 parallel.data=1 parallel.schedule=pipedream-2bw
  train "${settings[@]}" --run-dir "$work/pipedream-2bw"
  within_plan "$work/pipedream-2bw"
}

# Each bucket waits for room, and a shared matrix of few tokens is no second layer.
@test "what sharded gradients take is told within a tenth, neither too little nor too much" {
  train --model.layers=2 --model.hidden=512 --model.heads=4 --model.sequence=64 --train.global_batch=8 --train.micro_batch=2 \
    --parallel.shard=2 --train.steps=4 --checkpoint.every=2
  within_plan "$work/run"
  jq -es --slurpfile plan "$work/run/plan.json" '(map(.peak_memory_bytes) | max) > 0.9 * $plan[0].memory_bytes' "$work/run/metrics.jsonl"
}

@test "tensor ranks stay within the memory of the plan, also beside stages and replicas" {
  settings train.global_batch=8 train.micro_batch=4 model.hidden=256 model.heads=8 model.sequence=256 model.vocab=4099 parallel.tensor=2 parallel.data=1
  train "${settings[@]}" --train.steps=4
  within_plan "$work/run"
  settings train.global_batch=8 train.micro_batch=2 model.hidden=256 model.heads=8 model.sequence=256 train.precision=bf16 parallel.tensor=2 parallel.data=2 \
    parallel.pipeline=2 parallel.shard=1
  train "${settings[@]}" --train.steps=4 --run-dir "$work/hybrid"
  within_plan "$work/hybrid"
}

# limited MIB COMMAND...: no process of it may have more memory of its own than so much.
limited() { (ulimit -d $((1024 * $1)) && "${@:2}"); }

@test "what ranks lack is told before anything is taken: stage, sizes, limit, and what to do" {
  settings train.global_batch=8 train.micro_batch=2 model.hidden=512 model.heads=8 model.layers=8 parallel.pipeline=2 parallel.data=1
  local status=0
  limited 250 train "${settings[@]}" >"$work/log" 2>&1 || status=$?
  cat "$work/log"
  ((status == 5))
  grep -E 'memory: stage [01] \(layers [0-9]+ to [0-9]+\) needs [0-9]+ MiB, [0-9]+ MiB are free for its rank \(the process.s limit, ulimit -d\): free memory there' "$work/log"
  [[ ! -e $work/run/metrics.jsonl ]]
}

@test "an allocation that fails names stage, arena and size" {
  # Sharded arenas have their whole address range, of which a part is used: the plan fits, and the ranges do not.
  settings train.global_batch=4 train.micro_batch=1 model.hidden=512 model.heads=8 model.layers=8 parallel.shard=2 parallel.data=4 recovery.memory=off
  local status=0
  limited 370 train "${settings[@]}" >"$work/log" 2>&1 || status=$?
  cat "$work/log"
  ((status == 5))
  grep -E 'failed in allocation: stage 0 \(layers 0 to 9\): no memory for (gradients|first moments|second moments): 96 MiB: free memory there, take' "$work/log"
}

@test "a memory that the user limits counts against nobody's node" {
  run bash -c 'ulimit -d 60000; exec "$0" run "$1" --run-dir "$2/run" --store "$3" --model.hidden=512 --model.heads=8 --model.layers=8' \
    "$bin/adaptive-train" "$work/config.toml" "$work" "$store"
  [[ $status == 5 ]]
  [[ $(sqlite3 "$work/profiles.db" "SELECT DISTINCT kind || '|' || blamed FROM failures") == "out_of_memory|" ]]
  ! "$bin/adaptive-train" plan "$work/config.toml" --store "$store" | grep 'its time counts'
}
