# Where a box is, what it is called in the kernel's tables, and who may change it at a time.
# shellcheck shell=bash

readonly user_names=(ada bob)
readonly max_nodes=20

# locate_box: sets box (its directory) and tag (its name in netns and cgroup names).
locate_box() {
  local wanted=${ADAPTIVE_TRAIN_BOX:-/var/tmp/adaptive-train-box}
  [[ $wanted =~ ^/[A-Za-z0-9._/+-]+$ ]] ||
    usage_error "ADAPTIVE_TRAIN_BOX is '$wanted'; write an absolute path of letters, digits, ._+-/"
  box=$(realpath -m "$wanted")
  local digest
  digest=$(printf %s "$box" | sha256sum)
  tag=atbox-${digest:0:6}
}

# A directory is a box's when it holds box.lock; anything else is never written to or emptied.
is_box_directory() { [[ -f $box/box.lock && -O $box ]]; }

create_box_directory() {
  if [[ -e $box ]] && ! is_box_directory; then
    [[ -d $box && -O $box ]] || die "$box exists and is not a directory owned by root"
    [[ -z $(ls -A "$box") ]] ||
      die "$box is not empty and not a box; set ADAPTIVE_TRAIN_BOX to another directory"
  fi
  mkdir -p "$box" && chmod 755 "$box" && : >>"$box/box.lock" || die "cannot write to $box"
}

# take_lock SECONDS: one command at a time changes the box. The lock is lost with the file
# descriptor, so a killed command leaves none behind; `down --purge` removes the file while
# others may wait for it, hence the second look.
take_lock() {
  while :; do
    exec {lock_fd}>>"$box/box.lock" || die "cannot open $box/box.lock"
    flock -w "$1" "$lock_fd" || return 1
    [[ $box/box.lock -ef /proc/self/fd/$lock_fd ]] && return 0
    exec {lock_fd}>&-
    create_box_directory
  done
}

# read_state: sets phase (none, coming, up) and, unless none, the settings the box came up with.
read_state() {
  phase=none
  # shellcheck source=/dev/null
  if is_box_directory && [[ -f $box/run/state ]]; then source "$box/run/state"; fi
}

# write_state PHASE
write_state() {
  local name
  {
    printf 'phase=%q\n' "$1"
    for name in node_count cgroup_version hostnames accounting user_id plugin_file arguments_given; do
      printf '%s=%q\n' "$name" "${!name}"
    done
  } >"$box/run/state.new" && mv "$box/run/state.new" "$box/run/state"
}

require_up() {
  read_state
  [[ $phase == up ]] || die "no box is up in $box; start one with: box up"
}

# require_node NAME: NAME is ctl or one of the box's nodes.
require_node() {
  [[ ${1-} ]] || usage_error "no node given; allowed is $(allowed_nodes)"
  is_node "$1" || usage_error "unknown node '$1'; allowed is $(allowed_nodes)"
}

# is_node NAME: needs node_count.
is_node() {
  [[ $1 == ctl ]] || { [[ $1 =~ ^n([1-9][0-9]?)$ ]] && ((BASH_REMATCH[1] <= node_count)); }
}

allowed_nodes() { echo "ctl and n1..n$node_count"; }

# start_time PID: sets started to when the process started (clock ticks since boot), or fails.
start_time() {
  local stat fields
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != [ZX] ]] || return 1
  started=${fields[19]}
}

# find_init NODE: sets init to the pid of the node's pid 1 as seen from here; fails when it is dead.
# The start time tells it from another process that got the same number later.
find_init() {
  local recorded
  { read -r init recorded <"$box/run/$1.init"; } 2>/dev/null || return 1
  start_time "$init" && [[ $started == "$recorded" ]]
}

# close_descriptors [KEPT]: all but 0, 1, 2 and KEPT. What the caller had open (a test runner's
# pipes, say) must not live as long as what is started here. (bash itself closes its 255.)
close_descriptors() {
  local entry number
  for entry in "/proc/$BASHPID/fd"/*; do
    number=${entry##*/}
    ((number <= 2 || number == 255 || number == ${1:-0})) || eval "exec $number>&-"
  done
}
