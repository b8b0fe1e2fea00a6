# The adaptive exchange around pipeline stages: the same training as data parallel of the same degree with the same exchange.
load run

setup() { make_run_folder; }

layers=(--model.layers=4 --train.global_batch=12 --parallel.shares=even --train.micro_batch=2)

# of RUN FILTER: of its metrics, all steps at once; there are some.
of() { jq -es "length > 0 and ($2)" "$1/metrics.jsonl"; }
# laid_out FOLDER STAGES REPLICAS ARG...: a run in $work/FOLDER.
laid_out() {
  rm -rf "${work:?}/$1"
  train "${layers[@]}" --parallel.pipeline="$2" --parallel.data="$3" "${@:4}" --run-dir "$work/$1"
}
# stages_agree TOLERANCE ARG...: two stages of two replicas and two replicas without stages, both with ARGs; $work/run and $work/whole.
stages_agree() {
  laid_out run 2 2 "${@:2}"
  jq -e '(.stages | length) == 2 and (.ranks | length) == 4' "$work/run/plan.json"
  laid_out whole 1 2 "${@:2}"
  losses_agree "$work/run" "$work/whole" "$1"
}
# densities_agree: of all steps of the two.
densities_agree() {
  of "$work/run" 'any(.[]; .density < 0.6)'
  jq -es --slurpfile whole "$work/whole/metrics.jsonl" '[., $whole] | transpose | all(.[]; (.[0].density - .[1].density | fabs) < 5e-3)' "$work/run/metrics.jsonl"
}

@test "topk: two stages of two replicas are two replicas; with a tied matrix, sharded, in every format of values" {
  local topk=(--compression.mode=topk --compression.density=0.1)
  stages_agree 1e-4 "${topk[@]}" --compression.values=fp32 --model.tie_embeddings=false
  densities_agree
  # All owners' bytes; activations and a tied matrix's copy apart, stages send what replicas send.
  jq -es --slurpfile whole "$work/whole/metrics.jsonl" '((map(.grad_bytes) | add) / ($whole | map(.grad_bytes) | add) - 1 | fabs) < 0.02' "$work/run/metrics.jsonl"
  stages_agree 1e-4 "${topk[@]}" --compression.values=bf16 --parallel.shard=1
  densities_agree
  stages_agree 1e-4 "${topk[@]}" --compression.values=fp8 --parallel.shard=2 --model.tie_embeddings=false
  densities_agree
}

@test "each layer's share is found over all stages: by its variance, by one threshold; sketches and 16 bits" {
  stages_agree 1e-4 --compression.mode=variance-topk --profile.warmup_steps=4 --parallel.shard=1
  densities_agree
  stages_agree 1e-4 --compression.mode=global-topk --compression.density=0.2 --profile.warmup_steps=4 --model.tie_embeddings=false
  densities_agree
  stages_agree 1e-4 --compression.mode=sketch --compression.density=0.1 --model.tie_embeddings=false
  stages_agree 2e-3 --compression.mode=topk --compression.density=0.1 --train.precision=bf16 --parallel.shard=1 --parallel.gather=int8
}

@test "a compressed run of stages twice gives the same bits, and so does one that was cut" {
  local keys=(--compression.mode=variance-topk --compression.values=fp8 --profile.warmup_steps=4 --checkpoint.every=12 --checkpoint.keep=9)
  laid_out run 2 2 "${keys[@]}"
  laid_out again 2 2 "${keys[@]}"
  diff <(losses "$work/run") <(losses "$work/again")
  rm -r "$work/again/checkpoints/step-00000020"
  train "${layers[@]}" --parallel.pipeline=2 --parallel.data=2 "${keys[@]}" --run-dir "$work/again" --checkpoint.dir="$work/again/checkpoints" >"$work/log"
  grep 'resumed from the checkpoint of step 12$' "$work/log"
  [[ $(grep -c 'of the elements of .* layers' "$work/log") == 0 ]] # the layers' shares are in the checkpoint
  diff <(losses "$work/run") <(losses "$work/again")
}

@test "a compressed checkpoint of 2 stages of 2 replicas goes on as 4 replicas, as 4 stages, on 1 rank, and back" {
  local keys=(--compression.mode=topk --compression.density=0.1 --checkpoint.every=12 --checkpoint.keep=9)
  laid_out run 2 2 "${keys[@]}"
  rm -r "$work/run/checkpoints/step-00000020"
  for layout in "1 4" "4 1" "1 1"; do
    read -r stages replicas <<<"$layout"
    rm -rf "$work/next"
    cp -r "$work/run" "$work/next"
    train "${layers[@]}" --parallel.pipeline="$stages" --parallel.data="$replicas" "${keys[@]}" --checkpoint.dir="$work/next/checkpoints" \
      --run-dir "$work/next" >"$work/log"
    grep 'resumed from the checkpoint of step 12$' "$work/log"
    [[ $(grep -c dropped "$work/log") == 0 ]]
    if ((replicas == 1)); then
      grep -c "residuals: all go into the next update, since a single replica holds nothing back" "$work/log"
    fi
    of "$work/next" 'length == 20 and .[-1].loss < 0.95 * .[0].loss'
  done
  rm -r "$work/next/checkpoints/step-00000012"
  train "${layers[@]}" --parallel.pipeline=2 --parallel.data=2 "${keys[@]}" --checkpoint.dir="$work/next/checkpoints" --train.steps=24 \
    --run-dir "$work/next"
  of "$work/next" '.[-1].step == 24 and .[-1].density < 0.6'
}

@test "auto: each stage decides, says so, and its decision is in the checkpoint" {
  laid_out run 2 2 --compression.mode=auto --compression.values=bf16 --train.steps=40 >"$work/log" 2>&1
  for stage in 0 1; do
    [[ $(grep -cE "stage $stage: .*compression (on|off): " "$work/log") == 1 ]]
    jq -e --arg stage "stage $stage: " '[.why[] | select(contains($stage) and contains("compression o"))] | length == 1' "$work/run/plan.json"
  done
  jq -e '[.state.extra // .extra | keys[] | select(startswith("compression_pays_"))] | length == 6' "$work"/run/checkpoints/step-00000040/manifest.json
}
