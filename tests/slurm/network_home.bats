#!/usr/bin/env bats
# shellcheck disable=SC2154 # job.bash sets home
# Homes on a network file system, as they are on most clusters: each node sees them by a client of its own, without locks, with
# attributes that are some seconds old (tests/fakes/network_home.cc). The store of a user's own is refused there, and ledgers take
# its place.
bats_require_minimum_version 1.5.0
load box
load job

setup_file() { box_up_once --nodes 2; }
teardown_file() { box_down; }
setup() {
  make_job_home
  server=${home%/*}/.server program=${home%/*}/network_home
  rm -rf "${home%/*}/local" && install -d -m 777 "${home%/*}/local"
  mkdir -p "$server"
  cp --remove-destination "$ADAPTIVE_TRAIN_BUILD/bin/network_home" "$program"
  on_all_nodes "mount --bind $home $server && $program $server $home"
}
teardown() {
  local node
  for node in ctl n1 n2; do
    box_root "$node" bash -c "umount -q -l $home; for i in {1..100}; do ! pgrep -x network_home || sleep .1; done; umount -q $server" || true
  done
}

# on_all_nodes COMMAND: as root. Each node has its own view of what is mounted.
on_all_nodes() {
  local node
  for node in ctl n1 n2; do box_root "$node" bash -c "$1"; done
}

# warns_of_its_home JOB: in one line each, and of nothing else.
warns_of_its_home() {
  grep "^adaptive-train: warning: profile store $home/.* lies on a network file system (fuse.nfs4).* recorded in .*ledger.jsonl" \
    "$home/slurm-$1.out"
  local what
  for what in 'run folder' checkpoint.dir; do
    grep "^warning: $what: .*/runs/.* cannot be locked (No locks available): see to it that no other run uses it" "$home/slurm-$1.out"
  done
  [[ $(grep -c 'warning: ' "$home/slurm-$1.out") == 3 ]]
}

@test "a job trains, goes on from another node, and is in the next store once" {
  local whole first second again verb local=${home%/*}/local
  # The learning rate must not depend on how many steps are to come.
  sed -i 's/^warmup_steps = 2$/&\nschedule = "constant"/' "$home/config.toml"
  whole=$(submit -N2)
  finished_with "$whole" 0:0
  warns_of_its_home "$whole"
  first=$(submit -N1 -w n1 -- --run-dir=runs/on --train.steps=10)
  finished_with "$first" 0:0
  # What n2 remembers of the folder is from before.
  box_on n2 ls runs/on/checkpoints
  second=$(submit -N1 -w n2 -- --run-dir=runs/on --train.steps=20)
  finished_with "$second" 0:0
  grep '^resumed from the checkpoint of step 10$' "$home/slurm-$second.out"
  paste <(losses "$whole") <(jq -r .loss "$home/runs/on/metrics.jsonl") |
    awk '{ d = $1 / $2 - 1; if (d * d > 1e-8) wrong = 1 } END { exit wrong || NR != 20 }'
  for again in 1 2; do
    [[ $(box_on ctl adaptive-train jobs -a -n -P -o Steps 2>/dev/null | xargs) == "20 10 20" ]]
  done
  : "$again"
  for verb in 'plan config.toml' links nodes doctor; do
    # shellcheck disable=SC2086 # words of the command line
    run --separate-stderr box_on n1 adaptive-train $verb
    printf '%s: %s\n%s\n%s\n' "$verb" "$status" "$output" "$stderr"
    # Without measurements there are no links to show; doctor finds the home in want of a store.
    [[ $status == 0 || ($verb == @(links|nodes) && $status == 2) || ($verb == doctor && $status == 4) ]]
    [[ $output$stderr == *"lies on a network file system (fuse.nfs4)"* || $output$stderr == *"would lie on a network file system (fuse.nfs4)"* ]]
  done
  for again in 1 2; do
    [[ $(box_on ctl env "ADAPTIVE_TRAIN_STORE=file:$local/profiles.db" adaptive-train jobs -a -n -P -o Steps | xargs) == "20 10 20" ]]
  done
}

@test "names are remembered, and files that another client removes are stale: a run goes on" {
  local job
  rm -f "$home/new"
  run -1 box_on n1 cat "$home/new"
  echo there >"$home/new"
  run -1 box_on n1 cat "$home/new"
  wait_until 10 box_on n1 cat "$home/new"
  job=$(submit -N2 -- --train.steps=4000)
  wait_for_steps "$job" 50
  rm "$home/runs/$job"/{ledger.jsonl,metrics.jsonl,tensorboard/*}
  finished_with "$job" 0:0
  grep "^adaptive-train: warning: ledger $home/runs/$job/ledger.jsonl: Stale file handle; this run is not recorded" "$home/slurm-$job.out"
  [[ $(jq -s '.[-1].step' "$home/runs/$job/metrics.jsonl") == 4000 ]]
}

@test "a rank that is killed is replaced from memory" {
  local job
  job=$(submit -N2 -- --train.steps=4000)
  wait_for_steps "$job" 50
  box_root n2 pkill -KILL -f "$worker_command"
  finished_with "$job" 0:0
  grep '^resumed from the memory of step' "$home/slurm-$job.out"
  [[ $(losses "$job" | wc -l) == 4000 ]]
}
