# Every layout of at most 8 ranks, every schedule, three models: losses of ten steps and each parameter's first gradient are one rank's.
# LAYOUTS=all takes all of them, as the long tests do; by default a fixed thirty-second of each model's.
load run

setup() { make_run_folder; }

# every_layout: lines "TENSOR STAGES REPLICAS SCHEDULE".
every_layout() {
  local tensor stages replicas schedule
  for tensor in {1..8}; do
    for stages in {1..8}; do
      for replicas in {1..8}; do
        ((tensor * stages * replicas > 1 && tensor * stages * replicas <= 8)) || continue
        if ((stages == 1)); then
          echo "$tensor $stages $replicas auto"
          continue
        fi
        for schedule in gpipe 1f1b zb-h1 list interleaved breadth-first; do echo "$tensor $stages $replicas $schedule"; done
      done
    done
  done
}

# heads_for TENSOR: that many ranks can share them.
heads_for() {
  case $1 in
    1 | 2 | 4 | 8) echo 8 ;;
    3 | 6) echo 6 ;;
    *) echo "$1" ;;
  esac
}

# ten_steps FOLDER KIND HEADS TENSOR STAGES REPLICAS ARG...: with the state of each step.
ten_steps() {
  rm -rf "${work:?}/$1"
  train --model.kind="$2" --model.layers=14 --model.heads="$3" --model.hidden=$((4 * $3)) --model.ffn=840 --model.vocab=257 --train.steps=10 \
    --train.global_batch=24 --train.micro_batch=1 --parallel.shares=even --checkpoint.every=1 --checkpoint.keep=10 \
    --parallel.tensor="$4" --parallel.pipeline="$5" --parallel.data="$6" "${@:7}" --run-dir "$work/$1" >"$work/log" 2>&1 ||
    { echo "failed: ${*:2}" && tail -n 5 "$work/log" && return 1; }
}

# agree KIND FIRST: the layouts with one rank: FIRST, FIRST + 32 and so on, or all.
agree() {
  local number=0 tried=0 every=32 first=$2 tensor stages replicas schedule heads
  if [[ ${LAYOUTS:-} == all ]]; then every=1 first=0; fi
  while read -r tensor stages replicas schedule; do
    ((number++ % every == first)) || continue
    heads=$(heads_for "$tensor")
    [[ -e $work/one-$heads ]] || ten_steps "one-$heads" "$1" "$heads" 1 1 1
    ten_steps run "$1" "$heads" "$tensor" "$stages" "$replicas" --parallel.schedule="$schedule"
    paste <(losses "$work/run") <(losses "$work/one-$heads") | awk '
      { d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $2) bad++; n++ } END { exit !(n == 10 && !bad) }' ||
      { echo "losses differ: $1 $tensor $stages $replicas $schedule" && paste <(losses "$work/run") <(losses "$work/one-$heads") && return 1; }
    "$bin/moments_agree" "$work/run/config.resolved.toml" "$work"/{run,"one-$heads"}/checkpoints/step-00000001 1e-4 >"$work/worst" ||
      { echo "gradients differ: $1 $tensor $stages $replicas $schedule: $(<"$work/worst")" && return 1; }
    ((++tried))
  done < <(every_layout)
  echo "$1: $tried layouts"
  ((tried >= 3))
}

@test "GPT-2 in layouts of up to 8 ranks" { agree gpt2 3; }
@test "Llama in layouts of up to 8 ranks" { agree llama 8; }
@test "BERT in layouts of up to 8 ranks" { agree bert 13; }
