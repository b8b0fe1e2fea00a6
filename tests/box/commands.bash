# The commands other than `on`, one function each.
# shellcheck shell=bash

command_up() {
  parse_up "$@"
  require_programs
  require_build
  detect_cgroups
  [[ $cgroup_version != none || ${#speeds[@]} == 0 ]] ||
    usage_error "--cpu needs control groups with a cpu controller, and this machine offers none"
  [[ $limits == no ]] || require_limits
  create_box_directory
  take_lock 1 || die "a box is being started or stopped in $box"
  ! is_alive || die "a box is up in $box already; end it with: box down"
  # From here on whatever ends us early removes what was made.
  trap 'abandon "$?"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  # What a killed start or a reboot of the machine left.
  tear_down || die "cannot clear what an earlier box left"
  start_all
  trap - EXIT INT TERM HUP
  echo "box: $node_count idle nodes and ctl in $box (control groups: $cgroup_version)"
  echo "box: run a job: $0 on ctl --user srun -N$node_count hostname"
}

start_all() {
  local node line
  make_directories
  plugin_file='' user_id=''
  write_state coming
  install_build
  make_users
  make_slurm_settings
  in_turn make_network
  # shellcheck disable=SC2086 # the words of a line are arguments
  for line in "${link_lines[@]}"; do limit_link $line; done
  make_cgroups
  start_munged
  for node in ctl $(node_names); do boot "$node"; done
  wait_for 30 all_idle || { show_trouble && die "the nodes were not idle within 30 s"; }
  # Only now, so that a slow node does not make a slow start.
  limit_cpus
  write_state up
}

require_programs() {
  local program missing=()
  for program in slurmctld slurmd sinfo munged ip tc nsenter unshare setpriv flock; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  ((${#missing[@]} == 0)) ||
    die "missing: ${missing[*]}; apt-get install slurm-wlm munge iproute2 util-linux"
  [[ $accounting == no ]] || require_accounting
  [[ -d /etc/slurm ]] || die "/etc/slurm is missing; apt-get install slurm-wlm"
}

require_accounting() {
  [[ $(type -P slurmdbd) && $(type -P mariadbd) ]] ||
    die "--accounting needs slurmdbd and mariadbd; apt-get install slurmdbd mariadb-server-core"
}

# is_alive: a box came up here and some node of it still lives. In a shell of its own, since the old
# box's settings are not ours.
is_alive() (
  read_state
  [[ $phase == up ]] || exit 1
  for node in ctl $(node_names); do
    if find_init "$node"; then exit 0; fi
  done
  exit 1
)

# abandon STATUS: an `up` that did not get through leaves nothing behind.
abandon() {
  trap '' INT TERM HUP
  trap - EXIT
  (($1 <= 128)) || echo "box: interrupted; cleaning up" >&2
  tear_down
  exit "$1"
}

show_trouble() {
  {
    echo "box: Slurm's states:"
    slurm_states
    echo "box: from $box/log:"
    grep -hiE 'error|fatal' "$box"/log/*.log | tail -n 15
  } >&2
  return 0
}

# change_box: for commands that alter a box that is up; never while another one does.
change_box() {
  require_up
  take_lock 60 || die "another box command has been busy in $box for 60 s"
  require_up
}

command_kill() {
  change_box
  require_node "${1-}"
  no_more_arguments kill "${@:2}"
  find_init "$1" || die "node $1 is dead already"
  # Without power nobody says goodbye: the cable first, so that no peer sees its sockets close.
  set_cable "$1" down
  start_time "$init" && kill -KILL "$init"
  end_processes "$tag-$1" 10 || die "processes of $1 do not end"
  local directory entry
  while read -r directory; do
    for entry in "$directory/$1"/*/; do remove_cgroup_tree "${entry%/}" 5; done
  done <"$box/run/cgroups"
  rm -f "$box/run/$1.init"
}

command_revive() {
  change_box
  require_node "${1-}"
  no_more_arguments revive "${@:2}"
  ! find_init "$1" || die "node $1 is alive"
  end_processes "$tag-$1" 10 || die "processes of $1 do not end"
  [[ -e $box/run/$1.cut ]] || set_cable "$1" up
  boot "$1"
  wait_for 20 listens "$1" || die "node $1 did not come up: $(tail -n 1 "$box/log/$1.boot.log")"
}

command_cut() {
  change_box
  require_node "${1-}"
  no_more_arguments cut "${@:2}"
  set_cable "$1" down
  : >"$box/run/$1.cut"
}

command_mend() {
  change_box
  require_node "${1-}"
  no_more_arguments mend "${@:2}"
  rm -f "$box/run/$1.cut"
  # A dead node stays silent until it is revived.
  if find_init "$1"; then set_cable "$1" up; fi
}

command_link() {
  change_box
  require_link link "$@"
  limit_link "$@"
}

command_cpu() {
  change_box
  (($# == 2)) || usage_error "cpu: expected NODE SPEED, found '$*'"
  declare -gA speeds=()
  parse_speeds "$1=$2"
  limit_cpus
}

command_uplink() {
  local node
  change_box
  (($# > 1)) || usage_error "uplink: expected RATE NODE..., found '$*'"
  require_rate "$1" uplink
  for node in "${@:2}"; do require_node "$node"; done
  second_switch "$@"
}

command_status() {
  no_more_arguments status "$@"
  require_up
  local node life cable states
  states=$(slurm_states)
  echo "box in $box, control groups: $cgroup_version, up with: ${arguments_given:-no options}"
  printf '%-5s %-13s %-10s %-6s %s\n' NODE ADDRESS PROCESSES CABLE SLURM
  for node in ctl $(node_names); do
    life=dead cable=in
    if find_init "$node"; then life=alive; fi
    if [[ -e $box/run/$node.cut ]]; then cable='cut'; fi
    printf '%-5s %-13s %-10s %-6s %s\n' "$node" "$(address_of "$node")" "$life" "$cable" \
      "$(sed -n "s/^$node //p" <<<"$states")"
  done
}

command_env() {
  no_more_arguments env "$@"
  require_up
  printf '%s=%s\n' BOX_DIR "$box" BOX_PREFIX "$box/prefix" BOX_USER "${user_names[0]}" \
    BOX_HOME "$box/home/${user_names[0]}" BOX_LOG "$box/log" BOX_NODES "$node_count"
}

command_down() {
  local purge=no
  if [[ ${1-} == --purge ]]; then purge=yes && shift; fi
  no_more_arguments down "$@"
  if [[ ! -e $box ]]; then echo "box: no box in $box" && return; fi
  is_box_directory || die "$box is not a box"
  take_lock 60 || die "another box command has been busy in $box for 60 s"
  # Half a clean-up would be worse than a late one.
  trap '' INT TERM HUP
  local was_there=no
  [[ -d $box/run || $(box_namespaces) ]] && was_there=yes
  tear_down || exit 1
  if [[ $purge == yes ]]; then
    rm -rf "${box:?}"
    echo "box: down, and $box removed"
  elif [[ $was_there == yes ]]; then
    echo "box: down; logs and homes stay in $box"
  else
    echo "box: no box is up in $box"
  fi
}

no_more_arguments() {
  (($# == 1)) || usage_error "'$1' does not take '$2'; see box --help"
}
