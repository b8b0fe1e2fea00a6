#!/usr/bin/env bats
# --adaptive-train in sbatch, salloc and srun: what is refused, what the job and its nodes get, and
# what is left of it.

load box
load plugin_box

setup_file() { plugin_prepare && plugin_box_up --nodes 4; }
teardown_file() { box down --purge; }

setup() { rm -f "$BOX_HOME"/{go,out,out.*,pwned,script}; }

teardown() {
  plugstack "optional $OUR_PLUGIN"
  box_root ctl scancel --user=ada 2>/dev/null || true
  wait_until 60 all_idle
}

# submit COMMAND ARG...: one of sbatch, salloc, srun with a job that succeeds.
submit() {
  case $1 in
    sbatch) run_as_user sbatch "${@:2}" --output=/dev/null --wrap true ;;
    *) run_as_user "$@" true ;;
  esac
}

# assert_refused SAYS: the last submission failed, with one line of ours that contains SAYS.
assert_refused() {
  [ "$status" -ne 0 ] || { echo "accepted" && false; }
  local ours
  ours=$(grep -E '^[a-z]+: error: (--adaptive-train|ADAPTIVE_TRAIN_OPTIONS): ' <<<"$output")
  [ "$(wc -l <<<"$ours")" -eq 1 ] || { echo "$output" && false; }
  [ "${#ours}" -lt 300 ]
  [[ $ours == *"$1"* ]] || { echo "no '$1' in: $ours" && false; }
}

# assert_nothing_queued BEFORE: no job has come to Slurm since there were BEFORE.
assert_nothing_queued() {
  [ "$(job_count)" -eq "$1" ]
  [ -z "$(box_root ctl squeue -h)" ]
}

@test "a bad option is refused by sbatch, salloc and srun, and nothing is queued" {
  local before command option says case
  local -a cases
  before=$(job_count)
  mapfile -t cases <<'OPTIONS'
foo=1|unknown key "foo"; allowed: reuse=auto|never, spares=0..1024
reuse=always|bad value "always" of reuse; allowed: auto or never
spares=2000|a whole number from 0 to 1024
spares=1,spares=1|spares is given twice
reuse=auto,|empty item
OPTIONS
  for case in "${cases[@]}"; do
    IFS='|' read -r option says <<<"$case"
    for command in sbatch salloc srun; do
      submit "$command" "--adaptive-train=$option"
      assert_refused "$says"
      # The other line is Slurm's own, which repeats the text.
      [ "${#lines[@]}" -eq 2 ]
    done
  done
  assert_nothing_queued "$before"
}

@test "hostile options are refused in one short line and do nothing" {
  local before command option
  # shellcheck disable=SC2016 # nothing may expand these
  local -a hostile=(
    "$(head -c 10240 /dev/zero | tr '\0' a)" 'reuse="auto"' "reuse='auto'" $'reuse=auto\nlog=debug'
    $'\e[31m=1' '%s%n%s=1' '../../../etc/passwd' '-1' ' ' ';$(touch pwned)' '`touch pwned`'
    'reuse=auto;touch pwned' 'reuse=$(touch${IFS}pwned)'
  )
  before=$(job_count)
  for option in "${hostile[@]}"; do
    for command in sbatch salloc srun; do
      submit "$command" "--adaptive-train=$option"
      assert_refused ""
    done
  done
  assert_nothing_queued "$before"
  [ ! -e "$BOX_HOME/pwned" ]
}

@test "a bad option in the script or in the environment is refused too" {
  local before command
  before=$(job_count)
  printf '#!/bin/sh\n#SBATCH --adaptive-train=foo=1\ntrue\n' >"$BOX_HOME/script"
  run_as_user sbatch script
  assert_refused 'unknown key "foo"'
  run_as_user env ADAPTIVE_TRAIN_OPTIONS=spares=x sbatch --wrap true
  assert_refused 'ADAPTIVE_TRAIN_OPTIONS: bad value "x" of spares'
  for command in salloc srun; do
    run_as_user env ADAPTIVE_TRAIN_OPTIONS=$'spares=x\n\e[31m' "$command" true
    assert_refused 'ADAPTIVE_TRAIN_OPTIONS: character "\x0a"'
    [[ $output != *$'\e'* ]]
  done
  assert_nothing_queued "$before"
}

has_snapshot() { box_root "$1" test -s "/run/adaptive-train/$2/node.json"; }
no_folder() { box_root "$1" test ! -e "/run/adaptive-train/$2"; }

# start_job ARG...: a job that runs until the file `go` is there; prints its id.
start_job() {
  box_on ctl sbatch --parsable --output=out "$@" --wrap 'while [ ! -e go ]; do sleep 0.1; done'
}

@test "every node has its snapshot while the job runs, and not longer" {
  local job node folder
  job=$(start_job --adaptive-train -N4)
  folder=/run/adaptive-train/$job
  for node in n1 n2 n3 n4; do
    wait_until 60 has_snapshot "$node" "$job"
    [ "$(box_root "$node" stat -c %U:%a "$folder")" = root:755 ]
    [ "$(box_root "$node" stat -c %U:%a "$folder/node.json")" = root:644 ]
    [ "$(box_root "$node" ls -A "$folder")" = node.json ]
    run box_on "$node" cat "$folder/node.json"
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == '{"format_version":1,"name":"'"$node"'","source":"prolog",'*'}}' ]]
    [[ $output == *'"gpus":{"status":"NVML is not installed '* ]]
    # From here on nobody but root can change it.
    run box_on "$node" sh -c \
      "echo x >>$folder/node.json || rm -f $folder/node.json || touch $folder/x"
    [ "$status" -ne 0 ]
  done
  touch "$BOX_HOME/go"
  for node in n1 n2 n3 n4; do wait_until 60 no_folder "$node" "$job"; done
  [ -z "$(our_lines n1)" ]
}

@test "salloc and srun photograph too" {
  # shellcheck disable=SC2016 # for the job
  local task='cat /run/adaptive-train/$SLURM_JOB_ID/node.json'
  run_as_user salloc --quiet --adaptive-train -N2 srun sh -c "$task"
  [ "$status" -eq 0 ]
  [ "$(grep -c '^{.*}$' <<<"$output")" -eq 2 ]
  run_as_user srun --adaptive-train -N4 sh -c "$task"
  [ "$status" -eq 0 ]
  [ "$(grep -c '^{.*}$' <<<"$output")" -eq 4 ]
}

@test "with the option off nothing is done at all" {
  local node
  plugstack "optional $OUR_PLUGIN probe=$BOX_PREFIX/probes/leave_mark"
  for node in n1 n2 n3 n4; do
    box_root "$node" rm -rf /run/adaptive-train /tmp/probe-was-here
    our_lines "$node" >"$BATS_TEST_TMPDIR/$node.before"
  done
  run_batch -N4 --output=out --wrap 'env; srun env'
  [ "$status" -eq 0 ]
  [ -s "$BOX_HOME/out" ]
  [[ $(<"$BOX_HOME/out") != *[Aa][Dd][Aa][Pp][Tt][Ii][Vv][Ee]_[Tt][Rr][Aa][Ii][Nn]* ]]
  run_as_user srun -N4 true
  [ "$status" -eq 0 ]
  run_as_user env ADAPTIVE_TRAIN_OPTIONS= salloc -N4 true
  [ "$status" -eq 0 ]
  wait_until 60 all_idle
  for node in n1 n2 n3 n4; do
    run box_root "$node" ls -d /run/adaptive-train /tmp/probe-was-here
    [[ $output != */run/adaptive-train$'\n'* && ${#lines[@]} -eq 2 ]]
    diff "$BATS_TEST_TMPDIR/$node.before" <(our_lines "$node")
  done
  # The same with the option on, so that the silence above means something.
  run_as_user srun --adaptive-train -N4 ls /run/adaptive-train /tmp/probe-was-here
  [ "$status" -eq 0 ]
}

@test "the job finds its options normalized in its environment, whatever --export says" {
  local given
  # shellcheck disable=SC2016
  local task='echo "task $ADAPTIVE_TRAIN_OPTIONS"'
  # shellcheck disable=SC2016
  local script="echo \"batch \$ADAPTIVE_TRAIN_OPTIONS\"; srun /bin/sh -c '$task'"
  local options=reuse=auto,spares=2,compress=auto,log=debug place
  for given in --export=ALL --export=NONE --export=HOME; do
    run_batch "$given" --adaptive-train=log=debug,spares=2 --output=out --wrap "$script"
    [ "$status" -eq 0 ]
    for place in batch task; do
      grep -qx "$place $options" "$BOX_HOME/out" || { cat "$BOX_HOME/out" && false; }
    done
  done
}

@test "ADAPTIVE_TRAIN_OPTIONS turns the option on, and the command line overrides it" {
  local command
  # shellcheck disable=SC2016
  local task='echo $ADAPTIVE_TRAIN_OPTIONS; wc -l <"/run/adaptive-train/$SLURM_JOB_ID/node.json"'
  for command in "sbatch --output=out script" "salloc --quiet srun /bin/sh script" \
    "srun /bin/sh script"; do
    printf '#!/bin/sh\n%s\n' "$task" >"$BOX_HOME/script"
    # shellcheck disable=SC2086 # words
    run_as_user env ADAPTIVE_TRAIN_OPTIONS=spares=3 $command
    [ "$status" -eq 0 ]
    read_output "$command"
    [ "$output" = $'reuse=auto,spares=3,compress=auto,log=info\n1' ]
    # shellcheck disable=SC2086
    run_as_user env ADAPTIVE_TRAIN_OPTIONS=spares=3 ${command/ / --adaptive-train=reuse=never }
    [ "$status" -eq 0 ]
    read_output "$command"
    [ "$output" = $'reuse=never,spares=0,compress=auto,log=info\n1' ]
  done
}

# read_output COMMAND: where COMMAND was an sbatch, makes its job's output $output.
read_output() {
  [[ $1 == sbatch* ]] || return 0
  wait_until 60 is_over "${output##* }"
  output=$(<"$BOX_HOME/out")
}

@test "a requeued job is photographed again" {
  local job first
  job=$(start_job --adaptive-train -N1 -w n1 --requeue)
  wait_until 60 has_snapshot n1 "$job"
  first=$(box_root n1 stat -c %i:%Y "/run/adaptive-train/$job")
  box_root ctl scontrol requeue "$job"
  wait_until 60 no_folder n1 "$job"
  # A slurmd that sees the job again within two seconds takes it for the old one and runs no prolog
  # at all.
  sleep 3
  wait_until 60 starts_again "$job"
  wait_until 60 has_snapshot n1 "$job"
  [ "$(box_root n1 stat -c %i:%Y "/run/adaptive-train/$job")" != "$first" ]
  box_root ctl scontrol show job "$job" | grep -q Restarts=1
  touch "$BOX_HOME/go"
  wait_until 60 no_folder n1 "$job"
}

# starts_again JOB: Slurm makes a requeued job wait for minutes; it need not.
starts_again() {
  box_root ctl scontrol update "JobId=$1" StartTime=now 2>/dev/null
  [ "$(box_root ctl squeue -h -j "$1" -o %T)" = RUNNING ]
}

@test "jobs on one node, array tasks among them, have a folder each" {
  local job others
  job=$(start_job --adaptive-train -w n2)
  others=$(start_job --adaptive-train -w n2 --array=0-1)
  wait_until 60 folders_are n2 3
  box_root ctl scancel "$others"
  wait_until 60 folders_are n2 1
  has_snapshot n2 "$job"
}

# folders_are NODE COUNT
folders_are() { [ "$(box_root "$1" find /run/adaptive-train -name node.json | wc -l)" -eq "$2" ]; }

@test "log=debug says what was kept" {
  local job
  run_as_user srun --adaptive-train=log=debug -w n3 true
  [ "$status" -eq 0 ]
  job=$(last_job)
  our_lines n3 |
    grep -E "^adaptive-train: job $job: snapshot of [0-9]+ bytes in /run/adaptive-train/$job/node.json"
}

@test "slurmd says in its log which plugstack arguments it could not use, and works with the others" {
  plugstack "optional $OUR_PLUGIN deadline=1000 colour=red"
  box kill n4
  box revive n4
  wait_until 60 all_idle
  our_lines n4 | grep -F 'deadline=1000: the deadline must be 0.1 to 60 seconds; using 2 s'
  our_lines n4 | grep -F 'colour=red is unknown; allowed: probe=PATH, deadline=SECONDS'
  run_as_user srun --adaptive-train -w n4 find /run/adaptive-train -name node.json
  [ "${#lines[@]}" -eq 1 ]
  plugstack "optional $OUR_PLUGIN probe=/no/such/probe"
  # Slurm waits long for the epilog of a job whose node is killed before it has ended.
  wait_until 60 all_idle
  box kill n4
  box revive n4
  wait_until 60 all_idle
  our_lines n4 | grep -F 'probe /no/such/probe: No such file or directory'
}

@test "the drop-in is shipped switched off, and works with its last line switched on" {
  local shipped=$REPOSITORY/site_configs/plugstack.conf.d/adaptive_train.conf
  local folder=$BOX_DIR/etc/slurm/plugstack.conf.d
  mkdir -p "$folder"
  cp "$shipped" "$folder/"
  plugstack "include /etc/slurm/plugstack.conf.d/*.conf"
  run_as_user srun --adaptive-train -w n1 true
  [ "$status" -ne 0 ]
  [[ $output == *"unrecognized option"* ]]
  # The box's plugin lies elsewhere than an installed one.
  sed "s,^#optional adaptive_train.so,optional $OUR_PLUGIN," "$shipped" \
    >"$folder/adaptive_train.conf"
  run_as_user srun --adaptive-train -w n1 find /run/adaptive-train -name node.json
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 1 ]
}

# troubles: the subjects of what doctor, whose JSON is in $output, finds wrong.
troubles() { jq -r '[.findings[] | select(.severity == "trouble") | .subject] | sort | join(",")' <<<"$output"; }
# doctor_says SUBJECT WHAT: it does, in $output.
doctor_says() {
  jq -e --arg subject "$1" --arg what "$2" '.findings[] | select(.subject == $subject) | .what | contains($what)' <<<"$output" ||
    { jq -c '.findings[]' <<<"$output" && false; }
}

@test "doctor finds nothing on a healthy cluster, and each planted fault" {
  run_as_user salloc -Q -N4 adaptive-train doctor --json --run-dir "$BOX_HOME/runs"
  [ "$status" -eq 0 ] || { echo "$output" && false; }
  [ "$(troubles)" = "" ]
  doctor_says "run folder" "is seen from 4 nodes"
  doctor_says ports "4 nodes connect to port"
  doctor_says ports "of this host, and of each other"
  doctor_says "GPU versions" "on all 4 nodes"
  doctor_says clocks "4 nodes have the same time"
  doctor_says plugin "adaptive_train.so for Slurm"
  doctor_says munge "munged answers"
  doctor_says UnkillableStepTimeout "180 s"
  doctor_says PrologFlags Alloc # only where all is well
  run_as_user salloc -Q -N4 adaptive-train doctor --json --run-dir /tmp/runs
  [ "$status" -eq 4 ]
  [ "$(troubles)" = "run folder" ]
  # An interface that the other nodes have no way to.
  box_root ctl sh -c 'ip link add apart0 type veth peer name apart1 && ip address add 198.51.100.7/32 dev apart0 && ip link set apart0 up && ip link set apart1 up'
  box_root ctl sh -c 'printf "[launch]\ninterface = \"apart0\"\nports = \"41000-41100\"\n" >/run/site.toml'
  run_as_user env ADAPTIVE_TRAIN_SITE_CONFIG=/run/site.toml salloc -Q -N2 -w n1,n2 adaptive-train doctor --json --run-dir "$BOX_HOME/runs"
  box_root ctl ip link del apart0
  [ "$(troubles)" = ports ]
  doctor_says ports "n1, n2 did not connect to port 41000 of this host at 198.51.100.7"
  # Two nodes between which a firewall stands.
  local n3
  n3=$(box_on ctl scontrol --oneliner show node n3 | grep -oP ' NodeAddr=\K\S+')
  box_root n2 iptables -I OUTPUT -p tcp -d "$n3" --dport 41000:41100 --syn -j DROP
  box_root ctl sh -c 'printf "[launch]\nports = \"41000-41100\"\n" >/run/site.toml'
  run_as_user env ADAPTIVE_TRAIN_SITE_CONFIG=/run/site.toml salloc -Q -N4 adaptive-train doctor --json --run-dir "$BOX_HOME/runs"
  box_root n2 iptables -F OUTPUT
  [ "$(troubles)" = ports ]
  doctor_says ports "nodes do not connect at port 41000: n2 to n3"
  # A node whose clock is years behind.
  box_root ctl sh -c "printf '#!/bin/sh\necho 1000000000.5\n' >$BOX_HOME/date && chmod 755 $BOX_HOME/date"
  box_root n2 mount --bind "$BOX_HOME/date" /usr/bin/date
  run_as_user salloc -Q -N4 adaptive-train doctor --json --run-dir "$BOX_HOME/runs"
  box_root n2 umount /usr/bin/date
  [ "$(troubles)" = clocks ]
  doctor_says clocks "ahead of that of n2"
  plugstack "required $OUR_PLUGIN"
  run_as_user adaptive-train doctor --json
  [ "$(troubles)" = plugin ]
  plugstack "optional /no/such/adaptive_train.so"
  run_as_user adaptive-train doctor --json
  [ "$(troubles)" = plugin ]
  plugstack "optional $OUR_PLUGIN"
  run_as_user env ADAPTIVE_TRAIN_SITE_CONFIG=/dev/null adaptive-train doctor --json
  [ "$(troubles)" = settings ]
  run box_root ctl unshare -m sh -c 'mount -t tmpfs none /run/munge && exec adaptive-train doctor --json'
  [[ ,$(troubles), == *,munge,* ]]
  run_as_user sh -c 'echo "[launch]" >site.toml && echo "mpi = \"pmix_v99\"" >>site.toml &&
    ADAPTIVE_TRAIN_SITE_CONFIG=$PWD/site.toml adaptive-train doctor --json'
  [ "$(troubles)" = "srun's PMIx" ]
}

# doctor_where COMMANDS: what root's doctor finds on ctl after these, in mounts of its own.
doctor_where() { run box_root ctl unshare -m sh -c "$1"' && exec adaptive-train doctor --json'; }

@test "doctor finds what is wrong with a host of the cluster" {
  plugstack "optional $OUR_PLUGIN"
  doctor_where true
  [ "$(troubles)" = "" ] || { echo "$output" && false; }
  # A munge with a known hole, as the distribution's package says.
  doctor_where 'printf "#!/bin/sh\nprintf 0.5.15-2\n" >/run/query && chmod 755 /run/query && mount --bind /run/query /usr/bin/dpkg-query &&
    mount -t tmpfs none /usr/share/doc/munge && echo "munge (0.5.15-2): new" | gzip >/usr/share/doc/munge/changelog.Debian.gz'
  [ "$(troubles)" = "munge's version" ]
  doctor_says "munge's version" "0.5.15-2 has CVE-2026-25506"
  # A card with RDMA, and little memory that may be locked.
  doctor_where 'mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/mlx5_0 && touch /sys/class/infiniband/mlx5_0/node_type && ulimit -l 64'
  [ "$(troubles)" = "locked memory" ]
  doctor_where 'ulimit -n 500'
  [ "$(troubles)" = "open files" ]
  # A plugin of another release of Slurm, as after an upgrade.
  mkdir -p "$BOX_HOME/other"
  python3 - "${OUR_PLUGIN%% *}" "$BOX_HOME/other/adaptive_train.so" <<'PYTHON'
import re, subprocess, sys
year, month, micro = map(int, re.search(r"(\d+)\.(\d+)\.(\d+)", subprocess.check_output(["slurmd", "-V"], text=True)).groups())
plugin = open(sys.argv[1], "rb").read()
built_for, other = bytes([micro, month, year, 0]), bytes([micro, month, year + 1, 0])
assert built_for in plugin
open(sys.argv[2], "wb").write(plugin.replace(built_for, other))
PYTHON
  plugstack "optional $BOX_HOME/other/adaptive_train.so"
  doctor_where true
  plugstack "optional $OUR_PLUGIN"
  [ "$(troubles)" = plugin ] || { echo "$output" && false; }
  doctor_says plugin "was built for Slurm"
  # A controller that nobody reaches.
  doctor_where '{ cat /etc/slurm/slurm.conf && echo SlurmctldPort=1; } >/run/slurm.conf && export SLURM_CONF=/run/slurm.conf'
  [[ ,$(troubles), == *,Slurm,* ]] || { echo "$output" && false; }
}
