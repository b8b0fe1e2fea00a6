# Tensor ranks share each layer: the same training as on one rank, alone and with stages and replicas around.
load run

setup() { make_run_folder; }

# A vocabulary of bytes that neither 2 nor 4 divides, and weights that 4 ranks can share.
layers=(--model.layers=4 --model.heads=4 --model.vocab=259 --train.global_batch=12 --parallel.shares=even)

# one ARG...: the same training on one rank, in $work/one.
one() {
  rm -rf "$work/one"
  train "${layers[@]}" "$@" --parallel.data=1 --parallel.pipeline=1 --parallel.tensor=1 --run-dir "$work/one"
}
# shared TENSOR REPLICAS STAGES ARG...: in $work/run; ranks share the layers of each stage of each replica.
shared() {
  rm -rf "$work/run"
  train "${layers[@]}" --parallel.tensor="$1" --parallel.data="$2" --parallel.pipeline="$3" --train.micro_batch=2 "${@:4}"
  jq -e --argjson tensor "$1" --argjson ranks $(($1 * $2 * $3)) '.tensor == $tensor and (.ranks | length) == $ranks' "$work/run/plan.json"
}
# gradients_agree FOLDER FOLDER [TOLERANCE]: norms of the gradient, within 1e-3 relative.
gradients_agree() {
  paste <(jq -r .grad_norm "$1/metrics.jsonl") <(jq -r .grad_norm "$2/metrics.jsonl") | awk -v tolerance="${3:-1e-3}" '
    { d = $1 - $2; if (d < 0) d = -d; if (d / $1 > worst) worst = d / $1; n++ }
    END { printf "%d norms, largest relative difference %.2e\n", n, worst; exit !(n == 20 && worst < tolerance) }'
}

@test "2 and 4 tensor ranks and 1 rank agree within 1e-4 over 20 steps; so do they with stages and replicas around" {
  one
  for layout in "2 1 1" "4 1 1" "2 2 1" "2 1 2" "2 2 2"; do
    read -r tensor replicas stages <<<"$layout"
    shared "$tensor" "$replicas" "$stages"
    losses_agree "$work/run" "$work/one"
    gradients_agree "$work/run" "$work/one"
  done
  # Tensor ranks share out what goes from stage to stage.
  jq -es 'all(.[]; .activation_bytes == 2 * 12 * 32 * 32 * 4)' "$work/run/metrics.jsonl"
  jq -es --slurpfile one "$work/one/metrics.jsonl" '(.[-1].validation_loss / $one[-1].validation_loss - 1 | fabs) < 1e-4' "$work/run/metrics.jsonl"
  jq -es 'all(.[]; ((.compute_s + .exposed_comm_s + .bubble_s + .other_s - .step_s) | fabs) <= 0.02 * .step_s)' "$work/run/metrics.jsonl"
}

@test "embeddings of their own, grouped heads, and BERT agree, with dropout and recomputation" {
  local kinds=("--model.tie_embeddings=false --train.dropout=0.1" "--model.kind=llama --model.kv_heads=2 --train.recompute=full --train.dropout=0.1"
    "--model.kind=bert --train.recompute=selective --train.dropout=0.1")
  for kind in "${kinds[@]}"; do
    read -ra keys <<<"$kind"
    one "${keys[@]}"
    shared 2 1 2 "${keys[@]}"
    losses_agree "$work/run" "$work/one"
    gradients_agree "$work/run" "$work/one"
  done
}

# Llama of 8 heads with 2 or 1 of keys and values, of which several ranks have a part.
@test "more tensor ranks than heads of keys and values agree, and go on from each other's checkpoints" {
  local grouped=(--model.kind=llama --model.heads=8 --model.hidden=64 --checkpoint.every=12 --checkpoint.keep=9)
  for kind in "4 --model.kv_heads=2 --train.recompute=full --train.dropout=0.1" "4 --model.kv_heads=1 --model.tie_embeddings=false" "8 --model.kv_heads=2"; do
    read -ra keys <<<"$kind"
    one "${grouped[@]}" "${keys[@]:1}"
    shared "${keys[0]}" 1 1 "${grouped[@]}" "${keys[@]:1}"
    losses_agree "$work/run" "$work/one"
    gradients_agree "$work/run" "$work/one"
  done
  shared 4 1 2 "${grouped[@]}" --model.kv_heads=2
  losses_agree "$work/run" "$work/one"
  for next in "run 1" "run 2" "one 4" "one 8"; do
    read -r from tensor <<<"$next"
    rm -rf "$work/$from/checkpoints/step-00000020" "$work/next"
    cp -r "$work/$from" "$work/next"
    train "${layers[@]}" "${grouped[@]}" --model.kv_heads=2 --parallel.tensor="$tensor" --parallel.data=1 --parallel.pipeline=1 --train.micro_batch=2 \
      --checkpoint.dir="$work/next/checkpoints" --run-dir "$work/next" | grep 'resumed from the checkpoint of step 12$'
    losses_agree "$work/next" "$work/one"
  done
}

@test "more tensor ranks than heads of keys and values agree with shards and in 16 bits, and learn alike when compressed" {
  local grouped=(--model.kind=llama --model.kv_heads=1)
  one "${grouped[@]}"
  for shard in 1 2; do
    shared 2 2 1 "${grouped[@]}" --parallel.shard="$shard"
    losses_agree "$work/run" "$work/one"
    gradients_agree "$work/run" "$work/one"
  done
  # Everything is sent, in pieces of tensor ranks.
  shared 2 2 1 "${grouped[@]}" --compression.mode=topk --compression.density=1 --compression.values=fp32
  losses_agree "$work/run" "$work/one"
  for precision in bf16 fp16; do
    one "${grouped[@]}" --train.precision="$precision"
    shared 4 1 2 "${grouped[@]}" --train.precision="$precision"
    losses_agree "$work/run" "$work/one" 2e-3
  done
}

@test "tokens that tensor ranks cannot share out equally agree, in halves of a backward too" {
  local odd=(--model.sequence=33 --train.dropout=0.1)
  one "${odd[@]}"
  shared 4 1 1 "${odd[@]}"
  losses_agree "$work/run" "$work/one"
  gradients_agree "$work/run" "$work/one"
  for schedule in zb-h1 interleaved; do
    shared 2 1 2 "${odd[@]}" --parallel.schedule="$schedule"
    losses_agree "$work/run" "$work/one"
  done
}

@test "sharded moments and gradients agree; so do 16 bits" {
  one
  for shard in 1 2; do
    shared 2 2 1 --parallel.shard="$shard"
    losses_agree "$work/run" "$work/one"
    gradients_agree "$work/run" "$work/one"
  done
  one --train.precision=bf16
  shared 2 2 1 --train.precision=bf16 --parallel.shard=2
  losses_agree "$work/run" "$work/one" 2e-3
  one --train.precision=fp16
  shared 4 1 1 --train.precision=fp16
  losses_agree "$work/run" "$work/one" 2e-3
}

@test "a checkpoint of tensor ranks, replicas or stages goes on in every other layout" {
  one --checkpoint.every=12 --checkpoint.keep=9
  shared 2 2 1 --checkpoint.every=12 --checkpoint.keep=9
  for from in run one; do
    rm -rf "$work/$from/checkpoints/step-00000020"
    for layout in "1 1 1" "1 1 2" "1 4 1" "2 1 2" "4 1 1"; do
      read -r tensor replicas stages <<<"$layout"
      rm -rf "$work/next"
      cp -r "$work/$from" "$work/next"
      train "${layers[@]}" --parallel.tensor="$tensor" --parallel.data="$replicas" --parallel.pipeline="$stages" --train.micro_batch=2 \
        --checkpoint.dir="$work/next/checkpoints" --run-dir "$work/next" | grep 'resumed from the checkpoint of step 12$'
      losses_agree "$work/next" "$work/one"
    done
  done
}

@test "the same run of tensor ranks twice gives the same bits, and so does one that was cut" {
  local same=(--profile.warmup_steps=0 --parallel.shard=1)
  shared 2 2 1 "${same[@]}" --checkpoint.every=12 --checkpoint.keep=9
  mv "$work/run" "$work/first"
  shared 2 2 1 "${same[@]}"
  diff <(losses "$work/first") <(losses "$work/run")
  rm -r "$work/first/checkpoints/step-00000020"
  train "${layers[@]}" --parallel.tensor=2 --parallel.data=2 --parallel.pipeline=1 --train.micro_batch=2 "${same[@]}" --run-dir "$work/first" --checkpoint.dir="$work/first/checkpoints"
  diff <(losses "$work/first") <(losses "$work/run")
}

# bits FOLDER: of the parameters at a run's end, whatever ranks saved them.
bits() {
  rm -rf "$1/hf"
  "$bin/adaptive-train" export "$1" --hf "$1/hf" >&2
  sha256sum <"$1/hf/model.safetensors"
}

@test "with train.reproducible = \"layout\" 1, 2 and 4 tensor ranks end with the same bits, and without it with others" {
  local kinds=("" "--model.kind=llama --model.kv_heads=4 --model.tie_embeddings=false" "--model.kind=bert --train.dropout=0.1")
  for kind in "${kinds[@]}"; do
    read -ra keys <<<"$kind"
    keys+=(--compression.mode=off --train.micro_batch=2 --train.steps=50)
    one "${keys[@]}" --train.reproducible=layout
    for tensor in 2 4; do
      shared "$tensor" 1 1 "${keys[@]}" --train.reproducible=layout
      diff <(losses "$work/run") <(losses "$work/one")
      [[ $(bits "$work/run") == "$(bits "$work/one")" ]]
    done
    shared 2 1 1 "${keys[@]}"
    [[ $(bits "$work/run") != "$(bits "$work/one")" ]]
  done
}

@test "a saved model of tensor ranks is evaluated and exported as one" {
  shared 2 2 1 --data.validation="$work/corpus.txt" --train.validation_samples=10
  "$bin/adaptive-train" eval "$work/run" --data "$work/corpus.txt" --samples 10 --json >"$work/answer.json"
  jq -es --argjson loss "$(jq .loss "$work/answer.json")" '.[-1].validation_loss as $v | (($v - $loss) / $v | fabs) < 1e-6' "$work/run/metrics.jsonl"
  "$bin/adaptive-train" export "$work/run" --hf "$work/hf"
  [[ -s $work/hf/model.safetensors ]]
}

@test "a tensor rank that is killed is named, and the run ends with 5" {
  train_in_background "${layers[@]}" --parallel.tensor=2 --parallel.data=2 --parallel.pipeline=1 --train.micro_batch=2 --train.steps=100000 --recovery.attempts=0
  wait_until 60 steps_done 5
  local pids
  mapfile -t pids < <(rank_pids)
  kill -9 "${pids[3]}"
  ends_with 5
  grep -q 'rank 3' "$work/err"
  all_gone "${pids[@]}"
}

@test "tensor ranks that are stopped save, and go on" {
  train_in_background "${layers[@]}" --parallel.tensor=2 --parallel.data=1 --parallel.pipeline=1 --train.micro_batch=2 --train.steps=100000
  wait_until 60 steps_done 5
  kill -TERM "$launcher"
  ends_with 143
  local step
  step=$(jq -s '.[-1].step' "$work/run/metrics.jsonl")
  train "${layers[@]}" --parallel.tensor=1 --parallel.data=2 --parallel.pipeline=1 --train.steps=$((step + 2)) --checkpoint.dir="$work/run/checkpoints" |
    grep "resumed from the checkpoint of step $step$"
}

@test "what cannot be shared is refused before anything starts" {
  run train "${layers[@]}" --parallel.tensor=3
  [[ $status == 3 && $output == *"parallel.tensor = 3 ranks cannot share heads, kv_heads and ffn"*"2 or 4 can"* ]]
  run train "${layers[@]}" --parallel.tensor=2 --parallel.data=2 --compression.mode=sketch
  echo "$output"
  [[ $status == 3 && $output == *"sketches of gradients (compression.mode) of 2 tensor ranks"* ]]
  run train "${layers[@]}" --model.heads=6 --model.hidden=48 --parallel.tensor=3 --train.reproducible=layout --train.micro_batch=2 --compression.mode=off
  echo "$output"
  [[ $status == 3 && $output == *"parallel.tensor = 3 with train.reproducible"*"1, 2, 4 and 8"* ]]
  [[ ! -e $work/run/metrics.jsonl ]]
}
