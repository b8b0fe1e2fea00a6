# Processes: munged, the nodes' daemons, their end, and waiting until Slurm sees them.
# shellcheck shell=bash

# Everything started here lives in one of the box's network namespaces, and by that it is found
# again: no list of pids can be out of date. Until it is in there it holds the box's lock, so that a
# clean-up waits.
# Environment and signals are as a boot would leave them: bash ignores INT in what it puts in the
# background, and every job of the box would inherit that.
start_detached() { # NODE|switch LOG COMMAND...
  (
    close_descriptors "$lock_fd"
    exec env -i --default-signal PATH="$PATH" LANG=C.UTF-8 \
      nsenter --net="/run/netns/$tag-$1" setsid \
      bash -c "exec $lock_fd>&-; exec \"\$@\"" start "${@:3}"
  ) >"$2" 2>&1 </dev/null &
  disown # the shell is not to remark on its end
}

# start_munged: one for all nodes, reached through a directory bound into each.
# It sees that directory and its key below /run, where no unusual mode above the box can upset it.
start_munged() {
  mkdir -m 755 "$box/run/munge" && mkdir -m 700 "$box/run/munge-private" &&
    dd if=/dev/urandom of="$box/run/munge-private/munge.key" bs=128 count=1 status=none &&
    chmod 400 "$box/run/munge-private/munge.key" &&
    chown -R munge:munge "$box/run/munge" "$box/run/munge-private" ||
    die "cannot prepare munge (is its package installed?)"
  start_detached switch "$box/log/munged.log" /bin/bash "$box/run/bin/munged-start" "$box"
  wait_for 30 test -S "$box/run/munge/munge.socket.2" ||
    die "munged did not start: $(tail -n 1 "$box/log/munged.log")"
}

# boot NODE
boot() {
  local daemon=(slurmd -D -N "$1")
  [[ $1 != ctl ]] || daemon=(slurmctld -D)
  [[ $1 != ctl || $accounting == no ]] || daemon=(/bin/bash "$box/run/bin/accounting-start" "$box")
  rm -f "$box/run/$1.init"
  start_detached "$1" "$box/log/$1.boot.log" \
    /bin/bash "$box/run/bin/node-start" "$box" "$1" "$(hostname_of "$1")" "$cgroup_version" \
    "${daemon[@]}"
}

# wait_for SECONDS CMD...: until CMD succeeds.
wait_for() {
  local give_up=$((SECONDS + $1 + 1))
  shift
  until "$@"; do
    ((SECONDS < give_up)) || return 1
    sleep 0.05
  done
}

# listens NODE: its daemon takes connections. (6817 is slurmctld's port, 6818 slurmd's.)
listens() {
  local port=1AA2
  [[ $1 != ctl ]] || port=1AA1
  find_init "$1" &&
    grep -qE "^ *[0-9]+: [0-9A-F]+:$port [0-9A-F:]+ 0A " "/proc/$init/net/tcp" 2>/dev/null
}

# slurm_states: lines 'NODE STATE', as slurmctld sees them.
slurm_states() {
  find_init ctl || return 1
  timeout 2 nsenter --target "$init" --mount --uts --ipc --net sinfo -h -N -o '%N %T' 2>/dev/null |
    sort -u # a node has a line for each partition
}

all_idle() { [[ $(slurm_states | grep -c ' idle$') == "$node_count" ]]; }

# end_processes NAMESPACE SECONDS: kills what lives in a network namespace until nothing does.
end_processes() {
  local pids give_up=$((SECONDS + $2))
  while pids=$(ip netns pids "$1" 2>/dev/null) && [[ $pids ]]; do
    # shellcheck disable=SC2086 # a list of numbers
    kill -KILL $pids 2>/dev/null
    ((SECONDS <= give_up)) || return 1
    sleep 0.02
  done
}

# tear_down: ends all that could be there, however far a start got. Fails, naming it, where
# something stays.
tear_down() {
  local netns directory pids status=0
  for netns in $(box_namespaces); do
    end_processes "$netns" 10 && continue
    echo "box: processes in $netns do not end: $(ip netns pids "$netns" | xargs)" >&2
    status=1
  done
  in_turn remove_network
  for directory in $(box_cgroups); do
    pids=$(find "$directory" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | grep -vx 0)
    # shellcheck disable=SC2086 # a list of numbers (0 would be a process beyond our sight)
    [[ -z $pids ]] || kill -KILL $pids 2>/dev/null
    remove_cgroup_tree "$directory" 10 && continue
    echo "box: cannot remove the control group $directory" >&2
    status=1
  done
  rm -rf "${box:?}/run"
  return $status
}
