# Slurm with accounting: of jobs that slurmctld has forgotten, slurmdbd's sacct says whose they were, where, and how they ended.
# shellcheck disable=SC2154 # job.bash sets home
load box
load job

setup_file() {
  # slurmctld forgets a job some seconds after its end.
  box_up_limited --nodes 2 --accounting --slurm 'MinJobAge=2;PreemptType=preempt/partition_prio;PreemptMode=CANCEL;PartitionName=low Nodes=ALL PriorityTier=1 MaxTime=INFINITE;PartitionName=high Nodes=ALL PriorityTier=9 PreemptMode=OFF MaxTime=INFINITE'
}
teardown_file() { box_down; }
setup() {
  make_job_home
  shared=$home/shared
  rm -rf "$shared" "$home/.config"
}
teardown() {
  box_root ctl scancel --user=ada || true
  # The service itself, too, where the box has started it.
  pgrep -f -- "--database $shared/profiles.db" | xargs -r kill
  [[ -z ${service-} ]] || wait "$service" || true
}

# forgotten JOB: slurmctld no longer knows it.
forgotten() {
  ! box_root ctl squeue --noheader --states=all --jobs="$1" >"$BATS_TEST_TMPDIR/squeue" 2>&1 &&
    grep -q 'Invalid job id' "$BATS_TEST_TMPDIR/squeue"
}
# accounted JOB FIELDS: what sacct says, of each of its runs.
accounted() { box_root ctl sacct --allocations --noheader --parsable2 --duplicates --jobs="$1" --format="$2"; }
# ended_as JOB STATE: so says adaptive-train jobs once only accounting can tell.
ended_as() {
  wait_until 90 forgotten "$1"
  [[ $(box_on ctl adaptive-train jobs -j "$1" -n -P -o State,Reason) == "$2|"*"Slurm says $2"* ]] ||
    { accounted "$1" State,Start,End && box_on ctl adaptive-train jobs -j "$1" -n -P -o State,Start,Reason; return 1; }
}

# prefer_service: ada's runs use a service, whether it answers or not.
prefer_service() {
  mkdir -m 755 "$shared"
  mkdir -p "$home/.config/adaptive-train"
  echo "store = \"unix:$shared/socket\"" >"$home/.config/adaptive-train/adaptive-train.toml"
  chown -R --reference="$home" "$home/.config"
}
# serve ARG...: on ctl. Nodes of the box share a kernel, and so its socket.
serve() {
  box on ctl "$(box_value BOX_PREFIX)/sbin/adaptive-traind" --database "$shared/profiles.db" --socket "$shared/socket" \
    "$@" 2>"$shared/log" 3>&- &
  service=$!
  wait_until 60 grep -q ' serves ' "$shared/log" || { cat "$shared/log"; return 1; }
}
in_store() { sqlite3 -readonly "$shared/profiles.db" "$1"; }
# takes_in JOB NODES ACCOUNT: the service is told of the job, and asks accounting where it was.
takes_in() {
  box_on ctl adaptive-train jobs 2>&1 | tee /dev/stderr | grep "ledger $home/runs/$1/ledger.jsonl: .* taken in"
  wait_until 30 seen_on "$2" || { cat "$shared/log"; accounted "$1" UID,State,NodeList,Account; return 1; }
  [[ $(in_store 'SELECT slurm_job_id, account FROM jobs') == "$1|$3" ]]
}
seen_on() {
  [[ $(in_store 'SELECT owner, group_concat(node) FROM (SELECT * FROM presence ORDER BY node) GROUP BY owner') == "$(stat -c %u "$home")|$1" ]]
}

# without_end NODE SBATCH-ARGUMENT...: a job of one core there that does not end by itself before its time is over; sets $job.
without_end() {
  job=$(submit -N1 -c1 --mem=300 -w "$@" -- --train.steps=1000000 --checkpoint.before_end_seconds=0)
  wait_for_steps "$job" 5
}
# preempt_on NODE
preempt_on() { box_on ctl sbatch --parsable -N1 -w "$1" -p high --exclusive --wrap 'sleep 1'; }

@test "a job whose records come when slurmctld has forgotten it: whose it was, where, and its account" {
  prefer_service
  job=$(submit -N2 -c1 --mem=300 --)
  wait_until 90 forgotten "$job"
  [[ $(accounted "$job" State) == COMPLETED ]]
  serve --coordinators physics:bob
  takes_in "$job" n1,n2 physics
  # So the account's coordinator sees it.
  [[ $(box on ctl --user=bob adaptive-train jobs -a -n -P -o JobID,User,Account,State --store "unix:$shared/socket") == "$job|ada|physics|COMPLETED" ]]
}

@test "a job that was requeued and cancelled before it ran again: where it ran" {
  prefer_service
  without_end n1
  box_root ctl scontrol requeue "$job"
  wait_until 60 requeued
  box_on ctl scancel "$job"
  wait_until 60 forgotten "$job"
  [[ $(accounted "$job" State,NodeList) == $'REQUEUED|n1\nCANCELLED by '*'|None assigned' ]]
  serve
  takes_in "$job" n1 physics
  ended_as "$job" REQUEUED
}
requeued() { [[ $(job_field "$job" JobState) == PENDING ]]; }

@test "over its time, preempted, cancelled, out of memory: each by its name" {
  without_end n2 --time=5
  timed=$job
  box_root ctl scontrol update JobId="$timed" EndTime=now+1
  without_end n1 -p low
  preempted=$job
  other=$(preempt_on n1)
  wait_until 60 job_over "$other"
  without_end n1
  cancelled=$job
  box_on ctl scancel "$cancelled"
  if limited; then
    # Its launcher does not say how it ends.
    without_end n1
    run_out_of_memory n1 '^adaptive-train run'
    ended_as "$job" OUT_OF_MEMORY
  fi
  ended_as "$preempted" PREEMPTED
  wait_until 60 forgotten "$cancelled"
  [[ $(box_on ctl adaptive-train jobs -j "$cancelled" -n -P -o State) == CANCELLED ]]
  ended_as "$timed" TIMEOUT
}

@test "a job whose number another had, before the cluster's state was lost: its own end" {
  box_on ctl srun -N1 -w n1 true
  box kill ctl
  rm -rf "${ADAPTIVE_TRAIN_BOX:?}/run/ctl/spool/slurmctld"
  box revive ctl
  without_end n1 -p low
  preempt_on n1
  wait_until 60 forgotten "$job"
  [[ $(accounted "$job" State) == $'COMPLETED\nPREEMPTED' ]]
  ended_as "$job" PREEMPTED
}
