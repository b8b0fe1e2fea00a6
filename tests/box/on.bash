# `box on`: a command inside a node's namespaces, with signals, exit code and stdin passed through.
# shellcheck shell=bash

run_on_node() {
  require_up
  local node=${1-}
  require_node "$node"
  shift
  local user=root
  case ${1-} in
    --user) user=${user_names[0]} && shift ;;
    --user=*) user=${1#--user=} && shift ;;
    -*) usage_error "unknown option '$1' of 'on'; allowed is --user[=NAME]" ;;
  esac
  [[ $user == root || " ${user_names[*]} " == *" $user "* ]] ||
    usage_error "unknown user '$user'; users here are root, ${user_names[*]}"
  (($# > 0)) || usage_error "no command given for node $node"
  find_init "$node" || die "node $node is dead; boot it with: box revive $node"

  build_entry_command "$user"
  run_forwarding_signals "${entry[@]}" "$@"
}

# join_cgroups NODE: the command shares the node's CPUs with the node's jobs, and ends with the box.
join_cgroups() {
  local directory
  while read -r directory; do
    echo 0 >"$directory/$1/cgroup.procs" || return 1
  done <"$box/run/cgroups"
}

# build_entry_command USER: sets entry to what has to stand before the command.
# nsenter stays outside as the parent. pdeathsig: what is left when we are killed is told to end;
# it is set after the change of user, which would clear it.
build_entry_command() {
  local user=$1 home=/root path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  local identity=()
  if [[ $user != root ]]; then
    home=$box/home/$user path=/usr/local/bin:/usr/bin:/bin
    identity=(setpriv --reuid "$user" --regid "$user" --init-groups)
  fi
  local session=(setsid)
  [[ -t 0 ]] && session=()
  local cgroup_namespace=()
  [[ $cgroup_version == none ]] || cgroup_namespace=(--cgroup)
  entry=(
    setpriv --pdeathsig KILL
    nsenter --target "$init" --mount --uts --ipc --pid --net "${cgroup_namespace[@]}"
    "${session[@]}" "${identity[@]}" setpriv --pdeathsig TERM
    env -i -C "$home" --default-signal=INT,QUIT "HOME=$home" "USER=$user" "LOGNAME=$user"
    SHELL=/bin/bash "PATH=$box/prefix/bin:$box/prefix/usr/bin:$path"
    "LANG=${LANG:-C.UTF-8}" "TERM=${TERM:-dumb}"
  )
}

# run_forwarding_signals CMD...: never returns.
# At a terminal the command is in our process group and the terminal itself sends it INT and QUIT.
# Elsewhere it leads a session of its own and only gets what we pass on: nothing arrives twice.
run_forwarding_signals() {
  local child command='' interrupted='' ending='' name status
  local forwarded=(TERM HUP USR1 USR2)
  if [[ -t 0 ]]; then trap '' INT QUIT; else forwarded+=(INT QUIT); fi
  for name in "${forwarded[@]}"; do
    # shellcheck disable=SC2064 # the name of the signal is meant now
    trap "pass_on $name" "$name"
  done
  (close_descriptors && join_cgroups "$node" && exec "$@") <&0 &
  child=$!
  while :; do
    interrupted=
    wait "$child" 2>/dev/null # not the shell's own remark on how it ended
    status=$?
    [[ $interrupted ]] || break
  done
  # A shell that a signal ended may have left its children: they were part of the command.
  [[ $ending && $command && ! -t 0 ]] && kill -TERM -- "-$command" 2>/dev/null
  exit "$status"
}

# pass_on SIGNAL: to the command itself, which is the only child of nsenter.
pass_on() {
  interrupted=yes
  [[ $1 == USR? ]] || ending=yes
  { read -r command <"/proc/$child/task/$child/children"; } 2>/dev/null || true
  kill -s "$1" "${command:-$child}" 2>/dev/null || true
}
