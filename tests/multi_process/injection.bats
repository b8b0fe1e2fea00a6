# Faults that a person asks for: each happens once, is told, and the run goes on after it.
bats_require_minimum_version 1.5.0
load run

setup() { make_run_folder; }
teardown() { kill -9 "$launcher" 2>/dev/null || true; }

keys=(--train.steps=60 --checkpoint.every=10 "${same_layout[@]}" --train.global_batch=12 --recovery.allow_injection=true)
inject() { train "${keys[@]}" --inject "$@" >"$work/out" 2>&1 || { cat "$work/out"; return 1; }; }
# failed_as KIND: all failures of the run are of this kind and nobody's.
failed_as() { [[ $(sqlite3 "$work/profiles.db" "SELECT DISTINCT kind || '|' || blamed FROM failures") == "$1|" ]]; }

# no_history: the next plan says nothing of failures.
no_history() { ! "$bin/adaptive-train" plan "$work/config.toml" --store "$store" | grep 'its time counts'; }

@test "ranks killed and frozen, and a node that is cut: each once, and the run goes on with the same bits" {
  train "${keys[@]}" --run-dir "$work/whole" >/dev/null
  inject "kill rank 3 at step 15; freeze rank 1 at step 34; cut node $(uname -n) at step 52"
  cat "$work/out"
  grep -x 'injected: kill rank 3 at step 15 (rank 3)' "$work/out"
  grep -x 'injected: freeze rank 1 at step 34 (rank 1)' "$work/out"
  (($(grep -c '^injected: cut node' "$work/out") == 1))
  (($(grep -c '^going on' "$work/out") == 3))
  diff <(losses "$work/whole") <(losses "$work/run")
  failed_as injected
  no_history
  jq -e '[.injections[].done] == [true, true, true]' "$work/run/injections.json"
}

@test "a slow rank: told once, and no failure" {
  inject "slow rank 2 to 10 % from 20 to 40" --recovery.attempts=0
  grep -x 'injected: slow rank 2 to 10 % from step 20 to 40 (rank 2)' "$work/out"
  [[ $(jq .step "$work/run/metrics.jsonl") == "$(seq 60)" ]]
  (($(grep -c '^injected' "$work/out") == 1))
  [[ $(sqlite3 "$work/profiles.db" 'SELECT count(*) FROM failures') == 0 ]]
}

@test "a save that fails: told, training goes on, the next one succeeds" {
  # The first save is due at step 10: a later one might wait for it until the last step.
  inject "fail save at step 5" --train.steps=200
  grep -x 'injected: fail save at step 5 (rank 0)' "$work/out"
  grep -q 'checkpoint not saved: .*fails as asked for (run --inject)' "$work/out"
  grep -q '^saved step 200' "$work/out"
  [[ $(sqlite3 "$work/profiles.db" 'SELECT count(*) FROM failures') == 0 ]]
}

@test "a last save that fails ends the run; the same command in its folder goes on, without the fault" {
  train "${keys[@]}" >/dev/null
  # The last save is the only one: a periodic one that is due while another is written waits, and would fail in its place.
  last=("${keys[@]}" --train.steps=65 --checkpoint.every=0 --inject "fail save at step 61")
  run -5 train "${last[@]}"
  failed_as injected
  run -0 train "${last[@]}"
  grep -q '^resumed from the checkpoint of step 60' <<<"$output"
  ! grep '^injected' <<<"$output"
}

@test "refused before anything starts: without a permit, what is no fault, and ranks, nodes and steps that are not there" {
  refused() {
    run -2 train "${keys[@]}" "${@:2}"
    grep -Eq "^adaptive-train: --inject: $1" <<<"$output"
  }
  refused 'not permitted: set recovery.allow_injection = true in the configuration$' --inject "kill rank 0 at step 1" --recovery.allow_injection=false
  refused "fault 1: 'rnk' instead of rank; allowed are: kill rank R at step S; " --inject "kill rnk 3 at step 20"
  refused 'kill rank 0 at step 61: the last step is 60 \(train.steps\)$' --inject "kill rank 0 at step 61"
  [[ ! -e $work/run ]]
  refused 'kill rank 4 at step 1: the plan has ranks 0 to 3$' --inject "kill rank 4 at step 1"
  refused "cut node nowhere at step 1: no rank runs there; the plan's nodes are $(uname -n)$" --inject "cut node nowhere at step 1"
}

@test "a host that forbids it: refused" {
  mkdir -p /etc/adaptive-train
  run -2 unshare --mount bash -c '
    mount -t tmpfs tmpfs /etc/adaptive-train && touch /etc/adaptive-train/forbid-injection
    exec "$2/adaptive-train" run "$1/config.toml" --recovery.allow_injection=true --inject "kill rank 0 at step 1"' _ "$work" "$bin"
  rmdir /etc/adaptive-train 2>/dev/null || true
  grep -q '^adaptive-train: --inject: forbidden on this host by /etc/adaptive-train/forbid-injection' <<<"$output"
}
