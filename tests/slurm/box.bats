#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031 # every test is a subshell; what one sets is meant for it alone
# Tests of the box itself, with plain Slurm in it: starting, using, breaking and ending a cluster.

load box

setup_file() {
  export ADAPTIVE_TRAIN_BOX=/dev/shm/adaptive-train-box-test.$$
  if ((EUID != 0)); then echo "these tests need root" >&2 && return 1; fi
}

teardown_file() { box down --purge; }

# leftovers: what of the box under test is in the kernel's tables and in /proc, one thing a line.
# Its processes are known by its directory or tag in their command line, mounts or control groups.
leftovers() {
  local tag directory
  tag=$(box_tag)
  ip netns list | grep -F "$tag"
  grep -F -e "$tag" -e "$ADAPTIVE_TRAIN_BOX" /proc/self/mounts
  find /sys/fs/cgroup -type d -name "$tag" 2>/dev/null
  for directory in /proc/[0-9]*; do
    if cat "$directory"/{cmdline,mountinfo,cgroup} 2>/dev/null |
      grep -qaF -e "$tag" -e "$ADAPTIVE_TRAIN_BOX"; then
      echo "process ${directory#/proc/}: $(tr '\0' ' ' <"$directory/cmdline")"
    fi
  done
}

nothing_is_left() { [[ -z $(leftovers) ]]; }

assert_nothing_left() {
  nothing_is_left || { leftovers && false; }
}

box_tag() { echo "atbox-$(printf %s "$ADAPTIVE_TRAIN_BOX" | sha256sum | cut -c1-6)"; }

# Moments in the course of `up`.
has_network() { compgen -G "/run/netns/$(box_tag)-*" >/dev/null; }
has_munge() { [[ -S $ADAPTIVE_TRAIN_BOX/run/munge/munge.socket.2 ]]; }
has_first_node() { [[ -e $ADAPTIVE_TRAIN_BOX/run/n1.init ]]; }
has_directory() { [[ -d $ADAPTIVE_TRAIN_BOX/run ]]; }

# start_and_signal SIGNAL MOMENT...: box up in the background, sent SIGNAL when the command MOMENT
# succeeds; sets status.
start_and_signal() {
  local signal=$1 starter
  shift
  box down >/dev/null
  env --default-signal=INT "$box_program" up --no-install >"$BATS_TEST_TMPDIR/up.log" 2>&1 3>&- &
  starter=$!
  until "$@"; do kill -0 "$starter"; done
  kill -s "$signal" "$starter"
  status=0
  wait "$starter" || status=$?
}

@test "up boots idle nodes and down leaves nothing" {
  run box up --no-install
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -le 3 ]
  [[ $(leftovers) == *-n4* && $(leftovers) == *process* ]]
  [ "$(box_root ctl sinfo -h -N -o %T | grep -cx idle)" -eq 4 ]
  box down
  assert_nothing_left
  [ -d "$ADAPTIVE_TRAIN_BOX/log" ]
  run box down
  [ "$status" -eq 0 ]
}

@test "a second up is refused, also while the first is coming up" {
  box up --no-install --nodes 1 &
  wait_until 60 has_network
  run box up --no-install
  [ "$status" -eq 1 ]
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == *"in $ADAPTIVE_TRAIN_BOX"* ]]
  wait $!
  run box up --no-install
  [ "$status" -eq 1 ]
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == *"box down"* ]]
  box_on ctl srun hostname
}

@test "up does not wait long for another command that is changing the box" {
  box_up_once --no-install --nodes 1
  exec 8>>"$ADAPTIVE_TRAIN_BOX/box.lock"
  flock 8
  run box up --no-install
  exec 8>&-
  [ "$status" -eq 1 ]
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == *"being started or stopped"* ]]
}

@test "down waits for an up that is under way and then ends it" {
  box down
  box up --no-install --nodes 1 &
  wait_until 60 has_network
  run box down
  [ "$status" -eq 0 ]
  wait $!
  assert_nothing_left
}

@test "TERM at any moment of up leaves nothing" {
  local moment
  for moment in has_directory has_network has_munge has_first_node; do
    start_and_signal TERM "$moment"
    [ "$status" -eq 143 ]
    wait_until 60 nothing_is_left
  done
}

@test "INT at any moment of up leaves nothing" {
  local moment
  for moment in has_directory has_network has_munge has_first_node; do
    start_and_signal INT "$moment"
    [ "$status" -eq 130 ]
    wait_until 60 nothing_is_left
  done
}

@test "down clears away what a killed up left, and so does the next up" {
  local moment
  for moment in has_network has_munge has_first_node; do
    start_and_signal KILL "$moment"
    [ "$status" -eq 137 ]
    run box down
    [ "$status" -eq 0 ]
    assert_nothing_left
  done
  start_and_signal KILL has_munge
  box up --no-install
  [ "$(box_root ctl sinfo -h -N -o %T | grep -cx idle)" -eq 4 ]
}

@test "an ordinary user runs on all nodes and shares a home between them" {
  box_up_once --no-install
  run box_on ctl srun -N4 hostname
  [ "$status" -eq 0 ]
  [ "$(sort <<<"$output" | xargs)" = "n1 n2 n3 n4" ]
  # shellcheck disable=SC2016 # for the shell on the nodes
  box_on n1 sh -c 'rm -rf shared && mkdir shared'
  # shellcheck disable=SC2016
  box_on ctl srun -N4 sh -c 'id -un > shared/$(hostname)'
  [ "$(box_on n3 cat shared/n1 shared/n2 shared/n3 shared/n4 | sort -u)" = ada ]
  [ "$(box_on n2 pwd)" = "$(box_value BOX_HOME)" ]
}

@test "users are kept apart, and the machine's own accounts are untouched" {
  box_up_once --no-install
  box_on n1 sh -c 'echo secret > private && chmod 600 private'
  run box on n2 --user=bob cat "$(box_value BOX_HOME)/private"
  [ "$status" -ne 0 ]
  [ "$(box on n2 --user=bob id -un)" = bob ]
  run getent passwd ada
  [ "$status" -ne 0 ]
}

@test "tmp, run, shm and spool belong to a node alone" {
  box_up_once --no-install
  local directory
  for directory in /tmp /run /dev/shm /var/spool; do
    box_root n1 touch "$directory/only-on-n1"
    run box_root n2 ls "$directory/only-on-n1"
    [ "$status" -ne 0 ]
    [ ! -e "$directory/only-on-n1" ]
  done
}

@test "on passes stdin, exit code and signals through" {
  box_up_once --no-install
  [ "$(echo hello | box_on n1 cat)" = hello ]
  run box_on n1 sh -c 'exit 7'
  [ "$status" -eq 7 ]
  local signal expected command
  while read -r signal expected command; do
    env --default-signal "$box_program" on n1 --user bash -c "$command" 3>&- &
    wait_until 60 box_root n1 test -e /tmp/ready
    kill -s "$signal" $!
    wait_for_status $! "$expected"
    box_root n1 rm /tmp/ready
  done <<'SIGNALS'
TERM 143 touch /tmp/ready; sleep 600
INT 130 touch /tmp/ready; sleep 600
USR1 42 trap 'exit 42' USR1; touch /tmp/ready; while :; do sleep 0.1; done
TERM 43 trap 'exit 43' TERM; touch /tmp/ready; while :; do sleep 0.1; done
SIGNALS
  wait_until 60 no_process_on n1 "sleep 600"
}

# wait_for_status PID EXPECTED
wait_for_status() {
  local found=0
  wait "$1" || found=$?
  [ "$found" -eq "$2" ]
}

# no_process_on NODE COMMAND_LINE
no_process_on() { ! box_root "$1" ps -eo args | grep -qxF "$2"; }

@test "a command ends when the on that ran it is killed" {
  box_up_once --no-install
  "$box_program" on n1 sleep 601 3>&- &
  wait_until 60 process_on n1 "sleep 601"
  kill -KILL $!
  wait_until 60 no_process_on n1 "sleep 601"
}

process_on() { box_root "$1" ps -eo args | grep -qxF "$2"; }

@test "neither nodes nor commands hold on to the caller's descriptors" {
  box down
  local held=$BATS_TEST_TMPDIR/held
  exec 7>"$held"
  box up --no-install --nodes 1
  box_root n1 sh -c 'sleep 602 >/dev/null 2>&1 & echo started'
  exec 7>&-
  [ -z "$(find /proc/[0-9]*/fd -lname "$held" 2>/dev/null)" ]
}

@test "kill ends a node and all on it; revive boots it again" {
  box_up_once --no-install
  box_root n2 sh -c 'sleep 603 >/dev/null 2>&1 & echo started'
  box kill n2
  run ps -eo args
  [[ $output != *"sleep 603"* ]]
  run box on n2 true
  [ "$status" -eq 1 ]
  [[ $output == *"box revive n2"* ]]
  [[ $(box status) == *"n2 "*dead* ]]
  run box kill n2
  [ "$status" -eq 1 ]
  box revive n2
  wait_until 60 node_is n2 idle
  [ "$(box_on ctl srun -w n2 hostname)" = n2 ]
}

@test "the controller can be killed and revived, and still knows its jobs" {
  box_up_once --no-install
  local job
  job=$(box_on ctl sbatch --parsable --hold -J survivor --wrap true)
  # The controller writes its state some seconds after a change.
  wait_until 60 box_root ctl grep -qa survivor /var/spool/slurmctld/job_state
  box kill ctl
  box revive ctl
  wait_until 60 job_is "$job" PENDING
  box_on ctl scancel "$job"
}

job_is() { [ "$(box_root ctl squeue -h -j "$1" -o %T 2>/dev/null)" = "$2" ]; }

@test "cut silences a node whose processes live on; mend brings it back" {
  box_up_once --no-install
  box_root n3 sh -c 'sleep 604 >/dev/null 2>&1 & echo started'
  run reaches n1 n3
  [ "$status" -eq 0 ]
  box cut n3
  run reaches n1 n3
  [ "$status" -ne 0 ]
  process_on n3 "sleep 604"
  box mend n3
  wait_until 60 reaches n1 n3
  box_root n3 pkill -f "sleep 604"
}

# reaches A B: A can open a connection to B's slurmd.
reaches() { box_root "$1" timeout 2 bash -c "exec 9<>/dev/tcp/$2/6818"; }

# seconds_for FROM TO BYTES: how long Slurm takes to bring a task's output from one node to another.
seconds_for() {
  local begin=$EPOCHREALTIME
  box_on "$2" srun -w "$1" head -c "$3" /dev/zero >"$BATS_TEST_TMPDIR/received"
  [ "$(stat -c %s "$BATS_TEST_TMPDIR/received")" -eq "$3" ]
  awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN {print b - a}'
}

@test "link limits one pair in both directions and no other, and none lifts it" {
  box_up_once --no-install
  local pair seconds
  box link n1 n2 2mbit
  # 1 MB over 2 Mbit/s cannot take less than 4 s, less what the bucket held; without a limit it
  # needs a fraction of a second, on a busy machine as well.
  for pair in "n1 n2" "n2 n1"; do
    # shellcheck disable=SC2086 # two words
    seconds=$(seconds_for $pair 1000000)
    awk -v s="$seconds" 'BEGIN {exit !(s > 3.5)}'
  done
  # Twenty times as much elsewhere would need 80 s if the limit held there.
  seconds=$(seconds_for n1 n3 20000000)
  awk -v s="$seconds" 'BEGIN {exit !(s < 40)}'
  box link n1 n2 none
  seconds=$(seconds_for n1 n2 20000000)
  awk -v s="$seconds" 'BEGIN {exit !(s < 40)}'
}

@test "up takes links from a file, and a limit of a whole node holds both ways" {
  box down
  printf '# slow node\nn2 8mbit  # all of it\n\nn1 n3 100mbit\n' >"$BATS_TEST_TMPDIR/links"
  box up --no-install --nodes 3 --links "$BATS_TEST_TMPDIR/links"
  local pair seconds
  for pair in "n1 n2" "n2 n3"; do
    # shellcheck disable=SC2086
    seconds=$(seconds_for $pair 4000000)
    awk -v s="$seconds" 'BEGIN {exit !(s > 3.5)}'
  done
  seconds=$(seconds_for n1 n3 40000000)
  awk -v s="$seconds" 'BEGIN {exit !(s > 3 && s < 35)}'
}

@test "gpus can be scheduled" {
  box_up_once --no-install --nodes 2 --gpus 2
  # shellcheck disable=SC2016
  [ "$(box_on ctl srun -N2 --gres=gpu:2 sh -c 'echo $CUDA_VISIBLE_DEVICES' | sort -u)" = 0,1 ]
  run box_on ctl srun -N1 --gres=gpu:3 true
  [ "$status" -ne 0 ]
}

# cpu_limit NODE: microseconds of CPU time per period, as control groups say it (v2, then v1).
cpu_limit() {
  # shellcheck disable=SC2016 # for the shell on the node
  box_root "$1" sh -c 'cat /sys/fs/cgroup/cpu.max 2>/dev/null ||
    echo $(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us)'
}

# cpu_group CMD...: CMD runs a command somewhere; prints the group that limits its CPUs there.
cpu_group() {
  "$@" cat /proc/self/cgroup |
    awk -F: '$2 ~ /(^|,)cpu(,|$)/ {v1 = $3} $1 == 0 {v2 = $3} END {print v1 ? v1 : v2}'
}

@test "cpu gives a node its share, for jobs and for commands alike" {
  box down
  run box up --no-install --nodes 2 --cpu n1=0.5,n2=0.15
  if [ "$status" -eq 2 ]; then
    # A machine without control groups has to say so.
    [[ $output == *"--cpu needs control groups"* ]]
    return
  fi
  [ "$status" -eq 0 ]
  [ "$(cpu_limit n1)" = "5000 10000" ]
  [ "$(cpu_limit n2)" = "1500 10000" ]
  box cpu n2 0.3
  [ "$(cpu_limit n1)" = "5000 10000" ]
  [ "$(cpu_limit n2)" = "3000 10000" ]
  local node
  for node in n1 n2; do
    [ "$(cpu_group box_on ctl srun -w "$node")" = / ]
    [ "$(cpu_group box_on "$node")" = / ]
  done
}

@test "a box without shares leaves the CPUs' groups alone, and cpu is refused" {
  box_up_once --no-install --nodes 2
  [ -z "$(find /sys/fs/cgroup -path "*/$(box_tag)/*" \( -name cpu.cfs_quota_us -o -name cpu.max \))" ]
  run box cpu n1 0.5
  [ "$status" -eq 1 ]
  [[ $output == *"without --cpu"* ]]
}

@test "hosts can have other names than Slurm's, which no name service knows" {
  box_up_once --no-install --nodes 2 --hostnames
  [ "$(box_on ctl srun -N2 hostname | sort | xargs)" = "host-n1.box.internal host-n2.box.internal" ]
  # shellcheck disable=SC2016 # for the shell on the nodes
  [ "$(box_on ctl srun -N2 sh -c 'echo $SLURMD_NODENAME' | sort | xargs)" = "n1 n2" ]
  run box_root n2 getent hosts n1
  [ "$status" -ne 0 ]
  [[ $(box_root n2 getent hosts host-n1) == 10.77.0.1\ * ]]
  box kill n2
  box revive n2
  [ "$(box_root n2 hostname)" = host-n2.box.internal ]
}

@test "limits hold jobs to the memory and the cores they asked for" {
  run box_up_once --no-install --nodes 2 --limits
  if [ "$status" -ne 0 ]; then # for lack of control groups; the next test says more
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == "box: --limits needs "* ]]
    echo "# not tried on this machine: $output" >&3
    return
  fi
  # Without a binding of Slurm's own, which would be enough. A job has whole cores.
  [ "$(box_on ctl srun -N1 -c1 --cpu-bind=none nproc)" = "$(slurmd -C | sed -n 's/.*ThreadsPerCore=\([0-9]*\).*/\1/p')" ]
  [ "$(box_on ctl srun -N1 --exclusive -c "$(nproc)" nproc)" = "$(nproc)" ]
  run box_on ctl srun -N1 -c "$(($(nproc) + 1))" true
  [ "$status" -ne 0 ]
  local take=(dd if=/dev/zero of=/dev/null bs=150M count=1)
  box_on ctl srun -N1 --mem=200 "${take[@]}"
  run box_on ctl srun -N1 --mem=100 "${take[@]}"
  [ "$status" -ne 0 ]
  [[ $output == *"Out Of Memory"* ]]
}

@test "with accounting sacct knows jobs and accounts, also when the controller was killed; down leaves nothing" {
  box down
  box up --no-install --nodes 1 --accounting
  box on n1 --user=bob srun -N1 true
  wait_until 30 accounted 'bob|physics|COMPLETED'
  box kill ctl
  box revive ctl
  wait_until 30 accounted 'bob|physics|COMPLETED'
  # Nobody but root gets at what it keeps.
  for file in run/mysqld/mysqld.sock etc/slurm/slurmdbd.conf var/spool/mariadb/ibdata1; do
    box on ctl test -e "/$file"
    run box on ctl --user test -r "/$file"
    [ "$status" -eq 1 ]
  done
  box down
  assert_nothing_left
}
accounted() { [[ $(box_on n1 sacct --allusers -X -n -P -o User,Account,State) == "$1" ]]; }

@test "limits are refused where control groups cannot hold them" {
  box down
  local version
  for version in none v2; do
    BOX_CGROUP=$version run box up --no-install --nodes 2 --limits
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == *"--limits needs control groups of version 1"*"$version" ]]
  done
  assert_nothing_left
}

@test "without control groups the box works, and cpu is refused" {
  box down
  BOX_CGROUP=none run box up --no-install --nodes 2 --cpu n1=0.5
  [ "$status" -eq 2 ]
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == *"--cpu needs control groups"* ]]
  assert_nothing_left
  BOX_CGROUP=none box up --no-install --nodes 2
  run box_root n1 ls /sys/fs/cgroup
  [ -z "$output" ]
  [ "$(box_on ctl srun -N2 hostname | sort | xargs)" = "n1 n2" ]
  box down
  assert_nothing_left
}

@test "an installed tree can be given, wherever it lies, in the layouts of packages" {
  box down
  local tree=$BATS_TEST_TMPDIR/closed/tree
  mkdir -p "$tree"/usr/{bin,lib64/slurm}
  chmod 700 "$BATS_TEST_TMPDIR/closed"
  printf '#!/bin/sh\necho installed\n' >"$tree/usr/bin/adaptive-train"
  chmod 755 "$tree/usr/bin/adaptive-train"
  run box up --nodes 1 --prefix "$tree"
  [ "$status" -eq 1 ]
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == *adaptive_train.so* ]]
  assert_nothing_left
  box up --nodes 1 --prefix "$tree" --no-plugin
  [ "$(box_on ctl srun adaptive-train)" = installed ]
}

@test "a build that is not there is named in one line" {
  box down
  ADAPTIVE_TRAIN_PRESET=no-such-preset run box up
  [ "$status" -eq 1 ]
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == *"build/no-such-preset"* ]]
  assert_nothing_left
}

@test "two boxes live side by side" {
  box_up_once --no-install
  local other=$ADAPTIVE_TRAIN_BOX.other
  ADAPTIVE_TRAIN_BOX=$other box up --no-install --nodes 2
  [ "$(ADAPTIVE_TRAIN_BOX=$other box_on ctl srun -N2 hostname | sort | xargs)" = "n1 n2" ]
  ADAPTIVE_TRAIN_BOX=$other box down --purge
  [ ! -e "$other" ]
  [ "$(box_on ctl srun -N4 hostname | sort | xargs)" = "n1 n2 n3 n4" ]
}

@test "a box below /tmp serves its nodes as well" {
  local ADAPTIVE_TRAIN_BOX=/tmp/adaptive-train-box-test.$$
  export ADAPTIVE_TRAIN_BOX
  box up --no-install --nodes 2
  [ "$(box_on ctl srun -N2 pwd | sort -u)" = "$ADAPTIVE_TRAIN_BOX/home/ada" ]
  box down --purge
  assert_nothing_left
}

@test "a directory that is not a box is never touched" {
  local precious=$BATS_TEST_TMPDIR/precious command
  mkdir -p "$precious/log"
  echo keep >"$precious/log/file"
  for command in "up --no-install" "down" "down --purge"; do
    # shellcheck disable=SC2086 # words
    ADAPTIVE_TRAIN_BOX=$precious run box $command
    [ "$status" -eq 1 ]
    [ "$(cat "$precious/log/file")" = keep ]
  done
}

@test "home survives down and up; purge removes everything" {
  box_up_once --no-install
  box_on n1 touch kept
  box down
  box up --no-install
  box_on n2 test -e kept
  box down --purge
  [ ! -e "$ADAPTIVE_TRAIN_BOX" ]
}

@test "bad arguments: one line, exit 2" {
  box_up_once --no-install
  local line
  printf 'n1 n2\n' >"$BATS_TEST_TMPDIR/links"
  while read -r line; do
    # shellcheck disable=SC2086 # words
    run box $line
    [ "$status" -eq 2 ] || { echo "box $line: exit $status" && false; }
    [ "${#lines[@]}" -eq 1 ]
  done <<LINES

frobnicate
on
on n9 true
on n0 true
on n1
on n1 --frob true
on n1 --user=nobody true
kill
kill n9
kill n1 n2
revive n5
cut n
mend ../n1
link n1 n2
link n1 n2 fast
link n1 n1 1mbit
link n1 n9 1mbit
cpu
cpu n1
cpu n9 0.5
cpu n1 0.01
uplink 1mbit
uplink fast n1
uplink 1mbit n9
status now
down now
up --frob
up --nodes
up --nodes 0
up --nodes 21
up --nodes x
up --gpus -1
up --link 10
up --link 1mbit --links $BATS_TEST_TMPDIR/links
up --links $BATS_TEST_TMPDIR/links
up --links /no/such/file
up --cpu n9=1
up --cpu n1
up --cpu n1=0.01
up --hostnames n1
up --limits 2
up --prefix /no/such/directory
up --prefix /tmp --no-install
LINES
  run box --help
  [ "$status" -eq 0 ]
  [[ $output == *"box up"* ]]
}
