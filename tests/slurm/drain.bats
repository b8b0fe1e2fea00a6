#!/usr/bin/env bats
# The drain table: what Slurm makes of a plugin that fails, hook by hook, context by context. The
# rules that our hooks follow (never let an exception out; return -1 at submission only) rest on it;
# where a new Slurm differs, so must they.
#
# A cell is `HOOK CONTEXT FAILURE OUTCOME`. Each has a node and a job of its own, and all of a table
# run at once. Outcomes: ran; failed (the job ends, the node stays in service); drained (the job
# ends unrun, the node is drained); ran-drained; held (unrun, the job is held and the node drained);
# stuck (unrun, Slurm waits for it without end); ran-stuck. `throw` and `abort` are the same to
# Slurm: a process that is gone.

load box
load plugin_box

setup_file() { plugin_prepare; }
# Nodes that are drained and jobs that are stuck are not worth mending. That slurmd has seen our
# plugin at its start matters: otherwise it would run no prologs and epilogs of plugins.
teardown() { box down --purge; }

# load_cells KIND: a required (or optional) faulty plugin, with the failures of $cells on the nodes
# n1, n2, ...
load_cells() {
  local index failures='' hook context failure
  for index in "${!cells[@]}"; do
    read -r hook context failure _ <<<"${cells[index]}"
    failures+=" n$((index + 1)):$hook:$context:$failure"
  done
  plugstack "$1 $FAULTY_PLUGIN$failures"
}

slurmd_only() { ! box_root "$1" ps -eo args | grep -q '^slurmstepd'; }

# outcome NODE JOB: one of the words above, as things stand now; or something else while they
# change.
outcome() {
  local ran='' node job
  [[ ! -e $BOX_HOME/ran.$1 ]] || ran=ran-
  node=$(box_root ctl sinfo -h -n "$1" -o %t)
  job=$(box_root ctl squeue -h -j "$2" -o '%T %r' 2>/dev/null)
  case "$node $job" in
    'idle ') if [[ $ran ]]; then echo ran; else echo failed; fi ;;
    'drain ') echo "${ran}drained" ;;
    'drain PENDING '*held*) echo "${ran}held" ;;
    'alloc RUNNING '* | 'mix RUNNING '*)
      if slurmd_only "$1"; then echo "${ran}stuck"; else echo busy; fi ;;
    *) echo "$ran$node $job" ;;
  esac
}
outcome_is() { [[ $(outcome "$1" "$2") == "$3" ]]; }

# assert_outcomes: each cell's batch job comes to its outcome; what is stuck is still so when all
# others are done.
assert_outcomes() {
  local index node expected failed=0
  for index in "${!cells[@]}"; do
    node=n$((index + 1)) expected=${cells[index]##* }
    wait_until 60 outcome_is "$node" "${jobs[index]}" "$expected" ||
      { echo "${cells[index]}: found: $(outcome "$node" "${jobs[index]}")" && failed=1; }
  done
  sleep 2
  for index in "${!cells[@]}"; do
    [[ ${cells[index]} != *stuck ]] ||
      outcome_is "n$((index + 1))" "${jobs[index]}" "${cells[index]##* }" ||
      { echo "${cells[index]}: did not stay so" && failed=1; }
  done
  return "$failed"
}

# submit_batch: a job that leaves a mark, on each cell's node.
submit_batch() {
  local index
  jobs=()
  for index in "${!cells[@]}"; do
    # shellcheck disable=SC2016 # for the job
    jobs+=("$(box_on ctl sbatch --parsable --output=/dev/null -w "n$((index + 1))" \
      --wrap 'touch "ran.$(hostname)"')")
  done
}

@test "batch jobs: hooks that return -1" {
  local -a cells jobs
  mapfile -t cells <<'CELLS'
init remote return drained
init_post_opt remote return drained
user_init remote return drained
task_post_fork remote return drained
task_init_privileged remote return failed
task_init remote return failed
task_exit remote return ran
exit remote return ran
job_prolog job_script return held
job_epilog job_script return ran-drained
CELLS
  plugin_box_up --nodes "${#cells[@]}"
  load_cells required
  submit_batch
  assert_outcomes
}

@test "batch jobs: hooks that throw or abort" {
  local -a cells jobs
  mapfile -t cells <<'CELLS'
init remote throw stuck
init_post_opt remote throw stuck
user_init remote throw stuck
task_post_fork remote throw stuck
task_init_privileged remote throw failed
task_init remote throw failed
task_exit remote throw ran-stuck
exit remote throw ran-stuck
job_prolog job_script throw held
job_epilog job_script throw ran-drained
init_post_opt remote abort stuck
task_init remote abort failed
exit remote abort ran-stuck
job_prolog job_script abort held
job_epilog job_script abort ran-drained
CELLS
  plugin_box_up --nodes "${#cells[@]}"
  load_cells required
  submit_batch
  assert_outcomes
}

@test "batch jobs: an optional plugin may return -1 anywhere, but not throw" {
  local -a cells jobs
  mapfile -t cells <<'CELLS'
init remote return ran
init_post_opt remote return ran
user_init remote return ran
task_post_fork remote return ran
task_init_privileged remote return ran
task_init remote return ran
task_exit remote return ran
exit remote return ran
job_prolog job_script return ran
job_epilog job_script return ran
init remote throw stuck
task_init remote throw failed
job_prolog job_script throw held
job_epilog job_script throw ran-drained
CELLS
  plugin_box_up --nodes "${#cells[@]}"
  load_cells optional
  submit_batch
  assert_outcomes
}

@test "srun: hooks in the step's daemon that return -1 or throw" {
  local -a cells pids=()
  local index node expected status failed=0
  # Outcomes here: ran; launch (srun says that the step could not be started, and exits with 0);
  # task (exit code not 0); hung (srun waits without end).
  mapfile -t cells <<'CELLS'
init remote return launch
init_post_opt remote return launch
user_init remote return launch
task_post_fork remote return launch
task_init_privileged remote return task
task_init remote return task
task_exit remote return ran
exit remote return ran
init remote throw hung
init_post_opt remote throw hung
user_init remote throw hung
task_post_fork remote throw hung
task_init_privileged remote throw task
task_init remote throw task
task_exit remote throw hung
exit remote throw ran
CELLS
  plugin_box_up --nodes "${#cells[@]}"
  load_cells required
  for index in "${!cells[@]}"; do
    node=n$((index + 1))
    # shellcheck disable=SC2016
    box_on ctl srun -w "$node" sh -c 'touch "ran.$(hostname)"' \
      >"$BATS_TEST_TMPDIR/$node" 2>&1 3>&- &
    pids+=($!)
  done
  for index in "${!cells[@]}"; do
    [[ ${cells[index]} == *hung ]] || wait_until 60 has_ended "${pids[index]}" ||
      { echo "${cells[index]}: hangs" && failed=1; }
  done
  sleep 2
  for index in "${!cells[@]}"; do
    node=n$((index + 1)) expected=${cells[index]##* }
    if [[ $expected == hung ]]; then
      has_ended "${pids[index]}" && echo "${cells[index]}: ended" && failed=1
      continue
    fi
    status=0
    wait "${pids[index]}" || status=$?
    case $expected in
      ran) [[ $status -eq 0 && -e $BOX_HOME/ran.$node ]] ;;
      launch)
        [[ $status -eq 0 && ! -e $BOX_HOME/ran.$node ]] &&
          grep -q 'launch failed' "$BATS_TEST_TMPDIR/$node" ;;
      task) [[ $status -ne 0 && ! -e $BOX_HOME/ran.$node ]] ;;
    esac || { echo "${cells[index]}: exit $status: $(<"$BATS_TEST_TMPDIR/$node")" && failed=1; }
  done
  # Interactive steps drain no node.
  [ "$(box_root ctl sinfo -h -N -o %t | grep -c drain)" -eq 0 ]
  return "$failed"
}

has_ended() { ! kill -0 "$1" 2>/dev/null; }

@test "at submission: what fails is refused by the command itself, and no node suffers" {
  local -a cells
  local case hook context failure expected command failed=0
  # Outcomes: refused (exit code not 0, nothing has run); ran; ran-crashed (it has run, the command
  # dies afterwards).
  mapfile -t cells <<'CELLS'
init allocator return refused
init_post_opt allocator return refused
exit allocator return ran
init allocator throw refused
init_post_opt allocator throw refused
exit allocator throw ran-crashed
init local return refused
init_post_opt local return refused
local_user_init local return refused
exit local return ran
init local throw refused
init_post_opt local throw refused
local_user_init local throw refused
exit local throw ran-crashed
CELLS
  plugin_box_up --nodes 1
  for case in "${cells[@]}"; do
    read -r hook context failure expected <<<"$case"
    plugstack "required $FAULTY_PLUGIN ctl:$hook:$context:$failure"
    rm -f "$BOX_HOME"/ran.*
    command=(srun -w n1 touch ran.n1)
    [[ $context == local ]] || command=(sbatch --output=/dev/null -w n1 --wrap 'touch ran.n1')
    run_as_user "${command[@]}"
    case $expected in
      refused) [[ $status -ne 0 ]] && wait_until 60 all_idle && [[ ! -e $BOX_HOME/ran.n1 ]] ;;
      ran) [[ $status -eq 0 ]] && wait_until 60 test -e "$BOX_HOME/ran.n1" ;;
      ran-crashed) [[ $status -eq 134 ]] && wait_until 60 test -e "$BOX_HOME/ran.n1" ;;
    esac || { echo "$case: exit $status: $output" && failed=1; }
    wait_until 60 all_idle
  done
  return "$failed"
}

@test "slurmd: a required plugin that fails at its start keeps the node out, an optional one does not" {
  local failure
  plugin_box_up --nodes 1
  box_root n1 pkill -TERM -x slurmd
  wait_until 60 lacks_slurmd n1
  for failure in return throw; do
    plugstack "required $FAULTY_PLUGIN n1:init:slurmd:$failure"
    run box_root n1 timeout 30 slurmd -D -N n1
    [[ $status -ne 0 && $status -ne 124 ]]
  done
  box kill n1
  plugstack "optional $FAULTY_PLUGIN n1:init:slurmd:return"
  box revive n1
  runs_slurmd n1
}

runs_slurmd() { box_root "$1" ps -eo args | grep -q '^slurmd'; }
lacks_slurmd() { ! runs_slurmd "$1"; }

@test "slurmd: a plugin that dies at its end harms no job" {
  plugin_box_up --nodes 1
  plugstack "required $FAULTY_PLUGIN n1:slurmd_exit:slurmd:throw"
  box kill n1
  box revive n1
  wait_until 60 all_idle
  box_on ctl sbatch --output=/dev/null -w n1 \
    --wrap 'while [ ! -e ran.go ]; do sleep 0.1; done; touch ran.n1'
  wait_until 60 box_root n1 pgrep -f slurm_script
  box_root n1 pkill -TERM -x slurmd
  wait_until 60 lacks_slurmd n1
  touch "$BOX_HOME/ran.go"
  wait_until 60 test -e "$BOX_HOME/ran.n1"
}
