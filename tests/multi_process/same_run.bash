# What compares a run that was stopped with one that was not.
# shellcheck shell=bash disable=SC2154 # run.bash and each test's `settings` set what is not set here

# whole: the run that is never stopped, in $work/whole.
whole() { train "${settings[@]}" --run-dir "$work/whole"; }

# same_run FOLDER: its losses, step by step, and its last state are those of the whole run.
same_run() {
  diff <(losses "$work/whole") <(losses "$1")
  diff -r --exclude=manifest.json --exclude=DONE "$work/whole/checkpoints/step-00000020" "$1/checkpoints/step-00000020"
}

# stop_until_done SIGNAL TARGET: starts the run repeatedly. Each time the signal to the launcher or
# to a rank ends it some steps later, until it completes. Fails after 30 rounds. A run that
# completes before it was ever stopped, as on a busy machine, proves nothing and is started again.
stop_until_done() {
  local round before status stopped=0
  for ((round = 0; round < 30; round++)); do
    before=$(cat "$work/run/metrics.jsonl" 2>/dev/null | wc -l)
    train_in_background "${settings[@]}" --recovery.attempts=0
    while kill -0 "$launcher" 2>/dev/null && ! steps_done $((before + 4 + round % 5)); do sleep 0.01; done
    if [[ $2 == launcher ]]; then
      kill "-$1" "$launcher" 2>/dev/null || true
    else
      kill "-$1" "$(rank_pids 2>/dev/null | tail -n 1)" 2>/dev/null || true
    fi
    status=0
    wait "$launcher" || status=$?
    if ((status != 0)); then
      ((++stopped))
    elif ((stopped > 0)); then
      echo "done after $stopped stops"
      return
    else
      rm -r "$work/run"
    fi
  done
  return 1
}
