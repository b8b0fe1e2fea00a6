#!/usr/bin/env bats
# Whatever happens to the probe or its snapshot, the job runs, no node drains, and slurmd's log says
# what happened.

load box
load plugin_box

setup_file() { plugin_prepare && plugin_box_up --nodes 2; }
teardown_file() { box down --purge; }

setup() { rm -f "$BOX_HOME"/out; }

teardown() {
  plugstack "optional $OUR_PLUGIN"
  local node
  for node in n1 n2; do
    box_root "$node" sh -c 'umount /run/adaptive-train 2>/dev/null; rm -rf /run/adaptive-train'
  done
  wait_until 60 all_idle
}

# run_job: a job on n1 with the option on, which prints its snapshot or `none`.
run_job() {
  # shellcheck disable=SC2016 # for the job
  local task='cat "/run/adaptive-train/$SLURM_JOB_ID/node.json" 2>/dev/null || echo none'
  run_as_user srun -w n1 --adaptive-train /bin/sh -c "$task"
}

# assert_survived SNAPSHOT SAYS: the job ran and had this snapshot, and its node is fine. The log
# has one line about it that contains SAYS, or no line at all if SAYS is empty.
assert_survived() {
  local job ours
  [ "$status" -eq 0 ] || { echo "srun: exit $status: $output" && false; }
  [ "$output" = "$1" ] || { echo "snapshot: $output" && false; }
  job=$(last_job)
  wait_until 60 all_idle
  ours=$(our_lines n1 | grep "^adaptive-train: job $job: " || true)
  if [[ $2 ]]; then
    [[ $(wc -l <<<"$ours") -eq 1 && $ours == *"$2"* ]] || { echo "log: $ours" && false; }
  else
    [ -z "$ours" ] || { echo "log: $ours" && false; }
  fi
}

# With `required` a hook that failed would drain the node; with `optional` Slurm would overlook it.
@test "a probe that crashes, hangs, babbles, floods or is missing costs its snapshot, never the job" {
  local fake snapshot says case
  local -a cases
  mapfile -t cases <<'FAKES'
two_documents|{"fake":"complete"}|
crash|none|was ended by signal 11 (Segmentation fault); the job runs without a snapshot of this node
crash_after_cpu_part|{"fake":"cpu part"}|was ended by signal 11 (Segmentation fault); kept the part that it had told
hang|none|did not finish within 0.7 s; the job runs without a snapshot of this node
hang_after_cpu_part|{"fake":"cpu part"}|did not finish within 0.7 s; kept the part that it had told
hang_with_grandchild|none|did not finish within 0.7 s
leave_grandchild|{"fake":"complete"}|
leave_detached|{"fake":"complete"}|
garbage|none|printed no JSON document
silent|none|printed no JSON document, but 0 bytes
flood|none|printed more than 1048576 bytes
flood_of_complaints|{"fake":"complete"}|
complain|none|ended with status 3: hwloc ?[31mbroke
missing|none|did not start: execve: No such file or directory
no_interpreter|none|did not start: execve: No such file or directory
.|none|did not start: execve: Permission denied
FAKES
  for case in "${cases[@]}"; do
    IFS='|' read -r fake snapshot says <<<"$case"
    echo "$fake"
    plugstack "required $OUR_PLUGIN probe=$BOX_PREFIX/probes/$fake deadline=0.7"
    run_job
    assert_survived "$snapshot" "$says"
  done
  run box_root n1 ps -eo args
  [[ $output != *"sleep 1000"* ]]
}

@test "a probe that hangs holds the job for its deadline only" {
  plugstack "required $OUR_PLUGIN probe=$BOX_PREFIX/probes/hang deadline=60"
  local begin=$SECONDS
  box_on ctl srun -w n1 --adaptive-train true 3>&- &
  wait_until 60 box_root n1 pgrep -f "sleep 1000"
  # The other node's prolog is another process and has its own settings.
  plugstack "required $OUR_PLUGIN deadline=0.2 probe=$BOX_PREFIX/probes/hang"
  run_as_user srun -w n2 --adaptive-train true
  [ "$status" -eq 0 ]
  ((SECONDS - begin < 30))
  box_root n1 pkill -f "sleep 1000"
  wait $!
  wait_until 60 all_idle
}

@test "a prolog that is killed takes its probe along" {
  plugstack "required $OUR_PLUGIN probe=$BOX_PREFIX/probes/hang deadline=60"
  box_on ctl srun -w n1 --adaptive-train true 3>&- &
  wait_until 60 box_root n1 pgrep -f "sleep 1000"
  box_root n1 pkill -KILL -f "spank prolog"
  wait_until 60 no_probe
  wait $! || true
  # That Slurm drains the node for a killed prolog is its own rule.
  box_root ctl scontrol update nodename=n1 state=resume
}
no_probe() { ! box_root n1 pgrep -f "sleep 1000" >/dev/null; }

# in_place COMMAND: makes /run/adaptive-train on n1 into something else.
in_place() {
  box_root n1 sh -c "umount /run/adaptive-train 2>/dev/null; rm -rf /run/adaptive-train; $1"
}

@test "a place that cannot be written to, or is not ours, costs the snapshot, never the job" {
  local way says case
  local -a cases
  plugstack "required $OUR_PLUGIN"
  mapfile -t cases <<'WAYS'
touch /run/adaptive-train|/run/adaptive-train: Not a directory; the job runs without a snapshot
ln -s /tmp /run/adaptive-train|/run/adaptive-train: Not a directory; the job runs without a snapshot
ln -s /no/such/place /run/adaptive-train|/run/adaptive-train: Not a directory; the job runs without a snapshot
install -d -o 20001 /run/adaptive-train|/run/adaptive-train: must belong to root, and nobody else may write there
install -d -m 1777 /run/adaptive-train|/run/adaptive-train: must belong to root, and nobody else may write there
mkdir /run/adaptive-train && mount -t tmpfs -o ro,mode=755 tmpfs /run/adaptive-train|Read-only file system
mkdir /run/adaptive-train && mount -t tmpfs -o nr_inodes=2,mode=755 tmpfs /run/adaptive-train|No space left on device
mkdir /run/adaptive-train && mount -t tmpfs -o nr_inodes=1,mode=755 tmpfs /run/adaptive-train|No space left on device
mkdir /run/adaptive-train && mount -t tmpfs -o size=4k,mode=755 tmpfs /run/adaptive-train && echo full >/run/adaptive-train/x|No space left on device
WAYS
  for case in "${cases[@]}"; do
    IFS='|' read -r way says <<<"$case"
    echo "$way"
    in_place "$way"
    run_job
    assert_survived none "$says"
  done
  [ -z "$(box_root n1 find /tmp -name node.json)" ]
}

@test "a snapshot that cannot be removed is said in the log, and drains nobody" {
  plugstack "required $OUR_PLUGIN"
  box_on ctl sbatch --output=out -w n1 --adaptive-train \
    --wrap 'while [ ! -e go ]; do sleep 0.1; done'
  local job
  job=$(last_job)
  wait_until 60 box_root n1 test -e "/run/adaptive-train/$job/node.json"
  box_root n1 touch "/run/adaptive-train/$job/not-ours"
  touch "$BOX_HOME/go"
  wait_until 60 all_idle
  [ "$(our_lines n1 | grep "^adaptive-train: job $job: ")" = \
    "adaptive-train: job $job: /run/adaptive-train/$job: Directory not empty" ]
}

@test "text that never saw sbatch's check does not hurt the prolog" {
  local text
  # shellcheck disable=SC2016 # nothing may expand these
  local -a hostile=(
    "$(head -c 60000 /dev/zero | tr '\0' a)" 'reuse="auto"' $'reuse=auto\nlog=debug' $'\e[31m'
    '%s%n%s' ';$(touch /tmp/pwned)' '`touch /tmp/pwned`' '../../../tmp'
  )
  plugstack "required $OUR_PLUGIN" "required $FAULTY_PLUGIN ctl:init_post_opt:local:smuggle"
  for text in "${hostile[@]}"; do
    # shellcheck disable=SC2016
    run_as_user env SMUGGLED="$text" srun -w n1 /bin/sh -c 'ls "/run/adaptive-train/$SLURM_JOB_ID"'
    assert_survived node.json "; going by the defaults"
    [ "$(our_lines n1 | tail -n 1 | wc -c)" -lt 300 ]
  done
  [ -z "$(box_root n1 find / -xdev -name pwned 2>/dev/null)" ]
}
