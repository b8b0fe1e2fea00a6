# Jobs beside a store in trouble: training is never touched, and what was not stored comes into the next store that opens, once.
bats_require_minimum_version 1.5.0
export ADAPTIVE_TRAIN_BOX=/dev/shm/adaptive-train-box-of-stores # others may use theirs
load ../slurm/box
load ../slurm/job

setup_file() { box_up_once --nodes 2; }
teardown_file() { box_down; }
setup() {
  make_job_home
  named=$home/named.db
  rm -rf "$home"/named.db* "$home"/{shared,full,.config}
  # shellcheck disable=SC2016 # the job's own words
  sed -i 's/^exec /. .\/env.sh\n&/' "$home/job.sh"
  environment
}
teardown() {
  release
  if [[ -e $home/full ]]; then on_all_nodes "umount -q $home/full || true"; fi
  if [[ ${service-} ]]; then
    kill -CONT "$service" 2>/dev/null || true
    kill "$service" 2>/dev/null || true
  fi
}

# environment VARIABLE=VALUE...: of the next job, and of show.
environment() {
  local one
  for one in "$@"; do printf 'export %s\n' "$one"; done >"$home/env.sh"
  chown --reference="$home" "$home/env.sh"
}
# show VERB...: adaptive-train in the job's environment.
show() { box_on ctl bash -c '. ./env.sh; exec adaptive-train "$@"' bash "$@"; }

# on_all_nodes COMMAND: as root. Each has its own view of what is mounted.
on_all_nodes() {
  local node
  for node in ctl n1 n2; do box_root "$node" bash -c "$1"; done
}

# trains_beside WHY: a job of two steps ends well, and says so in one line; so do the other verbs, of which jobs shows it.
trains_beside() {
  local job verb
  job=$(submit -N2 -- --train.steps=2)
  finished_with "$job" 0:0
  [[ $(grep -c 'warning: profile store' "$home/slurm-$job.out") == 1 ]]
  grep "^adaptive-train: warning: profile store .*$1.*recorded in .*ledger.jsonl" "$home/slurm-$job.out"
  for verb in 'plan config.toml' 'jobs -a -n -P -o Steps' links nodes; do
    # shellcheck disable=SC2086 # words of the command line
    run --separate-stderr show $verb
    printf '%s: %s\n%s\n%s\n' "$verb" "$status" "$output" "$stderr"
    [[ $status == 0 || ($verb != plan* && $verb != jobs* && $status == 2) ]]
    [[ $stderr == *"profile store "* ]]
  done
}
# knows STEPS...: the store has these jobs, however often one looks.
knows() {
  local again
  for again in 1 2; do
    [[ $(show jobs -a -n -P -o Steps) == "$(printf '%s\n' "$@")" ]]
  done
  : "$again"
}

# make_store: $named has a job of one step.
make_store() {
  environment "ADAPTIVE_TRAIN_STORE=file:$named"
  finished_with "$(submit -N2 -- --train.steps=1)" 0:0
  knows 1
}

# hold, release: another process has locked $named.
hold() {
  mkfifo "$BATS_TEST_TMPDIR/hold"
  sqlite3 "$named" <"$BATS_TEST_TMPDIR/hold" >"$BATS_TEST_TMPDIR/held" 3>&- &
  exec {holding}>"$BATS_TEST_TMPDIR/hold"
  printf 'BEGIN IMMEDIATE;\nSELECT 1;\n' >&"$holding"
  wait_until 10 grep -q 1 "$BATS_TEST_TMPDIR/held"
}
release() {
  if [[ ${holding-} ]]; then exec {holding}>&-; fi
  holding=
}

# serve: adaptive-traind on ctl, for whom jobs ask by the network.
serve() {
  mkdir -p "$home/shared" "$home/.config/adaptive-train"
  echo 'store_uid = 0' >"$home/.config/adaptive-train/adaptive-train.toml"
  chown -R --reference="$home" "$home/.config"
  environment ADAPTIVE_TRAIN_STORE=tcp:ctl:6822
  local program
  program=$(box_value BOX_PREFIX)/sbin/adaptive-traind # a node has a /tmp of its own, where the build may lie
  box_root ctl "$program" --database "$home/shared/profiles.db" --socket "$home/shared/socket" \
    --tcp ctl:6822 2>"$BATS_TEST_TMPDIR/log" 3>&- &
  service=$!
  wait_until 60 grep -q ' store_uid = 0' "$BATS_TEST_TMPDIR/log"
  service=$(pgrep -f "^$program --database $home/shared")
}

@test "homes on a network file system" {
  mkdir "$home/fake"
  cp "$fakes/libnetwork_folder.so" "$home/fake/"
  environment "LD_PRELOAD=$home/fake/libnetwork_folder.so" "NETWORK_FOLDER=$home"
  trains_beside "lies on a network file system (nfs)"
  environment "ADAPTIVE_TRAIN_STORE=file:$named"
  knows 2
}

@test "a folder for the store that is not there, and cannot be" {
  environment "ADAPTIVE_TRAIN_STORE=file:/proc/nowhere/profiles.db"
  trains_beside /proc/nowhere
  environment "ADAPTIVE_TRAIN_STORE=file:$named"
  knows 2
}

@test "a store that another process has locked" {
  make_store
  hold
  trains_beside 'another process has locked the store'
  release
  knows 1 2
}

@test "a store that is read-only" {
  make_store
  chmod 400 "$named"
  trains_beside 'the file is not readable and writable to you'
  chmod 600 "$named"
  knows 1 2
}

@test "a store on a full disk" {
  make_store
  mkdir "$home/full"
  environment "ADAPTIVE_TRAIN_STORE=file:$home/full/named.db"
  on_all_nodes "mount -t tmpfs -o size=4m,mode=777 full $home/full && cp -p $home/named.db $home/full && (cat /dev/zero >$home/full/rest || true)"
  trains_beside 'the disk is full'
  on_all_nodes "umount $home/full"
  environment "ADAPTIVE_TRAIN_STORE=file:$named"
  knows 1 2
}

@test "a store that is corrupt, and one of a newer version" {
  make_store
  sqlite3 "$named" 'PRAGMA user_version = 9999'
  trains_beside 'its schema has version 9999'
  printf '%5000s' 'dear diary' >"$named"
  rm -f "$named"-*
  trains_beside 'the file is corrupt'
  rm "$named"
  knows 2 2
}

@test "a service that is not there" {
  serve
  kill -9 "$service"
  trains_beside 'cannot connect: Connection refused'
  serve
  knows 2
}

@test "a service that hangs" {
  serve
  kill -STOP "$service"
  trains_beside 'no answer in time'
  grep -h "no answer within 100 ms; going on without what it holds" "$home"/slurm-*.out
  kill -CONT "$service"
  knows 2
}

@test "a service that is killed while a job trains" {
  serve
  local job
  job=$(submit -N2 -- --train.steps=300)
  wait_for_steps "$job" 5
  kill -9 "$service"
  finished_with "$job" 0:0
  [[ $(losses "$job" | wc -l) == 300 ]]
  grep "^adaptive-train: warning: profile store tcp:ctl:6822: .*recorded in .*ledger.jsonl" "$home/slurm-$job.out"
  serve
  knows 300
}
