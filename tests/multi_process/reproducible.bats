# train.reproducible = "layout": the same bits however many ranks of whichever sort, in every schedule.
load run

setup() { make_run_folder; }

# 12 units: 3 replicas have a node of their tree each, others parts of some; 5 and 7 have uneven shares.
batch=(--model.layers=4 --train.global_batch=24 --train.micro_batch=2 --train.reproducible=layout)

# bits FOLDER: of each step the loss and the norm of all gradients, and of the last one the parameters.
bits() {
  jq -c '[.step, .loss, .grad_norm]' "$1/metrics.jsonl"
  rm -rf "$1/hf"
  "$bin/adaptive-train" export "$1" --hf "$1/hf" >/dev/null
  sha256sum <"$1/hf/model.safetensors"
}
# one ARG...: one rank, in $work/one; its bits in $work/bits.
one() {
  rm -rf "$work/one"
  train "${batch[@]}" "$@" --parallel.data=1 --parallel.tensor=1 --parallel.pipeline=1 --run-dir "$work/one"
  bits "$work/one" >"$work/bits"
}
# laid_out STAGES REPLICAS ARG...: in $work/run, of $tensor ranks each (default 1), with the bits of $work/one.
laid_out() {
  rm -rf "$work/run"
  train "${batch[@]}" --parallel.tensor="${tensor:-1}" --parallel.pipeline="$1" --parallel.data="$2" "${@:3}"
  jq -e --argjson stages "$1" --argjson ranks $(($1 * $2 * ${tensor:-1})) '(.stages | length) == $stages and (.ranks | length) == $ranks' "$work/run/plan.json"
  diff "$work/bits" <(bits "$work/run")
}

@test "even and uneven replicas, stages, and both: the bits of one rank after 50 steps" {
  one --train.steps=50
  for layout in "1 2" "1 3" "1 5" "1 7" "2 1" "3 1" "2 2" "2 3"; do
    read -r stages replicas <<<"$layout"
    laid_out "$stages" "$replicas" --train.steps=50
  done
}

@test "sharded moments and gradients: the bits of one rank" {
  one
  laid_out 1 2 --parallel.shard=1
  laid_out 1 3 --parallel.shard=2
  laid_out 2 2 --parallel.shard=1
  laid_out 2 2 --parallel.shard=2
}

@test "every schedule, chunks of a stage, backward in halves: the bits of one rank" {
  local layers=(--model.layers=6)
  one "${layers[@]}"
  for schedule in gpipe zb-h1 list; do
    laid_out 2 2 "${layers[@]}" --parallel.schedule="$schedule"
    laid_out 4 1 "${layers[@]}" --parallel.schedule="$schedule"
  done
  for schedule in interleaved breadth-first; do
    laid_out 2 2 "${layers[@]}" --parallel.schedule="$schedule" --parallel.interleave=2
    laid_out 2 1 "${layers[@]}" --parallel.schedule="$schedule" --parallel.interleave=2
    laid_out 1 2 "${layers[@]}" --parallel.schedule="$schedule" --parallel.interleave=2
  done
}

@test "tensor ranks with stages, replicas and shards around them: the bits of one rank after 50 steps" {
  local keys=(--model.heads=4 --model.vocab=259 --train.steps=50)
  one "${keys[@]}"
  tensor=2 laid_out 2 2 "${keys[@]}"
  tensor=4 laid_out 1 2 "${keys[@]}" --parallel.shard=2
  tensor=2 laid_out 2 1 "${keys[@]}" --parallel.schedule=interleaved --parallel.interleave=2
  keys+=(--model.kind=llama --model.kv_heads=2 --model.tie_embeddings=false --train.dropout=0.1)
  one "${keys[@]}"
  tensor=2 laid_out 1 3 "${keys[@]}" --parallel.shard=1
  tensor=2 laid_out 2 2 "${keys[@]}" --parallel.schedule=zb-h1
}

@test "Llama with grouped heads, BERT, dropout, recomputation, clipping: the bits of one rank" {
  local kinds=("--model.kind=llama --model.kv_heads=1 --model.tie_embeddings=false --train.recompute=full" "--model.kind=llama --train.dropout=0.1"
    "--model.kind=bert --model.vocab=257 --train.recompute=selective --train.dropout=0.1" "--optimizer.clip=0.01 --train.dropout=0.2")
  for kind in "${kinds[@]}"; do
    read -ra keys <<<"$kind"
    one "${keys[@]}"
    laid_out 1 3 "${keys[@]}"
    laid_out 2 2 "${keys[@]}"
  done
  for kind in "--model.kind=llama --model.tie_embeddings=false" "--model.kind=bert --model.vocab=257"; do
    read -ra keys <<<"$kind"
    one "${keys[@]}"
    laid_out 2 1 "${keys[@]}" --parallel.schedule=zb-h1
  done
}

@test "a run that goes on in another layout has the bits of one that did not" {
  one --checkpoint.every=8 --checkpoint.keep=9
  mv "$work/one" "$work/from"
  # A save that is due while another is written comes a few steps later: later ones are at steps that nobody knows.
  find "$work/from/checkpoints" -mindepth 1 -maxdepth 1 ! -name step-00000008 -exec rm -r {} +
  for layout in "1 3" "2 2"; do
    read -r stages replicas <<<"$layout"
    rm -rf "$work/run"
    cp -r "$work/from" "$work/run"
    train "${batch[@]}" --parallel.pipeline="$stages" --parallel.data="$replicas" --checkpoint.dir="$work/run/checkpoints" | grep 'resumed from the checkpoint of step 8$'
    diff "$work/bits" <(bits "$work/run")
  done
}

@test "without the mode layouts have other bits, and the mode's are not those of a run without it" {
  one
  # Otherwise the tests above would not fail where sums follow the layout.
  off=(--model.layers=4 --train.global_batch=24 --train.micro_batch=2 --parallel.shares=even)
  train "${off[@]}" --parallel.pipeline=1 --parallel.data=1 --run-dir "$work/off"
  bits "$work/off" >"$work/bits-off"
  train "${off[@]}" --parallel.pipeline=1 --parallel.data=3 --run-dir "$work/off-3"
  bits "$work/off-3" >"$work/bits-off-3"
  for other in bits-off bits-off-3; do
    run cmp "$work/bits" "$work/$other"
    [[ $status == 1 ]]
  done
  run cmp "$work/bits-off" "$work/bits-off-3"
  [[ $status == 1 ]]
}

@test "what cannot keep its bits is refused before anything starts; auto compression is off, and the plan says so" {
  for keys in "2 fp32|--train.precision=bf16" "2 compression.mode|--compression.mode=topk" "2 train.micro_batch|--train.micro_batch=auto" \
    "2 multiple|--train.global_batch=25" "3 13 replicas|--parallel.data=13"; do
    read -r code word <<<"${keys%%|*}"
    run train "${batch[@]}" "${keys#*|}"
    [[ $status == "$code" && $output == *"$word"* ]]
  done
  [[ ! -e $work/run/metrics.jsonl ]]
  train "${batch[@]}" --compression.mode=auto --parallel.data=2
  jq -e '.orders.compression.mode == "off" and .orders.reproducible == "layout" and any(.why[]; test("uncompressed.*train.reproducible = layout"))' "$work/run/plan.json"
}
