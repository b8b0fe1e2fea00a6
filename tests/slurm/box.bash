# What the bats files of this folder share: `load box`, then box_up_once in setup_file and box_down
# in teardown_file. A file can have a box of its own by exporting ADAPTIVE_TRAIN_BOX before.
# shellcheck shell=bash

source "$(dirname "${BASH_SOURCE[0]}")/../wait_until.bash"
# In memory: where a disk holds up slurmctld's writes for 10 s, Slurm gives nodes up.
export ADAPTIVE_TRAIN_BOX=${ADAPTIVE_TRAIN_BOX:-/dev/shm/adaptive-train-box}
box_program=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../box/box")

# box ARG...: bats reads its descriptor 3 until all who hold it are gone, so nobody gets it.
box() { "$box_program" "$@" 3>&-; }

# box_up_once ARG...: a box that is up with the same arguments is used as it is, another replaced.
box_up_once() {
  BOX_UP=${*@Q}
  export BOX_UP # for box_anew
  if [[ $(box env 2>/dev/null) && $(box_arguments) == "$*" ]]; then return 0; fi
  box down >/dev/null && box up "$@"
}

# box_anew: as box_up_once had it, whatever has become of it.
box_anew() {
  local arguments
  eval "arguments=($BOX_UP)"
  box down >/dev/null && box up "${arguments[@]}"
}

# box_arguments: what the running box came up with.
box_arguments() { box status | sed -n '1s/.*, up with: //p' | sed 's/^no options$//'; }

box_down() { box down; }

# box_on NODE CMD...: as the box's ordinary user. box_root NODE CMD...: as root.
box_on() { box on "$1" --user "${@:2}"; }
box_root() { box on "$@"; }

# box_value NAME: one of the values of `box env`, such as BOX_HOME.
box_value() { box env | sed -n "s/^$1=//p"; }

# node_state NODE: Slurm's word for it, such as idle or down.
node_state() { box_root ctl sinfo -h -n "$1" -o %T; }

# node_is NODE STATE
node_is() { [[ $(node_state "$1") == "$2"* ]]; }
