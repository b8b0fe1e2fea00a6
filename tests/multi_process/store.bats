# The store never fails a run: an error of the default one is a warning, and the ledger keeps its
# records. Neither it nor the run folder holds ranks up.
bats_require_minimum_version 1.5.0
source "$BATS_TEST_DIRNAME/run.bash"

setup() {
  make_run_folder
  export XDG_STATE_HOME=$work/state
  default=$work/state/adaptive-train/profiles.db
}

# run_here ARG...: with the default store.
run_here() { timeout --kill-after=10 120 "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" "$@" 3>&-; }
jobs() { "$bin/adaptive-train" jobs -a -n -P "$@"; }

@test "a default store that cannot be used is a warning; the next one that opens takes the run in, once" {
  mkdir -p "$default"
  run_here --train.steps=3 2>"$work/err"
  grep "^adaptive-train: warning: profile store $default: this is a folder.*recorded in $work/run/ledger.jsonl" "$work/err"
  jq -es 'all(.[]; .format_version == 1) and .[0].job.run_dir and .[-1].end.state == "COMPLETED"' "$work/run/ledger.jsonl"
  "$bin/adaptive-train" plan "$work/config.toml" >/dev/null 2>"$work/err"
  grep '^adaptive-train plan: warning: profile store' "$work/err"
  [[ $(ls "$work/state/adaptive-train/ledgers" | wc -l) == 1 ]]
  rmdir "$default"
  [[ $(jobs -o State,ExitCode,Steps 2>"$work/err") == "COMPLETED|0:0|3" ]]
  grep "ledger $work/run/ledger.jsonl: .* entries taken in" "$work/err"
  run_here --train.steps=5
  [[ $(jobs -o Steps) == 3$'\n'5 ]]
  [[ -z $(ls "$work/state/adaptive-train/ledgers") ]]
}

@test "a store that is busy when training ends does not fail it" {
  run_here --train.steps=1
  "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" --train.steps=1000000 >"$work/out" 2>"$work/err" 3>&- &
  launcher=$!
  wait_until 60 steps_done 20
  lock_store "$default"
  kill -INT "$launcher"
  ends_with 130
  grep 'adaptive-train: warning: .*another process has locked the store' "$work/err"
  unlock_store
  [[ $(jobs -o State) == COMPLETED$'\n'CANCELLED ]]
}

# make_store: $named, which the environment names, with a job of one step.
make_store() {
  mkdir "$work/named"
  named=$work/named/profiles.db
  export ADAPTIVE_TRAIN_STORE=file:$named
  "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/first" --train.steps=1 >/dev/null 3>&-
  [[ $(jobs -o Steps) == 1 ]]
}

# shown_all_the_same COMMAND...: the other verbs say it in one line and show what ledgers tell, or that a locked store took none in.
shown_all_the_same() {
  local verb
  for verb in "plan $work/config.toml" 'jobs -a -n -P -o Steps' links nodes; do
    # A locked store holds each of them up for 5 s.
    [[ ! ${locks-} || $verb != @(links|nodes) ]] || continue
    # shellcheck disable=SC2086 # words of the command line
    run --separate-stderr "$@" "$bin/adaptive-train" $verb
    printf '%s: %s\n%s\n%s\n' "$verb" "$status" "$output" "$stderr"
    [[ $status == 0 || ($verb != plan* && $verb != jobs* && $status == 2) ]]
    [[ $(grep -c "^adaptive-train ${verb%% *}: .*profile store $named: " <<<"$stderr") == 1 ]]
    [[ $verb != jobs* || $output == 2 || $stderr == *'not taken in: '* ]]
  done
}

# rides_out WHY COMMAND...: with COMMAND before it a run ends as if nothing were, says so in one line, and is in its ledger.
rides_out() {
  local why=$1
  shift
  timeout --kill-after=10 120 "$@" "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" --train.steps=2 \
    >"$work/out" 2>"$work/err" 3>&-
  cat "$work/err"
  [[ $(grep -c 'warning: profile store' "$work/err") == 1 ]]
  grep "^adaptive-train: warning: profile store $named: $why.*recorded in $work/run/ledger.jsonl instead" "$work/err"
  [[ $(jq -s 'map(select(.end)) | length' "$work/run/ledger.jsonl") == 1 ]]
  shown_all_the_same "$@"
}

# arrives_once BEFORE...: the store has the jobs of BEFORE steps, the one of the ledger, and why that is from there.
arrives_once() {
  local again
  for again in 1 2; do
    [[ $(jobs -o Steps) == "$(printf '%s\n' "$@" 2)" ]]
  done
  jobs -o Reason | tail -1 | grep "^not stored as it ran: profile store $named: "
  [[ -z $(ls "$work/state/adaptive-train/ledgers") ]]
}

@test "training rides out a store that is locked" {
  make_store
  lock_store "$named"
  rides_out 'another process has locked the store' env
  unlock_store
  arrives_once 1
}

@test "training rides out a store that is read-only" {
  make_store
  rides_out 'the file is not readable and writable to you' unshare -m bash -c \
    "mount --bind $named $named && mount -o remount,ro,bind $named && exec \"\$@\"" _
  arrives_once 1
}

@test "training rides out a store on a full disk" {
  make_store
  rides_out 'the disk is full' unshare -m bash -c "mount -t tmpfs -o size=16k none $work/named && exec \"\$@\"" _
  arrives_once 1
}

@test "training rides out a store that is corrupt" {
  make_store
  printf '%5000s' 'dear diary' >"$named"
  rides_out 'the file is corrupt' env
  rm "$named"
  arrives_once
}

@test "training rides out a store with a newer schema" {
  make_store
  version=$(sqlite3 "$named" 'PRAGMA user_version')
  sqlite3 "$named" 'PRAGMA user_version = 9999'
  rides_out 'its schema has version 9999' env
  sqlite3 "$named" "PRAGMA user_version = $version"
  arrives_once 1
}

@test "training rides out a store on a network file system" {
  make_store
  export NETWORK_FOLDER=$work/named
  rides_out "$named lies on a network file system (nfs)" env LD_PRELOAD="$fakes/libnetwork_folder.so"
  arrives_once 1
}

@test "what a site sets is the default of run and plan; an error in it ends them in one line" {
  export ADAPTIVE_TRAIN_SITE_CONFIG=$work/site.toml
  printf 'store = "file:%s/site.db"\n[launch]\nsilence_seconds = 9.5\n' "$work" >"$ADAPTIVE_TRAIN_SITE_CONFIG"
  run_here --train.steps=1
  grep '^silence_seconds = 9.5$' "$work/run/config.resolved.toml"
  [[ $(jobs -o Steps) == 1 && -e $work/site.db && ! -e $default ]]
  printf '[launch]\ninterfaces = "lo"\n' >"$ADAPTIVE_TRAIN_SITE_CONFIG"
  for verb in "run $work/config.toml" "plan $work/config.toml" jobs links; do
    # shellcheck disable=SC2086 # words of the command line
    run -2 --separate-stderr "$bin/adaptive-train" $verb
    [[ $stderr == *"site.toml: line 2: unknown key launch.interfaces; the nearest is launch.interface" ]]
  done
}

@test "a store that is named refuses before anything starts" {
  run -6 run_here --store "file:/proc/x.db"
  [[ ! -e $work/run ]]
  run -6 "$bin/adaptive-train" plan "$work/config.toml" --store file:/proc/x.db
}

@test "a store that is named and late holds no run up" {
  make_store
  lock_store "$named"
  run_here --train.steps=2 --store "file:$named" 2>"$work/err"
  unlock_store
  grep 'adaptive-train: warning: .*another process has locked the store' "$work/err"
  grep 'no answer within 50 ms' "$work/err"
  arrives_once 1
}

@test "ADAPTIVE_TRAIN_STORE names the store, and refuses nothing" {
  export ADAPTIVE_TRAIN_STORE=file:$work/named.db
  run_here --train.steps=1
  [[ $(jobs -o State) == COMPLETED && ! -e $default ]]
  [[ -z $("$bin/adaptive-train" jobs -a -n --store "file:$default") ]]
  export ADAPTIVE_TRAIN_STORE=file:/proc/x.db
  run_here --train.steps=2 2>"$work/err"
  [[ $(grep -c 'adaptive-train: warning: profile store' "$work/err") == 1 ]]
  "$bin/adaptive-train" plan "$work/config.toml" >/dev/null 2>"$work/err"
  grep '^adaptive-train plan: warning: profile store /proc/x.db' "$work/err"
  ADAPTIVE_TRAIN_STORE=$work/named.db jobs 2>&1 | grep "^adaptive-train jobs: warning: ADAPTIVE_TRAIN_STORE: .* is not a store"
  export ADAPTIVE_TRAIN_STORE=file:$work/named.db
  [[ $(jobs -o Steps 2>/dev/null) == 1$'\n'2 ]]
}

@test "what ends a run before its folder is there is told by jobs; no empty folder is left" {
  cd "$work"
  run -4 "$bin/adaptive-train" run config.toml --data.train="$work/nowhere.txt"
  [[ $(jobs -o State,ExitCode,Reason) == "FAILED|4:0|data.train: $work/nowhere.txt: "* ]]
  run -3 "$bin/adaptive-train" run config.toml --model.hidden=8192 --model.heads=64 --model.layers=96
  [[ $(jobs -o Reason | tail -1) != "" ]]
  [[ -z $(ls runs) ]]
  "$bin/adaptive-train" jobs -a --json | jq -e '.jobs[0].reason | startswith("data.train")'
}

# stuck_run FILE: ranks train, and soon no write to FILE ends; their layers are measured meanwhile.
stuck_run() {
  cp "$fakes/libstuck_disk.so" "$work/"
  LD_PRELOAD=$work/libstuck_disk.so "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" \
    --train.steps=1000000 --profile.warmup_steps=500 >"$work/out" 2>"$work/err" 3>&- &
  launcher=$!
  wait_until 60 steps_done 5
  echo "$1" >"$work/STUCK_DISK"
  wait_until 60 steps_done 520
}
stored() { sqlite3 "$default" "SELECT count(*) FROM $1"; }
longer_than_a_rank_goes_without_its_launcher() { sleep 9; }

@test "a store that hangs from the start holds up no first step" {
  cp "$fakes/libstuck_disk.so" "$work/"
  echo /profiles.db >"$work/STUCK_DISK"
  LD_PRELOAD=$work/libstuck_disk.so "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" \
    --train.steps=1000000 >"$work/out" 2>"$work/err" 3>&- &
  launcher=$!
  wait_until 60 steps_done 1
  rm "$work/STUCK_DISK"
  kill -INT "$launcher"
  ends_with 130
  grep "^adaptive-train: profile store $default: no answer within 100 ms; going on without what it holds" "$work/err"
  [[ $(jobs -o State) == CANCELLED ]]
}

@test "a store that does not answer holds up nobody; what it lacks comes into it by the ledger" {
  stuck_run /profiles.db
  longer_than_a_rank_goes_without_its_launcher
  kill -INT "$launcher"
  ends_with 130
  grep "^adaptive-train: warning: profile store $default: no answer for 10 s; this run is recorded in $work/run/ledger.jsonl" "$work/err"
  rm "$work/STUCK_DISK"
  [[ $(stored layer_profiles) == 0 && $(jobs -o State) == CANCELLED ]]
  [[ $(stored layer_profiles) -gt 0 && $(stored plans) == 1 && $(stored launches) == 1 && $(stored summaries) == 1 ]]
}

@test "a slow store has all in the end" {
  stuck_run /profiles.db
  rm "$work/STUCK_DISK"
  kill -INT "$launcher"
  ends_with 130
  [[ ! -e $work/run/ledger.jsonl && $(stored layer_profiles) -gt 0 && $(jobs -o State) == CANCELLED ]]
}

@test "a file of the run folder on a disk that does not answer holds up nobody" {
  stuck_run /run/profile.json
  longer_than_a_rank_goes_without_its_launcher
  rm "$work/STUCK_DISK"
  kill -INT "$launcher"
  ends_with 130
  jq -e '.layers | length > 0' "$work/run/profile.json"
}
