# Every schedule of pipeline stages, with one chunk of the model per rank and with two: the same training as on one rank.
load run

setup() { make_run_folder; }

layers=(--model.layers=6 --parallel.shares=even --train.steps=10)

# one ARG...: the same training on one rank, in $work/one.
one() {
  rm -rf "$work/one"
  train "${layers[@]}" "$@" --parallel.data=1 --parallel.pipeline=1 --run-dir "$work/one"
}
# scheduled SCHEDULE CHUNKS STAGES REPLICAS ARG...: in $work/run; its losses are those of $work/one.
scheduled() {
  rm -rf "$work/run"
  train "${layers[@]}" --parallel.schedule="$1" --parallel.interleave="$2" --parallel.pipeline="$3" --parallel.data="$4" --train.micro_batch=2 "${@:5}"
  jq -e --arg schedule "$1" --argjson chunks "$2" --argjson stages "$3" '.schedule == $schedule and (.stages | length) == $stages and
    all(.stages[]; (.chunks | length) == $chunks)' "$work/run/plan.json"
  ten_losses_agree
}
ten_losses_agree() {
  paste <(losses "$work/run") <(losses "$work/one") | awk '
    { d = $1 / $2 - 1; if (d < 0) d = -d; if (d > worst) worst = d }
    END { printf "%d steps, largest relative difference %.2e\n", NR, worst; exit !(NR == 10 && worst < 1e-4) }'
}

@test "schedules of 2 and 4 stages agree with one rank where stages do not divide the micro-batches" {
  one --train.global_batch=14
  for layout in "gpipe 1 2" "gpipe 1 4" "zb-h1 1 2" "zb-h1 1 4" "list 1 2" "list 1 4" "interleaved 2 2" "interleaved 2 4" "breadth-first 2 2" "breadth-first 2 4"; do
    read -r schedule chunks stages <<<"$layout"
    scheduled "$schedule" "$chunks" "$stages" 1 --train.global_batch=14
  done
  jq -es --slurpfile one "$work/one/metrics.jsonl" '(.[-1].validation_loss / $one[-1].validation_loss - 1 | fabs) < 1e-4' "$work/run/metrics.jsonl"
  jq -es 'all(.[]; ((.compute_s + .exposed_comm_s + .bubble_s + .other_s - .step_s) | fabs) <= 0.02 * .step_s)' "$work/run/metrics.jsonl"
}

@test "schedules agree with one rank where there are fewer micro-batches than stages" {
  one --train.global_batch=4
  for layout in "gpipe 1 4" "zb-h1 1 4" "list 1 4" "interleaved 2 4" "breadth-first 2 4"; do
    read -r schedule chunks stages <<<"$layout"
    scheduled "$schedule" "$chunks" "$stages" 1 --train.global_batch=4
  done
}

@test "two chunks per rank agree with sharded moments and gradients, embeddings of their own, Llama, and BERT" {
  one --train.global_batch=16
  scheduled interleaved 2 2 2 --train.global_batch=16 --parallel.shard=1
  scheduled interleaved 2 2 2 --train.global_batch=16 --parallel.shard=2
  scheduled breadth-first 2 2 2 --train.global_batch=16 --parallel.shard=2
  one --train.global_batch=8 --model.tie_embeddings=false --train.dropout=0.1
  scheduled breadth-first 2 2 1 --train.global_batch=8 --model.tie_embeddings=false --train.dropout=0.1
  one --train.global_batch=8 --model.kind=llama --train.recompute=full
  scheduled interleaved 2 4 1 --train.global_batch=8 --model.kind=llama --train.recompute=full
  one --train.global_batch=8 --model.kind=bert --model.vocab=257 --train.recompute=selective --train.dropout=0.1
  scheduled interleaved 2 2 1 --train.global_batch=8 --model.kind=bert --model.vocab=257 --train.recompute=selective --train.dropout=0.1
}

@test "backward in halves agrees with sharded moments and gradients, embeddings of their own, Llama, and BERT" {
  one --train.global_batch=16
  scheduled zb-h1 1 2 2 --train.global_batch=16 --parallel.shard=1
  scheduled zb-h1 1 2 2 --train.global_batch=16 --parallel.shard=2
  scheduled list 1 2 2 --train.global_batch=16 --parallel.shard=2
  one --train.global_batch=8 --model.tie_embeddings=false --train.dropout=0.1
  scheduled zb-h1 1 3 1 --train.global_batch=8 --model.tie_embeddings=false --train.dropout=0.1
  one --train.global_batch=8 --model.kind=llama
  scheduled zb-h1 1 4 1 --train.global_batch=8 --model.kind=llama
  one --train.global_batch=8 --model.kind=bert --model.vocab=257 --train.dropout=0.1
  scheduled zb-h1 1 2 1 --train.global_batch=8 --model.kind=bert --model.vocab=257 --train.dropout=0.1
  run train "${layers[@]}" --parallel.schedule=zb-h1 --train.recompute=full
  [[ $status == 2 && $output == *"needs train.recompute"* ]]
}

@test "a checkpoint of 2 chunks per rank goes on with 1 and on one rank, and back" {
  local batch=(--train.global_batch=12)
  one "${batch[@]}" --checkpoint.every=6 --checkpoint.keep=9
  scheduled interleaved 2 2 2 "${batch[@]}" --checkpoint.every=6 --checkpoint.keep=9
  for from in run one; do
    rm -rf "$work/$from/checkpoints/step-00000010"
    cp -r "$work/$from" "$work/from-$from"
  done
  for layout in "run 1 1 1" "run 4 1 1" "one 2 2 2"; do
    read -r from stages replicas chunks <<<"$layout"
    rm -rf "$work/run"
    cp -r "$work/from-$from" "$work/run"
    train "${layers[@]}" "${batch[@]}" --parallel.pipeline="$stages" --parallel.data="$replicas" --parallel.interleave="$chunks" --train.micro_batch=2 \
      --checkpoint.dir="$work/run/checkpoints" | grep 'resumed from the checkpoint of step 6$'
    ten_losses_agree
  done
}

# tests/multi_process/late_updates_test.cc has the definition.
@test "without a flush stages and replicas train alike, also across validations and a stop, and what cannot be is refused" {
  local late=(--parallel.schedule=pipedream-2bw --train.micro_batch=2 --train.global_batch=16)
  train "${layers[@]}" "${late[@]}" --parallel.pipeline=2 --parallel.data=1 --run-dir "$work/one"
  for layout in "4 1" "3 2" "2 2"; do
    read -r stages replicas <<<"$layout"
    scheduled pipedream-2bw 1 "$stages" "$replicas" --train.global_batch=16 --train.validate_every=3 --checkpoint.every=6 --checkpoint.keep=9
  done
  jq -es --slurpfile one "$work/one/metrics.jsonl" '(.[-1].validation_loss / $one[-1].validation_loss - 1 | fabs) < 1e-4' "$work/run/metrics.jsonl"
  jq -es 'all(.[]; ((.compute_s + .exposed_comm_s + .bubble_s + .other_s - .step_s) | fabs) <= 0.02 * .step_s)' "$work/run/metrics.jsonl"
  # By way of the owners, of whom nobody holds anything back.
  scheduled pipedream-2bw 1 2 2 --train.global_batch=16 --compression.mode=topk --compression.density=1
  scheduled pipedream-2bw 1 4 1 --train.global_batch=16 --train.recompute=full --checkpoint.every=6 --checkpoint.keep=9
  # A run that goes on has the newest weights alone.
  rm -r "$work/run/checkpoints/step-00000010"
  train "${layers[@]}" "${late[@]}" --parallel.pipeline=4 --parallel.data=1 | grep 'resumed from the checkpoint of step 6$'
  jq -es '[.[] | select(.step_s)] | map(.step) == [range(1; 11)]' "$work/run/metrics.jsonl"
  rm -rf "$work/run"
  run train "${layers[@]}" "${late[@]}" --parallel.pipeline=4 --parallel.data=1 --train.global_batch=6
  [[ $status == 3 && $output == *"3 micro-batches of replica 0 on 4 stages with the pipedream-2bw schedule (parallel.schedule), which needs at least as many"* ]]
  run train "${layers[@]}" "${late[@]}" --train.reproducible=layout
  [[ $status == 2 && $output == *'another parallel.schedule than "pipedream-2bw"'* ]]
  [[ ! -e $work/run/metrics.jsonl ]]
}

# by_hand LAYOUT STAGES CHUNKS REPLICAS ARG...: a run in $work/run whose plan has this layout; its losses are those of $work/one.
by_hand() {
  rm -rf "$work/run"
  train "${layers[@]}" --parallel.layout="$1" --parallel.data="$4" --train.micro_batch=2 "${@:5}"
  jq -e --arg layout "$1" --argjson stages "$2" --argjson chunks "$3" '.layout == $layout and (.stages | length) == $stages and
    all(.stages[]; (.chunks | length) == $chunks)' "$work/run/plan.json"
  ten_losses_agree
}

@test "uneven layouts by hand agree with one rank, with one chunk per rank and with two" {
  one --train.global_batch=8
  by_hand 'E|t*4|tt|L' 4 1 1 --train.global_batch=8
  by_hand 'Ett|t*4L' 2 1 2 --train.global_batch=8 --parallel.schedule=list
  by_hand 'E|t*3|tt|tL' 2 2 2 --train.global_batch=8 --parallel.pipeline=2
  by_hand 'Et|t*3|t|tL' 2 2 1 --train.global_batch=8 --parallel.schedule=breadth-first
}

@test "schedules and chunks that cannot be are refused in one line" {
  run train "${layers[@]}" --parallel.schedule=gpipe --parallel.interleave=2
  [[ $status == 2 && $output == *"other schedules have one chunk per rank"* ]]
  run train "${layers[@]}" --parallel.interleave=3 --parallel.pipeline=4 --parallel.data=1
  [[ $status == 3 && $output == *"4 stages of 3 chunks (parallel.interleave) need 12 layers; the model has 8"* ]]
  run train "${layers[@]}" --parallel.layout='Et*3|t*4L'
  [[ $status == 2 && $output == *"parallel.layout: stage layout: 7 blocks (t), the model has 6"* ]]
  run train "${layers[@]}" --parallel.layout='Et*3||t*3L'
  [[ $status == 2 && $output == *"parallel.layout: stage 1 of 0 to 2 has no layer"* ]]
  run train "${layers[@]}" --parallel.layout='Et*3|t*3L' --parallel.pipeline=3
  [[ $status == 2 && $output == *"parallel.layout has 2 stages: parallel.pipeline = 3 needs 3 or a multiple of it"* ]]
  [[ ! -e $work/run/metrics.jsonl ]]
}

@test "the plan says which schedule it has, and plays it" {
  "$bin/adaptive-train" plan "$work/config.toml" "${layers[@]}" --parallel.pipeline=2 --parallel.data=1 --parallel.interleave=2 --train.micro_batch=2 \
    --simulate "$work/picture.svg" >"$work/plan.txt"
  grep -q ', 2 chunks per rank, interleaved schedule' "$work/plan.txt"
  grep -q 'layers 0 to 1, layers 4 to 5' "$work/plan.txt"
  grep -q 'paler: later chunks of the rank' "$work/picture.svg"
}

@test "a plan's layout as it is printed, edited or not, can be given back" {
  local keys=("$work/config.toml" "${layers[@]}" --cluster "$BATS_TEST_DIRNAME/../../examples/clusters/two-switches.json" --parallel.data=1
    --train.micro_batch=2)
  "$bin/adaptive-train" plan "${keys[@]}" --parallel.pipeline=2 --parallel.interleave=2 | tee "$work/plan.txt"
  layout=$(sed -n 's/^  parallel.layout = "\(.*\)", parallel.interleave = 2$/\1/p' "$work/plan.txt")
  "$bin/adaptive-train" plan "${keys[@]}" --parallel.layout="$layout" --parallel.interleave=2 >"$work/again.txt"
  # All but the line that says where the layers come from.
  diff "$work/plan.txt" <(grep -v "each stage's layers: parallel.layout" "$work/again.txt")
  "$bin/adaptive-train" plan "${keys[@]}" --parallel.layout="E|t*6L" | grep -F '  parallel.layout = "E|t*6L"'
}
