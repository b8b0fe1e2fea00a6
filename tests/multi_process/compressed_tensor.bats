# The adaptive exchange around tensor ranks: each replica's tensor ranks compress their parts of a layer, and what they have alike stays alike.
load run

setup() { make_run_folder; }

# A vocabulary that 2 does not divide. Replicas and tensor ranks compare their parameters after step 50, and end the run where these differ.
layers=(--model.layers=4 --model.vocab=259 --train.global_batch=12 --parallel.shares=even --train.micro_batch=2 --parallel.pipeline=1)

# of RUN FILTER: of its metrics, all steps at once; there are some.
of() { jq -es "length > 0 and ($2)" "$1/metrics.jsonl"; }
# laid_out FOLDER TENSOR REPLICAS ARG...: a run in $work/FOLDER.
laid_out() {
  rm -rf "${work:?}/$1"
  train "${layers[@]}" --parallel.tensor="$2" --parallel.data="$3" "${@:4}" --run-dir "$work/$1"
}
# learns_alike TOLERANCE ARG...: two replicas of two tensor ranks, in $work/run, learn in 52 steps what two replicas do, in $work/whole.
learns_alike() {
  laid_out run 2 2 --train.steps=52 "${@:2}"
  jq -e '.tensor == 2 and (.ranks | length) == 4' "$work/run/plan.json"
  laid_out whole 1 2 --train.steps=52 "${@:2}"
  of "$work/run" 'length == 52 and any(.[]; .density < 0.6)'
  jq -es --slurpfile whole "$work/whole/metrics.jsonl" --argjson tolerance "$1" '
    def last: map(.loss)[-8:] | add / 8; (last / ($whole | last) - 1 | fabs) < $tolerance and last < 0.95 * .[0].loss' "$work/run/metrics.jsonl"
}
# shares_agree: what layers send, by the newest checkpoints of the two, within a tenth.
shares_agree() {
  local filter='[.extra | to_entries[] | select(.key | startswith("gradient_density_"))] | sort_by(.key) | map(.value)'
  jq -n --argjson run "$(jq "$filter" "$work"/run/checkpoints/step-00000052/manifest.json)" \
    --argjson whole "$(jq "$filter" "$work"/whole/checkpoints/step-00000052/manifest.json)" '
    [$run, $whole] | transpose | length == 6 and all(.[]; (.[0] / .[1] - 1 | fabs) < 0.1)' | grep -qx true
}

@test "everything selected: the same losses as uncompressed" {
  laid_out whole 2 2 --compression.mode=off
  laid_out run 2 2 --compression.mode=topk --compression.density=1 --compression.values=fp32
  losses_agree "$work/run" "$work/whole"
}

@test "topk in every format of values, sharded too: replicas of tensor ranks learn as replicas do, and do not drift" {
  local topk=(--compression.mode=topk --compression.density=0.2)
  learns_alike 0.02 "${topk[@]}" --compression.values=fp32
  learns_alike 0.02 "${topk[@]}" --compression.values=bf16 --parallel.shard=1 --model.tie_embeddings=false
  learns_alike 0.02 "${topk[@]}" --compression.values=fp8 --parallel.shard=2
}

@test "each layer's share is found over all tensor ranks: by its variance, by one threshold" {
  learns_alike 0.02 --compression.mode=variance-topk --profile.warmup_steps=4
  shares_agree
  learns_alike 0.02 --compression.mode=global-topk --compression.density=0.3 --profile.warmup_steps=4
  shares_agree
}

@test "skipped steps of 16 bits leave tensor ranks alike" {
  learns_alike 0.03 --compression.mode=topk --compression.density=0.2 --train.precision=fp16 --model.kind=llama
}

@test "a compressed run of tensor ranks that was cut goes on with the same bits, and in other layouts" {
  local keys=(--compression.mode=topk --compression.density=0.1 --checkpoint.every=12 --checkpoint.keep=9)
  laid_out run 2 2 "${keys[@]}"
  cp -r "$work/run" "$work/again"
  rm -r "$work/again/checkpoints/step-00000020" "$work/run/checkpoints/step-00000020"
  train "${layers[@]}" --parallel.tensor=2 --parallel.data=2 "${keys[@]}" --run-dir "$work/again" --checkpoint.dir="$work/again/checkpoints" |
    grep 'resumed from the checkpoint of step 12$'
  diff <(losses "$work/run") <(losses "$work/again")
  for layout in "1 2" "1 4" "2 1"; do
    read -r tensor replicas <<<"$layout"
    rm -rf "$work/next"
    cp -r "$work/run" "$work/next"
    train "${layers[@]}" --parallel.tensor="$tensor" --parallel.data="$replicas" "${keys[@]}" --checkpoint.dir="$work/next/checkpoints" \
      --run-dir "$work/next" | grep 'resumed from the checkpoint of step 12$'
    # What was held back before goes on being used once: the first losses are those of the run that was not cut.
    paste <(losses "$work/next" | sed -n '13,14p') <(losses "$work/run" | sed -n '13,14p') | awk '{ d = $1 / $2 - 1; if (d < -0.01 || d > 0.01) exit 1 }'
  done
}

@test "auto: the tensor ranks of a stage decide as one" {
  laid_out run 2 2 --compression.mode=auto --train.steps=52 >"$work/log" 2>&1
  [[ $(grep -cE 'compression (on|off): ' "$work/log") == 1 ]]
}
