# Stages of a pipeline on ranks of their own: the same training as on one rank, whatever the layout.
load run

setup() { make_run_folder; }

layers=(--model.layers=4 --train.global_batch=12 --parallel.shares=even)

# one ARG...: the same training on one rank, in $work/one.
one() { train "${layers[@]}" "$@" --parallel.data=1 --parallel.pipeline=1 --run-dir "$work/one"; }
# staged STAGES REPLICAS ARG...: in $work/run; each rank is a stage of a replica.
staged() {
  rm -rf "$work/run"
  train "${layers[@]}" --parallel.pipeline="$1" --parallel.data="$2" --train.micro_batch=2 "${@:3}"
  jq -e --argjson stages "$1" --argjson ranks $(($1 * $2)) '(.stages | length) == $stages and (.ranks | length) == $ranks' "$work/run/plan.json"
}

@test "2, 3 and 4 stages and 1 rank agree within 1e-4 over 20 steps; so do 2 stages of 2 replicas" {
  one
  for layout in "2 1" "3 1" "4 1" "2 2"; do
    read -r stages replicas <<<"$layout"
    staged "$stages" "$replicas"
    losses_agree "$work/run" "$work/one"
  done
  jq -es --slurpfile one "$work/one/metrics.jsonl" '(.[-1].validation_loss / $one[-1].validation_loss - 1 | fabs) < 1e-4' "$work/run/metrics.jsonl"
  jq -es 'all(.[]; .bubble_s >= 0 and .activation_bytes == 2 * 12 * 32 * 32 * 4)' "$work/run/metrics.jsonl"
  jq -es 'all(.[]; ((.compute_s + .exposed_comm_s + .bubble_s + .other_s - .step_s) | fabs) <= 0.02 * .step_s)' "$work/run/metrics.jsonl"
}

@test "embeddings of their own, Llama, and BERT agree in stages, with dropout and recomputation" {
  local kinds=("--model.tie_embeddings=false --train.dropout=0.1" "--model.kind=llama --train.recompute=full" "--model.kind=bert --model.vocab=257 --train.recompute=selective --train.dropout=0.1")
  for kind in "${kinds[@]}"; do
    read -ra keys <<<"$kind"
    rm -rf "$work/one"
    one "${keys[@]}"
    staged 3 1 "${keys[@]}"
    losses_agree "$work/run" "$work/one"
  done
}

@test "sharded moments and gradients agree in stages; so do 16 bits" {
  one
  staged 2 2 --parallel.shard=1
  losses_agree "$work/run" "$work/one"
  staged 2 2 --parallel.shard=2
  losses_agree "$work/run" "$work/one"
  rm -rf "$work/one"
  one --train.precision=bf16
  staged 2 2 --train.precision=bf16 --parallel.shard=2
  losses_agree "$work/run" "$work/one" 2e-3
  rm -rf "$work/one"
  one --train.precision=fp16
  staged 3 1 --train.precision=fp16
  losses_agree "$work/run" "$work/one" 2e-3
}

@test "a checkpoint of 2 stages of 2 replicas goes on as 1 rank, as 4 stages and as 3 replicas, and back" {
  one --checkpoint.every=12 --checkpoint.keep=9
  staged 2 2 --checkpoint.every=12 --checkpoint.keep=9
  for from in run one; do
    rm -rf "$work/$from/checkpoints/step-00000020"
    for layout in "1 1" "4 1" "1 3" "2 2"; do
      read -r stages replicas <<<"$layout"
      rm -rf "$work/next"
      cp -r "$work/$from" "$work/next"
      train "${layers[@]}" --parallel.pipeline="$stages" --parallel.data="$replicas" --train.micro_batch=2 --checkpoint.dir="$work/next/checkpoints" \
        --run-dir "$work/next" | grep 'resumed from the checkpoint of step 12$'
      losses_agree "$work/next" "$work/one"
    done
  done
}

@test "the same staged run twice gives the same bits, and so does one that was cut" {
  local same=(--profile.warmup_steps=0 --parallel.shard=1)
  staged 2 2 "${same[@]}" --checkpoint.every=12 --checkpoint.keep=9
  mv "$work/run" "$work/first"
  staged 2 2 "${same[@]}"
  diff <(losses "$work/first") <(losses "$work/run")
  rm -r "$work/first/checkpoints/step-00000020"
  train "${layers[@]}" --parallel.pipeline=2 --parallel.data=2 --train.micro_batch=2 "${same[@]}" --run-dir "$work/first" --checkpoint.dir="$work/first/checkpoints"
  diff <(losses "$work/first") <(losses "$work/run")
}

@test "a stage that is killed is named, and the run ends with 5" {
  train_in_background "${layers[@]}" --parallel.pipeline=4 --parallel.data=1 --train.micro_batch=2 --train.steps=100000 --recovery.attempts=0
  wait_until 60 steps_done 5
  local pids
  mapfile -t pids < <(rank_pids)
  kill -9 "${pids[2]}"
  ends_with 5
  grep -q 'rank 2' "$work/err"
  all_gone "${pids[@]}"
}
