# What the bats files share that run training jobs in the box: the corpus, a configuration, jobs and their ends.
# shellcheck shell=bash

source "$(dirname "${BASH_SOURCE[0]}")/../small_model.bash"
: "${ADAPTIVE_TRAIN_BUILD:?the build folder to test, such as build/release}"
fakes=$ADAPTIVE_TRAIN_BUILD/lib

# all_idle: no node is gone, and none has a job, which may still save while it is ended.
all_idle() { [[ $(box_root ctl sinfo -h -N -p main -o %t | sort -u) == idle ]]; }

# show_nodes: what a test wants to see where nodes do not become free: why, what runs there, and slurmd's last words, which are its steps' as well.
show_nodes() {
  local node
  box_root ctl sinfo -N -p main -o '%N %t %E' || true
  box_root ctl squeue -o '%i %t %r %N' || true
  for node in $(box_root ctl sinfo -h -N -p main -t alloc,mix,comp,drain,drng,down,fail,unk -o %N | sort -u); do
    echo "on $node:"
    box_root "$node" ps -eLo pid,tid,ppid,stat,wchan:20,etimes,args || true
    grep -vE 'REQUEST_(PING|NODE_REGISTRATION_STATUS|ACCT_GATHER_UPDATE)$' "$(box_value BOX_LOG)/slurmd.$node.log" | tail -n 60 || true
  done
}

# end_empty_steps: ends each slurmstepd that a node waits for although it has no process left, and says what its threads do.
# Why one hangs after a rank was killed is not known (two of its threads wait in futexes); its job has ended by then.
end_empty_steps() {
  local node pid ended=1
  for node in $(box_root ctl sinfo -h -N -p main -t comp,drng -o %N | sort -u); do
    for pid in $(box_root "$node" pgrep -f '^slurmstepd: '); do
      [[ -z $(box_root "$node" ps --ppid "$pid" -o stat= | grep -v '^Z') ]] || continue
      echo "# on $node $(box_root "$node" ps -o args= -p "$pid") has no process left and does not end: killed" >&3
      box_root "$node" sh -c "gdb -p $pid -batch -ex 'thread apply all bt 12' 2>/dev/null | grep -E '^(Thread|#)'" | sed 's/^/# /' >&3 || true
      box_root "$node" kill -KILL "$pid"
      ended=0
    done
  done
  return "$ended"
}

# become_idle SECONDS: waits for all nodes, or fails with what holds them.
become_idle() {
  wait_until "$1" all_idle && return 0
  if end_empty_steps && wait_until 30 all_idle; then return 0; fi
  show_nodes
  return 1
}

# make_job_home: $home (the box user's, shared by all nodes) with corpus.txt, config.toml and job.sh; waits for the jobs before.
# Where they do not end, this test fails, and the next has a new box.
make_job_home() {
  home=$(box_value BOX_HOME)
  become_idle 120 || { box_anew; return 1; }
  rm -rf "$home"/runs "$home"/fake "$home"/slurm-*.out "$home"/.local
  # What is measured decides ranks and shares: where that is not the subject, nothing is.
  write_small_model "$home" '[profile]' 'measure = false' 'warmup_steps = 0'
  cat >"$home/job.sh" <<'SH'
#!/bin/bash
# The launcher must be the batch shell's last word: its exit code is the job's.
exec adaptive-train run config.toml "$@"
SH
  chmod 755 "$home/job.sh"
  chown -R --reference="$home" "$home"
}

# submit SBATCH-ARGUMENT... -- RUN-ARGUMENT...: prints the job id.
submit() {
  local sbatch=()
  while (($#)) && [[ $1 != -- ]]; do
    sbatch+=("$1")
    shift
  done
  shift
  box_on ctl sbatch --parsable --adaptive-train "${sbatch[@]}" job.sh "$@"
}

# job_field JOB NAME: of scontrol show job, which is asked again where it gets no answer.
job_field() {
  local shown tries
  for tries in 1 2 3; do
    if shown=$(box_root ctl scontrol show job -o "$1") || ((tries == 3)); then break; else sleep 1; fi
  done
  tr ' ' '\n' <<<"$shown" | sed -n "s/^$2=//p" | head -n 1
}

# job_over JOB: no longer pending or running; a node that is gone may keep it COMPLETING. Where Slurm does not answer, it is not over.
job_over() { [[ $(job_field "$1" JobState) != @(|PENDING|RUNNING|CONFIGURING) ]]; }

# training JOB STEPS: that many steps are done.
training() { [[ $(cat "$home/runs/$1/metrics.jsonl" 2>/dev/null | wc -l) -ge $2 ]]; }

# What launches ranks may need this, in seconds: the launcher gives a step that does not start up after 60 s, and tries again.
launch_patience=200

# wait_for_steps JOB STEPS: or says what the job did instead.
wait_for_steps() {
  wait_until "$launch_patience" training "$1" "$2" && return 0
  box_root ctl sinfo -N -p main -o '%N %t %E' || true
  grep -w "JobId=$1" "$(box_value BOX_LOG)/slurmctld.log" | tail -n 15 || true
  show_job "$1"
  return 1
}

# start_training SBATCH-ARGUMENT...: a job on all four nodes, without end but for a failure, running; sets $job.
start_training() {
  job=$(submit -N4 "$@" -- --train.steps=1000000 --recovery.attempts=0)
  wait_for_steps "$job" 5
}

# What a rank's command line begins with; the name of the process, cut to 15 letters, is also the node probe's.
worker_command='^[^ ]*/adaptive-train-worker'
# worker_pid NODE: the rank's process on a node, in the node's own numbering.
worker_pid() { box_root "$1" pgrep -f "$worker_command"; }

# no_rank_on NODE...: no worker is alive there (one that is only a zombie is not alive).
no_rank_on() {
  local node pid
  for node in "$@"; do
    for pid in $(worker_pid "$node"); do
      [[ $(box_root "$node" sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null) == [RSDTt] ]] && return 1
    done
  done
  return 0
}

# show_job JOB: what a failed test wants to see.
show_job() {
  box_root ctl scontrol show job "$1" | grep -E 'JobState|ExitCode' || true
  cat "$home/slurm-$1.out" || true
  tail -n 3 "$home/runs/$1"/logs/* 2>/dev/null || true
}

# finished_with JOB EXITCODE: waits for its end.
finished_with() {
  wait_until "$launch_patience" job_over "$1" || { show_job "$1"; return 1; }
  show_job "$1"
  [[ $(job_field "$1" ExitCode) == "$2" ]]
}

# losses JOB: one a line.
losses() { jq -r .loss "$home/runs/$1/metrics.jsonl"; }

# losses_agree JOB JOB: 20 steps each, within 1e-4 relative.
losses_agree() {
  paste <(losses "$1") <(losses "$2") | awk '
    { d = $1 - $2; if (d < 0) d = -d; if (d / $1 > worst) worst = d / $1; n++ }
    END { printf "%d steps, largest relative difference %.2e\n", n, worst; exit !(n == 20 && worst < 1e-4) }'
}

# box_up_limited ARG...: for setup_file. A box with --limits, where the machine has control groups for that.
box_up_limited() {
  export refusal=''
  box_up_once "$@" --limits 2>"$BATS_FILE_TMPDIR/said" && return
  refusal=$(<"$BATS_FILE_TMPDIR/said")
  [[ $refusal == "box: --limits needs "* ]] || { echo "$refusal" >&2 && return 1; }
  box_up_once "$@"
}

# limited: jobs are held to what they asked for. Where the machine has no control groups for that, the box has refused it in
# one line: all that can be shown there. Needs box_up_limited.
limited() {
  [[ -n $refusal ]] || return 0
  echo "# not tried on this machine: $refusal" >&3
  [[ $(wc -l <<<"$refusal") -eq 1 ]] || exit 1
  return 1
}

# run_out_of_memory NODE PATTERN: takes more than the job's 300 MiB there. The kernel ends the process that PATTERN finds first.
run_out_of_memory() {
  # shellcheck disable=SC2016 # for the shell on the node
  box_on ctl srun --overlap --jobid "$job" -N1 -n1 -w "$1" bash -c '
    victim=$(pgrep -f "$1") && echo 1000 >"/proc/$victim/oom_score_adj" &&
      dd if=/dev/zero of=/dev/null bs=310M count=1' _ "$2" || true
}
