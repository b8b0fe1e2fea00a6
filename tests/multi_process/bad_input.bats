# Wrong input and a hostile surrounding: one clear line, the documented exit code, nothing lost.
load run
bats_require_minimum_version 1.5.0

setup() { make_run_folder; }
teardown() { kill -9 "$launcher" 2>/dev/null || true; }

# refused CODE TEXT ARG...: `train ARG...` ends with CODE and one line on stderr that contains TEXT.
refused() {
  local code=$1 text=$2 status=0
  shift 2
  train "$@" >"$work/out" 2>"$work/err" || status=$?
  cat "$work/err"
  echo "exit code $status, expected $code with: $text"
  ((status == code)) && [[ $(wc -l <"$work/err") == 1 ]] && grep -qF -- "$text" "$work/err"
}

config_says() { printf '%s\n' "$@" >"$work/config.toml"; }

@test "a missing configuration" {
  rm "$work/config.toml"
  refused 2 "config.toml: No such file"
}

@test "a configuration that is no TOML names its line" {
  config_says '[train]' 'steps = = 3'
  refused 2 "line 2"
}

@test "an unknown key names the nearest" {
  config_says '[train]' 'stepz = 3'
  refused 2 "unknown key train.stepz; the nearest is train.steps"
  config_says '[data]' 'train = "corpus.txt"'
  refused 2 "unknown key train.stepz; the nearest is train.steps" --train.stepz=3
}

@test "wrong types and values say what is allowed" {
  refused 2 "train.steps must be an integer, 1 or more" --train.steps=many
  refused 2 "train.steps must be an integer, 1 or more" --train.steps=0
  refused 2 "optimizer.lr must be a number from 0 to 10" '--optimizer.lr="fast"'
  refused 2 "optimizer.lr must be a number" --optimizer.lr=nan
  refused 2 'model.kind must be one of "gpt2", "llama", "bert"' --model.kind=gpt5
  refused 2 "model.tie_embeddings must be true or false" --model.tie_embeddings=1
  config_says 'format_version = 99' '[data]' 'train = "corpus.txt"'
  refused 2 "format_version 99 is newer"
}

@test "a range of sparsities that is none" {
  refused 2 "compression.s_min must not exceed compression.s_max" --compression.s_min=0.96
  refused 2 'compression.values = "int4" is for all elements: compression.mode must be "auto", or "topk" with compression.density = 1' \
    --compression.mode=variance-topk --compression.values=int4
  refused 2 'compression.values = "int4" is for all elements' --compression.mode=topk --compression.values=int4
}

@test "impossible layouts are refused before anything starts, with the nearest possible ones" {
  refused 3 "parallel.pipeline = 9 needs a layer for each stage, the model has 4: parallel.pipeline = 4 or less" --parallel.pipeline=9
  refused 3 "parallel.pipeline = 9 needs a layer for each stage, the model has 4: parallel.pipeline = 4 or less" --parallel.pipeline=9 \
    --parallel.data=1 --parallel.shares=even
  refused 3 "parallel.tensor = 3 ranks cannot share heads, kv_heads and ffn of the model (2, 2, 128): 2 can" --parallel.tensor=3
  refused 3 "parallel.data = 11 needs train.global_batch of at least that, not 10" --parallel.data=11
  refused 3 "4 does not divide 10: global_batch 8 or 12" --parallel.data=1 --parallel.pipeline=2 --train.micro_batch=4
  [[ ! -e $work/run/metrics.jsonl ]]
}

@test "impossible sizes" {
  refused 2 "model.hidden = 33 is not a multiple of model.heads = 2" --model.hidden=33
  refused 2 "the limit is 1e12" --model.hidden=262144 --model.layers=100
  refused 2 "train.micro_batch = 20 must not exceed train.global_batch = 10" --train.micro_batch=20
  refused 3 "parallel.data = 11 needs train.global_batch of at least that" --parallel.data=11
  refused 3 "no feasible plan: memory: " --model.hidden=32768 --model.layers=40
}

@test "stray arguments and verbs" {
  refused 2 "unexpected argument here" here
  refused 2 "--train.steps needs a value" --train.steps
  run -2 "$bin/adaptive-train" trian
  [[ ${#lines[@]} == 1 ]]
  run -2 "$bin/adaptive-train" rnu
  [[ $output == "adaptive-train: there is no verb 'rnu': the nearest is run "* ]]
  run -2 "$bin/adaptive-train"
  [[ ${#lines[@]} == 1 ]]
}

@test "srun that calls the launcher once a task is told to call it once" {
  SLURM_STEP_NUM_TASKS=2 refused 2 "call it once, without srun"
  SLURM_STEP_NUM_TASKS=1 train --train.steps=1
}

@test "init writes a configuration that is read as it is, and overwrites nothing" {
  "$bin/adaptive-train" init "$work/new.toml" | grep "adaptive-train run $work/new.toml"
  "$bin/adaptive-train" plan "$work/new.toml" --data.train="$work/corpus.txt" --store "$store" >/dev/null
  run -2 "$bin/adaptive-train" init "$work/new.toml"
  [[ $output == "adaptive-train init: $work/new.toml: it exists"* ]]
  cmp <(sed 's/new.toml/quickstart.toml/g' "$work/new.toml") "$BATS_TEST_DIRNAME/../../examples/quickstart.toml"
}

@test "empty data, data smaller than a sample or than a batch, unreadable and missing data" {
  refused 4 "data.train: $work/gone.txt" --data.train="$work/gone.txt"
  : >"$work/empty.txt"
  refused 4 "data.train: $work/empty.txt" --data.train="$work/empty.txt"
  head -c 8 "$work/corpus.txt" >"$work/short.txt" # less than any sample
  refused 4 "data.train: $work/short.txt" --data.train="$work/short.txt"
  head -c 80 "$work/corpus.txt" >"$work/batch.txt"
  refused 4 "fewer than one batch, train.global_batch = 10" --data.train="$work/batch.txt" --data.validation="$work/corpus.txt"
  refused 4 "data.train: $work" --data.train="$work"
}

@test "a run folder that cannot be written, or is in use" {
  refused 4 "run folder: /proc/nowhere" --run-dir /proc/nowhere
  : >"$work/file"
  refused 4 "run folder: $work/file" --run-dir "$work/file"
  train_in_background --train.steps=100000
  wait_until 60 steps_done 2
  refused 4 "is in use by another adaptive-train run"
  # Another run folder, the same folder of checkpoints: it would remove what the first is writing.
  refused 4 "checkpoint.dir: $work/run/checkpoints is in use by another adaptive-train run" --run-dir "$work/other" --checkpoint.dir="$work/run/checkpoints"
  kill -INT "$launcher"
  ends_with 130
}

@test "a full disk: the run fails with one line, the checkpoint before it stays whole" {
  mkdir "$work/small"
  unshare --mount bash -ec '
    mount -t tmpfs -o size=1m tmpfs "$1"
    "$2/adaptive-train" run "$3" --run-dir "$1/run" --store "$4" --train.steps=5 --checkpoint.keep=9 >/dev/null
    head -c 100000000 /dev/zero >"$1/ballast" 2>/dev/null || true
    status=0
    "$2/adaptive-train" run "$3" --run-dir "$1/run" --store "$4" --train.steps=9 --checkpoint.keep=9 >/dev/null 2>"$5" || status=$?
    rm "$1/ballast"
    "$2/adaptive-train" run "$3" --run-dir "$1/run" --store "$4" --train.steps=9 --checkpoint.keep=9 | grep "resumed from the checkpoint of step 5"
    exit "$status"' _ "$work/small" "$bin" "$work/config.toml" "$store" "$work/err" 3>&- && status=0 || status=$?
  cat "$work/err"
  # Full before the first step (4) or while it trains (5); either way one line.
  ((status == 4 || status == 5))
  grep -q 'No space left on device' "$work/err"
}

@test "a store that is newer or corrupt, and one on a read-only place" {
  train --train.steps=2
  sqlite3 "$work/profiles.db" "PRAGMA user_version = 99"
  refused 6 "profiles.db" --train.steps=2
  printf 'not a database at all, but long enough to look at. %.0s' {1..100} >"$work/profiles.db"
  cp "$work/profiles.db" "$work/before"
  rm -f "$work"/profiles.db-*
  refused 6 "profiles.db" --train.steps=2
  cmp "$work/profiles.db" "$work/before"
  refused 6 "/proc" --store file:/proc/x.db
  refused 2 "ftp" --store ftp:somewhere
}

@test "a run that only skips steps does not end as done: train.skip_limit" {
  diverging=(--train.precision=fp16 --optimizer.lr=10 --optimizer.warmup_steps=0 --optimizer.clip=0 --optimizer.schedule=constant)
  refused 5 "5 steps in a row were skipped" "${diverging[@]}" --train.steps=1000 --train.skip_limit=5
}
