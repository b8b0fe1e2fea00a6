# The network: one namespace per node and a switch between them; cables, limits on links.
# shellcheck shell=bash

address_of() {
  if [[ $1 == ctl ]]; then echo 10.77.0.100; else echo "10.77.0.${1#n}"; fi
}

# hostname_of NODE: what its host calls itself. slurmctld runs only where Slurm's name is the host's.
hostname_of() {
  if [[ $hostnames == yes && $1 != ctl ]]; then echo "host-$1.box.internal"; else echo "$1"; fi
}

# Names of the box's namespaces that exist, its nodes' and its switch's.
box_namespaces() {
  local path
  for path in /run/netns/"$tag"-*; do
    [[ -e $path ]] && echo "${path##*/}"
  done
  return 0
}

# `ip netns` mounts /run/netns over itself when it is first used. Boxes take that mount away again
# if it came with one of them, and take turns with it (the lock is on the directory /run itself).
readonly netns_mark=/run/atbox-mounted-netns
in_turn() { # COMMAND...; a clean-up may begin while we hold the lock already
  [[ ${turn-} ]] || exec {turn}</run
  flock -w 60 "$turn" || die "cannot lock /run"
  "$@"
  exec {turn}<&-
  turn=
}

make_network() {
  local switch=$tag-switch node netns
  mountpoint -q /run/netns || : >"$netns_mark"
  ip netns add "$switch" && ip -n "$switch" link set lo up &&
    ip -n "$switch" link add bridge0 type bridge && ip -n "$switch" link set bridge0 up ||
    die "cannot make the switch (network namespaces and bridges are needed)"
  for node in ctl $(node_names); do
    netns=$tag-$node
    ip netns add "$netns" && ip -n "$netns" link set lo up &&
      ip -n "$netns" link add eth0 type veth peer name "$node" netns "$switch" &&
      ip -n "$switch" link set "$node" master bridge0 up &&
      ip -n "$netns" addr add "$(address_of "$node")/24" dev eth0 &&
      ip -n "$netns" link set eth0 up || die "cannot make the network of $node"
  done
}

# set_cable NODE up|down: the node's port at the switch; the node sees its carrier come and go.
set_cable() { ip -n "$tag-switch" link set "$1" "$2" || die "cannot set the cable of $1 $2"; }

# limit_link A [B] RATE: both directions.
limit_link() {
  if (($# == 2)); then
    limit_node "$1" "$2"
  else
    limit_towards "$1" "$2" "$3"
    limit_towards "$2" "$1" "$3"
  fi
}

# second_switch RATE NODE...: their cables go into another switch, with one cable between the two.
second_switch() {
  local switch=$tag-switch rate=$1 end
  if ! ip -n "$switch" link show bridge1 >/dev/null 2>&1; then
    ip -n "$switch" link add bridge1 type bridge && ip -n "$switch" link set bridge1 up &&
      ip -n "$switch" link add uplink0 type veth peer name uplink1 &&
      ip -n "$switch" link set uplink0 master bridge0 up &&
      ip -n "$switch" link set uplink1 master bridge1 up || die "cannot make a second switch"
  fi
  [[ $rate != none ]] || rate=$unlimited
  for end in uplink0 uplink1; do
    tc -n "$switch" qdisc replace dev "$end" root tbf rate "$rate" burst $burst latency 50ms ||
      die "cannot limit the uplink (the kernel's tbf is needed)"
  done
  for end in "${@:2}"; do
    ip -n "$switch" link set "$end" master bridge1 || die "cannot move the cable of $end"
  done
}

# How the limits lie on a node's eth0: htb 1: with class 1:1 (all the node sends) above 1:2 (what
# goes to destinations without a limit of their own) and one class per limited destination.
# While the node itself has no limit there is no 1:2, and htb lets unclassified packets pass.
# Bursts are small since a full bucket makes the first megabyte after a pause look fast.
readonly unlimited=100gbit burst=32kb
readonly htb_bursts=(burst $burst cburst $burst quantum 60000)

in_node() { # NODE OBJECT VERB ARGUMENTS...: tc on the node's eth0
  tc -n "$tag-$1" "$2" "$3" dev eth0 "${@:4}"
}

ensure_htb() {
  [[ $(in_node "$1" qdisc show) == *'htb 1:'* ]] && return
  in_node "$1" qdisc add root handle 1: htb default 2 &&
    in_node "$1" class add parent 1: classid 1:1 htb rate $unlimited burst 1mb quantum 60000 ||
    die "cannot limit traffic of $1 (the kernel's htb is needed)"
}

# set_class NODE MINOR RATE: a leaf class with a queue of about 50 ms, or none.
set_class() {
  local queue
  if [[ $3 == none ]]; then
    [[ $(in_node "$1" class show) != *"htb 1:$2 "* ]] || in_node "$1" class del classid "1:$2"
    return
  fi
  queue=$(($(bits_of "$3") / 8 / 20 + 65536))
  in_node "$1" class replace parent 1:1 classid "1:$2" htb rate "$3" "${htb_bursts[@]}" &&
    in_node "$1" qdisc replace parent "1:$2" handle "$2:" bfifo limit $queue
}

# Classes and filters are numbered by destination: 100 + the last byte of its address; tc reads
# class numbers as hexadecimal.
limit_towards() {
  local destination number class
  destination=$(address_of "$2")
  number=$((100 + ${destination##*.}))
  class=$(printf %x $number)
  ensure_htb "$1"
  in_node "$1" filter del parent 1: protocol ip prio $number 2>/dev/null
  set_class "$1" "$class" "$3" || die "cannot limit traffic from $1 to $2"
  [[ $3 == none ]] || in_node "$1" filter add parent 1: protocol ip prio $number u32 \
    match ip dst "$destination/32" flowid "1:$class" ||
    die "cannot limit traffic from $1 to $2 (the kernel's u32 is needed)"
}

# limit_node NODE RATE: what it sends in its own classes, what it receives at its switch port.
limit_node() {
  local rate=$2 switch_port=(-n "$tag-switch" qdisc)
  ensure_htb "$1"
  set_class "$1" 2 "$2" || die "cannot limit traffic of $1"
  [[ $rate != none ]] || rate=$unlimited
  in_node "$1" class replace parent 1: classid 1:1 htb rate "$rate" "${htb_bursts[@]}" ||
    die "cannot limit traffic of $1"
  if [[ $2 != none ]]; then
    tc "${switch_port[@]}" replace dev "$1" root tbf rate "$2" burst $burst latency 50ms ||
      die "cannot limit traffic to $1 (the kernel's tbf is needed)"
  elif [[ $(tc "${switch_port[@]}" show dev "$1") == *tbf* ]]; then
    tc "${switch_port[@]}" del dev "$1" root
  fi
}

# bits_of RATE: bits per second.
bits_of() {
  case $1 in
    *kbit) echo "${1%kbit}000" ;;
    *mbit) echo "${1%mbit}000000" ;;
    *gbit) echo "${1%gbit}000000000" ;;
  esac
}

remove_network() {
  local netns
  for netns in $(box_namespaces); do ip netns delete "$netns"; done
  [[ ! -e $netns_mark || $(ls -A /run/netns) ]] || { umount /run/netns && rm "$netns_mark"; }
}
