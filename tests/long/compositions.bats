# Random compositions of layout, schedule, sharding, precision, recomputation, dropout, compression, accumulation and vocabulary: each trains
# as one rank does, a compressed one as replicas without stages do, of as many tensor ranks: these select from their parts. COMPOSITIONS says how many, COMPOSITION_SEED which ones.
# Random layouts, even and uneven, with train.reproducible = "layout" have the bits of one rank after 50 steps. EQUAL_BITS says how many.
load ../multi_process/run

setup() { make_run_folder; }

# one_of WORD...: any of them, in $drawn. No subshell, so that RANDOM goes on.
one_of() { drawn=${*:RANDOM % $# + 1:1}; }

# draw_model: $kind, $tied and $model, of 6 blocks and 4 heads that up to 4 tensor ranks can share.
draw_model() {
  one_of gpt2 llama bert && kind=$drawn
  one_of true false && tied=$drawn
  one_of 257 258 259 263 && model=(--model.kind="$kind" --model.layers=6 --model.heads=4 --model.ffn=96 --model.vocab="$drawn")
  [[ $kind == bert ]] || model+=(--model.tie_embeddings="$tied")
  kv_heads=4
  if [[ $kind == llama ]]; then
    one_of 2 4 && kv_heads=$drawn
    model+=(--model.kv_heads="$kv_heads")
  fi
}

# draw_layout: $tensor x $stages x $replicas of at most 8 ranks, $schedule with $chunks, and $shard.
draw_layout() {
  local size=0
  while ((size < 2 || size > 8)); do
    one_of 1 1 2 4 && tensor=$drawn
    one_of 1 2 3 4 && stages=$drawn
    one_of 1 2 3 4 && replicas=$drawn
    ((kv_heads % tensor == 0 || tensor % kv_heads == 0)) || continue
    size=$((tensor * stages * replicas))
  done
  schedule=auto chunks=1
  if ((stages > 1)); then one_of gpipe 1f1b zb-h1 list interleaved breadth-first && schedule=$drawn; fi
  case $schedule in interleaved | breadth-first) chunks=2 ;; esac
  shard=0
  if ((replicas > 1)); then one_of 0 1 2 && shard=$drawn; fi
}

# draw_training: $precision, $training, and $compression, empty where gradients go whole.
draw_training() {
  one_of fp32 fp32 bf16 fp16 && precision=$drawn
  one_of 1 2 && micro_batch=$drawn
  one_of 1 2 3 5 8 && micro_batches=$drawn
  training=(--train.precision="$precision" --train.global_batch=$((replicas * micro_batch * micro_batches)))
  if [[ $schedule != zb-h1 && $schedule != list ]]; then one_of none selective full && training+=(--train.recompute="$drawn"); fi
  one_of 0 0.1 && training+=(--train.dropout="$drawn")
  compression=()
  # A tied matrix is sent early by replicas without stages, and last by stages. Sharded gradients go with each micro-batch, and the
  # head's are made in its forward: where that runs ahead of backward, several go as one, of which others are the largest.
  if ((replicas > 1 && stages > 1)) && [[ $tied == false && $kind != bert && $precision == fp32 ]] &&
    [[ $shard != 2 || $schedule == 1f1b ]]; then
    one_of off off topk && [[ $drawn == off ]] || compression=(--compression.mode=topk --compression.density=0.2 --compression.values=fp32)
  fi
}

# laid_out FOLDER TENSOR STAGES REPLICAS ARG...: ten steps of what was drawn.
laid_out() {
  rm -rf "${work:?}/$1"
  train "${model[@]}" "${training[@]}" "${compression[@]}" --train.steps=10 --train.micro_batch="$micro_batch" --parallel.shares=even \
    --parallel.tensor="$2" --parallel.pipeline="$3" --parallel.data="$4" "${@:5}" --run-dir "$work/$1"
}

# agree FILTER TOLERANCE: a figure of both runs' ten steps.
agree() {
  paste <(jq -r "$1" "$work/run/metrics.jsonl") <(jq -r "$1" "$work/whole/metrics.jsonl") | awk -v tolerance="$2" '
    { d = $1 - $2; if (d < 0) d = -d; if (d > tolerance * $2) bad++; n++ } END { exit !(n == 10 && !bad) }'
}

@test "random compositions train as one rank does" {
  RANDOM=${COMPOSITION_SEED:-20261125}
  local number tolerance
  for number in $(seq "${COMPOSITIONS:-500}"); do
    draw_model
    draw_layout
    draw_training
    local words="$number: ${tensor}x${stages}x${replicas} tensor x stages x replicas, $schedule of $chunks chunks, shard $shard: ${model[*]} ${training[*]} ${compression[*]} micro-batch $micro_batch"
    local whole=1 whole_tensor=1
    if ((${#compression[@]})); then whole=$replicas whole_tensor=$tensor; fi
    laid_out run "$tensor" "$stages" "$replicas" --parallel.schedule="$schedule" --parallel.interleave="$chunks" --parallel.shard="$shard" >"$work/log" 2>&1 ||
      { echo "failed: $words" && tail -n 5 "$work/log" && return 1; }
    laid_out whole "$whole_tensor" 1 "$whole" --parallel.shard="$((whole > 1 ? shard : 0))" >"$work/log" 2>&1 || { echo "failed as $whole replicas: $words" && tail -n 5 "$work/log" && return 1; }
    tolerance=1e-4
    [[ $precision == fp32 ]] || tolerance=5e-3
    agree .loss "$tolerance" || { echo "losses differ: $words" && paste <(losses "$work/run") <(losses "$work/whole") && return 1; }
    # Norms of the whole gradient find what ten losses of small steps might not.
    [[ $precision != fp32 ]] || agree .grad_norm 1e-3 || { echo "norms of gradients differ: $words" && return 1; }
  done
}

# bits FOLDER: of each step the loss and the norm of all gradients, and of the last one the parameters.
bits() {
  jq -c '[.step, .loss, .grad_norm]' "$1/metrics.jsonl"
  "$bin/adaptive-train" export "$1" --hf "$1/hf" >/dev/null
  sha256sum <"$1/hf/model.safetensors"
}

@test "random layouts have the bits of one rank after 50 steps with train.reproducible = layout" {
  RANDOM=${COMPOSITION_SEED:-20261125}
  local number units micro_batch
  for number in $(seq "${EQUAL_BITS:-100}"); do
    draw_model
    draw_layout
    one_of 1 2 && micro_batch=$drawn
    # As many units as replicas or more, in most draws no multiple of their number.
    units=$((replicas + RANDOM % 9))
    local keys=("${model[@]}" --train.reproducible=layout --train.steps=50 --train.global_batch="$((units * micro_batch))" --train.micro_batch="$micro_batch")
    one_of 0 0.1 && keys+=(--train.dropout="$drawn")
    local words="$number: ${tensor}x${stages}x${replicas} tensor x stages x replicas, $schedule of $chunks chunks, shard $shard: ${keys[*]}"
    rm -rf "$work/run" "$work/whole"
    train "${keys[@]}" --parallel.tensor="$tensor" --parallel.pipeline="$stages" --parallel.data="$replicas" --parallel.schedule="$schedule" \
      --parallel.interleave="$chunks" --parallel.shard="$shard" >"$work/log" 2>&1 || { echo "failed: $words" && tail -n 5 "$work/log" && return 1; }
    train "${keys[@]}" --parallel.tensor=1 --parallel.pipeline=1 --parallel.data=1 --run-dir "$work/whole" >"$work/log" 2>&1 ||
      { echo "failed as one rank: $words" && tail -n 5 "$work/log" && return 1; }
    diff <(bits "$work/whole") <(bits "$work/run") || { echo "bits differ: $words" && return 1; }
  done
}
