# Compressed gradients and the sharded optimizer: what they send, and that such runs can be
# interrupted and resumed.
load run

setup() { make_run_folder; }

# of RUN FILTER: of its metrics, all steps at once; there are some.
of() { jq -es "length > 0 and ($2)" "$1/metrics.jsonl"; }

@test "topk sends the share asked for, and learns" {
  train --compression.mode=topk --compression.density=0.1
  # Norms and biases go whole.
  of "$work/run" 'all(.[]; .density > 0.09 and .density < 0.25)'
  train --run-dir "$work/dense"
  of "$work/run" '(map(.grad_bytes) | add) < 0.3 * '"$(jq -s 'map(.grad_bytes) | add' "$work/dense/metrics.jsonl")"
  of "$work/run" '.[-1].loss < 0.95 * .[0].loss'
}

@test "topk of everything in float32 is the whole gradient" {
  train --compression.mode=topk --compression.density=1 --compression.values=fp32
  train --run-dir "$work/dense"
  of "$work/run" 'all(.[]; .density == 1)'
  losses_agree "$work/run" "$work/dense"
}

@test "the same compressed run twice gives the same bits, and so does one that was cut" {
  keys=("${same_layout[@]}" --compression.mode=topk --compression.density=0.1 --compression.values=fp8)
  train "${keys[@]}"
  train "${keys[@]}" --run-dir "$work/again"
  diff <(losses "$work/run") <(losses "$work/again")
  train "${keys[@]}" --checkpoint.every=12 --checkpoint.keep=5 --run-dir "$work/cut"
  rm -r "$work/cut/checkpoints/step-00000020"
  cp -r "$work/cut" "$work/other"
  train "${keys[@]}" --run-dir "$work/cut" --checkpoint.dir="$work/cut/checkpoints"
  diff <(losses "$work/run") <(losses "$work/cut")
  # On other ranks, which take over the residuals, the run resumes with the same loss.
  train "${keys[@]}" --run-dir "$work/other" --checkpoint.dir="$work/other/checkpoints" --parallel.data=3
  of "$work/other" '.[-1].loss < 0.95 * .[0].loss'
}

@test "all elements in four bits: a seventh of the bytes, and the same bits in a run that was cut" {
  keys=("${same_layout[@]}" --compression.mode=topk --compression.density=1 --compression.values=int4)
  train "${keys[@]}"
  train "${same_layout[@]}" --run-dir "$work/dense"
  of "$work/run" 'all(.[]; .density == 1) and .[-1].loss < 0.95 * .[0].loss'
  of "$work/run" '(map(.grad_bytes) | add) < 0.15 * '"$(jq -s 'map(.grad_bytes) | add' "$work/dense/metrics.jsonl")"
  train "${keys[@]}" --checkpoint.every=12 --checkpoint.keep=5 --run-dir "$work/cut"
  rm -r "$work/cut/checkpoints/step-00000020"
  train "${keys[@]}" --run-dir "$work/cut" --checkpoint.dir="$work/cut/checkpoints"
  diff <(losses "$work/run") <(losses "$work/cut")
  for sharded in 1 2; do
    train "${keys[@]}" --parallel.shard=$sharded --run-dir "$work/sharded-$sharded"
    of "$work/sharded-$sharded" '.[-1].loss < 0.95 * .[0].loss'
  done
}

@test "variance-topk: dense while it warms up, then as much of each layer as its variance says" {
  train --compression.mode=variance-topk --profile.warmup_steps=4 >"$work/log" 2>&1
  of "$work/run" 'all(.[:4][]; .density == 1) and all(.[4:][]; .density > 0.04 and .density < 0.5)'
  grep -q "by the variance of 4 steps" "$work/log"
}

@test "global-topk: dense while it warms up, then by one threshold, so that layers differ; a cut run goes on alike" {
  keys=("${same_layout[@]}" --compression.mode=global-topk --compression.density=0.2 --profile.warmup_steps=4)
  train "${keys[@]}" >"$work/log" 2>&1
  of "$work/run" 'all(.[:4][]; .density == 1) and all(.[4:][]; .density > 0.1 and .density < 0.4) and .[-1].loss < 0.95 * .[0].loss'
  read -r least most <<<"$(sed -nE 's/.*by one threshold of 4 steps ([0-9.]+) to ([0-9.]+) of.*/\1 \2/p' "$work/log")"
  awk -v least="$least" -v most="$most" 'BEGIN { exit !(least >= 0.02 && least < 0.2 && most > 0.2 && most <= 1) }'
  # Interrupted after the last step of the warm-up, and later.
  for every in 4 12; do
    train "${keys[@]}" --checkpoint.every=$every --checkpoint.keep=9 --run-dir "$work/cut"
    find "$work/cut/checkpoints" -mindepth 1 -maxdepth 1 ! -name "step-000000$(printf %02d "$every")" -exec rm -r {} +
    train "${keys[@]}" --run-dir "$work/cut" --checkpoint.dir="$work/cut/checkpoints"
    diff <(losses "$work/run") <(losses "$work/cut")
    rm -r "$work/cut"
  done
}

@test "sketch sends what topk sends, otherwise" {
  train --compression.mode=sketch --compression.density=0.1
  of "$work/run" 'all(.[]; .density > 0.09 and .density < 0.25) and .[-1].loss < 0.95 * .[0].loss'
  # One sketch in a thousand cannot be peeled: with a dozen buckets a step, four of them once in a hundred thousand runs.
  of "$work/run" '(map(.unpeeled) | add) < 4'
  # Fixed point and bfloat16 round otherwise.
  train --compression.mode=topk --compression.density=0.1 --run-dir "$work/topk"
  losses_agree "$work/run" "$work/topk" 1e-2
}

@test "auto decides by steps of both kinds, and says what it found: in the log, the plan and the store" {
  train --compression.mode=auto --train.steps=60 >"$work/log" 2>&1
  decision=$(grep -E "compression (on|off): (a compressed step takes|the exchange takes)" "$work/log")
  grep -E "after step [0-9]+: $(sed 's/[().]/\\&/g' <<<"${decision# }")" "$work/run/plan.txt"
  jq -e --arg decision "${decision# }" '[.why[] | select(endswith($decision))] | length == 1' "$work/run/plan.json"
  [[ $(sqlite3 "$work/profiles.db" "SELECT why FROM plans ORDER BY sequence DESC LIMIT 1") == *"${decision# }"* ]]
}

@test "a job with compress=off compresses nothing, and says so" {
  export ADAPTIVE_TRAIN_OPTIONS=compress=off
  train --compression.mode=topk >"$work/log" 2>&1
  grep -q 'compression.mode = "topk" of the configuration is off: the job has compress=off' "$work/log"
  of "$work/run" 'all(.[]; .density == 1)'
}

@test "a sharded optimizer makes the same updates, and its checkpoints are taken up by any other" {
  train "${same_layout[@]}" --parallel.shard=1
  train "${same_layout[@]}" --run-dir "$work/whole"
  losses_agree "$work/run" "$work/whole"
  # A step's parameters may go out in the next one; before a copy of the state they go out at once.
  of "$work/run" '. as $all | all(.[]; .grad_bytes > 0) and all(range(1; length); $all[. - 1].param_bytes + $all[.].param_bytes > 0)'
  train "${same_layout[@]}" --parallel.shard=1 --run-dir "$work/cut" --checkpoint.every=12 --checkpoint.keep=5
  rm -r "$work/cut/checkpoints/step-00000020"
  cp -r "$work/cut" "$work/other"
  train "${same_layout[@]}" --parallel.shard=1 --run-dir "$work/cut" --checkpoint.dir="$work/cut/checkpoints"
  diff <(losses "$work/run") <(losses "$work/cut")
  train --run-dir "$work/other" --checkpoint.dir="$work/other/checkpoints" --parallel.data=2
  losses_agree "$work/whole" "$work/other"
}

@test "sharded gradients make the same updates, over micro-batches of ranks with unequal shares" {
  # 14 samples: two ranks of 4 micro-batches, two of 3.
  keys=("${same_layout[@]}" --train.micro_batch=1 --train.global_batch=14)
  train "${keys[@]}" --run-dir "$work/whole"
  train "${keys[@]}" --parallel.shard=2 --checkpoint.every=12 --checkpoint.keep=5
  jq -e '.shard == 2 and ([.ranks[].samples] | min < max)' "$work/run/plan.json"
  losses_agree "$work/run" "$work/whole"
  # Each micro-batch is sent, 3.5 on average, where a sharded optimizer's gradients are sent once.
  train "${keys[@]}" --parallel.shard=1 --run-dir "$work/once"
  once=$(jq -s 'map(.grad_bytes) | add' "$work/once/metrics.jsonl")
  of "$work/run" "(map(.grad_bytes) | add / $once) | . > 3.3 and . < 3.7"
  cp -r "$work/run" "$work/cut"
  rm -r "$work/cut/checkpoints/step-00000020"
  train "${keys[@]}" --parallel.shard=2 --run-dir "$work/cut" --checkpoint.dir="$work/cut/checkpoints"
  diff <(losses "$work/run") <(losses "$work/cut")
}

@test "sharded gradients leave memory" {
  large=(--model.layers=8 --model.hidden=256 --model.heads=4 --train.micro_batch=1 --train.global_batch=4 --train.steps=4)
  for shard in 1 2; do
    train "${large[@]}" --parallel.shard=$shard --run-dir "$work/shard-$shard"
  done
  peak() { jq -s 'map(.peak_memory_bytes) | max / 1048576' "$work/shard-$1/metrics.jsonl"; }
  echo "peak memory: $(peak 1) and $(peak 2) MiB"
  # 6.3 M parameters on 4 ranks: three quarters of 25 MB less, up to a layer or two.
  awk -v one="$(peak 1)" -v two="$(peak 2)" 'BEGIN { exit !(two < one - 10) }'
}

@test "weights gathered in 8 bits: half the bytes, near the same losses, resumed bit for bit" {
  bf16=("${same_layout[@]}" --parallel.shard=1 --train.precision=bf16)
  train "${bf16[@]}"
  whole=$(jq -s 'map(.param_bytes) | add' "$work/run/metrics.jsonl")
  train "${bf16[@]}" --parallel.gather=int8 --run-dir "$work/int8" --checkpoint.every=12 --checkpoint.keep=5
  of "$work/int8" "(map(.param_bytes) | add) < 0.65 * $whole"
  jq -es '(.[0].loss / .[1].loss - 1) | . < 0.02 and . > -0.02' <(tail -n 1 "$work/run/metrics.jsonl") <(tail -n 1 "$work/int8/metrics.jsonl")
  cp -r "$work/int8" "$work/cut"
  rm -r "$work/cut/checkpoints/step-00000020"
  train "${bf16[@]}" --parallel.gather=int8 --run-dir "$work/cut" --checkpoint.dir="$work/cut/checkpoints"
  diff <(losses "$work/int8") <(losses "$work/cut")
  run train "${bf16[@]}" --parallel.gather=int8 --train.precision=fp32
  [[ $status -eq 2 && $output == *"parallel.gather = int8 needs train.precision = bf16 or fp16"* ]]
  run train --parallel.gather=int8 --train.precision=bf16
  [[ $status -eq 2 && $output == *"parallel.shard = 1"* ]]
}

@test "sharded and compressed, in bf16" {
  train --parallel.shard=1 --compression.mode=topk --train.precision=bf16
  of "$work/run" '.[-1].loss < 0.95 * .[0].loss'
}
