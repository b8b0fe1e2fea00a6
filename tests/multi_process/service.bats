# Runs that record at adaptive-traind: it may end or hang at any time, and training goes on.
bats_require_minimum_version 1.5.0
source "$BATS_TEST_DIRNAME/run.bash"

setup() {
  make_run_folder
  export XDG_STATE_HOME=$work/state
  store=unix:$work/socket
  start_service
}
teardown() { kill -9 "$service" || true; }

start_service() {
  "$bin/adaptive-traind" --database "$work/shared.db" --socket "$work/socket" 2>"$work/service.log" 3>&- &
  service=$!
  wait_until 60 grep -q ' serves ' "$work/service.log"
}
jobs() { "$bin/adaptive-train" jobs -a -n -P --store "$store" "$@"; }
stored() { sqlite3 "$work/shared.db" "SELECT count(*) FROM $1"; }

# begin_run: ranks train. A launch gives the service a tenth of a second, which a busy machine may miss: then it is begun again.
begin_run() {
  local attempt
  for attempt in 1 2 3 4 5; do
    train_in_background --train.steps=1000000 --profile.warmup_steps=900000
    wait_until 60 begun_or_ended
    ! steps_done 20 || return 0
    wait "$launcher" || true
    grep 'no answer in time' "$work/err"
  done
  return 1
}
begun_or_ended() { steps_done 20 || ! kill -0 "$launcher" 2>/dev/null; }

# all_is_stored_once: what went into the ledger, too.
all_is_stored_once() {
  grep "^adaptive-train: warning: profile store unix:$work/socket: .*recorded in $work/run/ledger.jsonl" "$work/err"
  [[ $(jobs -o State,ExitCode) == "CANCELLED|130:0" ]]
  [[ $(jobs -o State,ExitCode) == "CANCELLED|130:0" ]]
  [[ $(stored jobs) == 1 && $(stored plans) == 1 && $(stored launches) == 1 && $(stored summaries) == 1 ]]
  jobs -o Reason | grep "not stored as it ran: profile store unix:$work/socket: "
  [[ -z $(ls "$XDG_STATE_HOME/adaptive-train/ledgers") ]]
}

@test "a service that is killed while ranks train is a warning; what it lacks comes into its store once" {
  begin_run
  kill -9 "$service"
  kill -INT "$launcher"
  ends_with 130
  start_service
  all_is_stored_once
}

@test "a service that hangs while ranks train holds up nobody" {
  begin_run
  kill -STOP "$service"
  wait_until 60 steps_done "$(($(wc -l <"$work/run/metrics.jsonl") + 50))"
  kill -INT "$launcher"
  ends_with 130
  kill -CONT "$service"
  all_is_stored_once
}

@test "a service that a setting names, and that hangs from the start, holds up no run" {
  export ADAPTIVE_TRAIN_SITE_CONFIG=$work/site.toml
  echo "store = \"$store\"" >"$ADAPTIVE_TRAIN_SITE_CONFIG"
  kill -STOP "$service"
  timeout --kill-after=10 120 "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" --train.steps=3 2>"$work/err" 3>&-
  grep "^adaptive-train: profile store unix:$work/socket: no answer within 100 ms; going on without what it holds" "$work/err"
  kill -CONT "$service"
  local again
  for again in 1 2; do
    [[ $(jobs -o State,Steps) == "COMPLETED|3" ]]
  done
  jobs -o Reason | grep "^not stored as it ran: profile store unix:$work/socket: no answer in time"
}

@test "a named service that hangs or is not there refuses before anything starts" {
  kill -STOP "$service"
  run -6 --separate-stderr train
  [[ $stderr == *"adaptive-train: profile store unix:$work/socket: no answer in time"* ]]
  kill -9 "$service"
  run -6 --separate-stderr train
  [[ $stderr == *"adaptive-train: profile store unix:$work/socket: cannot connect: Connection refused"* ]]
  [[ ! -e $work/run ]]
}
