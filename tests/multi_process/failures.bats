# Each kind of failure, by real ones: what the store keeps of it, and whom later plans hold it against.
bats_require_minimum_version 1.5.0
load run

setup() { make_run_folder; }
teardown() { kill -9 "$launcher" 2>/dev/null || true; }

# failed_as KIND [BLAMED]: all that the store knows of failures.
failed_as() {
  [[ $(sqlite3 "$work/profiles.db" "SELECT DISTINCT kind || '|' || blamed FROM failures" | tee -a /dev/stderr) == "$1|${2-}" ]]
}
# no_history: the next plan says nothing of failures.
no_history() { ! "$bin/adaptive-train" plan "$work/config.toml" --store "$store" | grep 'its time counts'; }

long_run() {
  train_in_background --train.steps=100000 --recovery.attempts=0
  wait_until 60 steps_done 5
  mapfile -t ranks < <(rank_pids)
}

@test "killed, crashed and stopped ranks: nobody's node" {
  for case in KILL:killed SEGV:crashed STOP:rank_silent; do
    rm -rf "$work/run" "$work/profiles.db"
    long_run
    kill "-${case%:*}" "${ranks[2]}"
    ends_with 5
    failed_as "${case#*:}"
    no_history
  done
}

@test "an abort where memory is short: out of memory, nobody's node" {
  long_run
  # Stopped, it cannot find out by itself, in an allocation of a sanitizer's, say, before the signal comes.
  kill -STOP "${ranks[2]}"
  prlimit --pid "${ranks[2]}" --data=4096
  kill -ABRT "${ranks[2]}"
  kill -CONT "${ranks[2]}"
  ends_with 5
  failed_as out_of_memory
  no_history
}

@test "a rank that aborts beside one that was killed is not named" {
  long_run
  kill -ABRT "${ranks[0]}"
  kill -KILL "${ranks[1]}"
  ends_with 5
  grep '^adaptive-train: rank 1 on .*: its process ended: killed by signal 9' "$work/err"
  failed_as killed
}

@test "a full disk at the last save: disk full, nobody's node" {
  mkdir "$work/small"
  unshare --mount bash -c '
    mount -t tmpfs -o size=200k tmpfs "$1"
    exec "$2/adaptive-train" run "$3" --run-dir "$4/run" --store "$5" --checkpoint.dir="$1/checkpoints"' \
    _ "$work/small" "$bin" "$work/config.toml" "$work" "$store" 2>"$work/err" 3>&- && status=0 || status=$?
  cat "$work/err"
  ((status == 5))
  grep -q 'No space left on device' "$work/err"
  failed_as disk_full
  no_history
}

@test "a quota that is used up at the last save: quota, nobody's node" {
  cp "$fakes/libfull_quota.so" "$work/"
  touch "$work/FULL_QUOTA"
  LD_PRELOAD=$work/libfull_quota.so run -5 train
  echo "$output"
  grep -q 'Disk quota exceeded' <<<"$output"
  failed_as quota
  no_history
}

@test "a resume with another model: a wrong configuration, nobody's node" {
  train >/dev/null
  run -5 train --model.hidden=64 --train.steps=30
  failed_as configuration
  no_history
}

@test "a worker that does not start: nobody's node" {
  mkdir "$work/bin"
  cp "$bin/adaptive-train" "$bin/adaptive-train-probe" "$work/bin/"
  printf '#!/bin/sh\nexit 3\n' >"$work/bin/adaptive-train-worker"
  chmod 755 "$work/bin/adaptive-train-worker"
  bin=$work/bin run -5 train
  failed_as launch
}
