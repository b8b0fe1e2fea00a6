# The arguments of `box up` and `box link`, checked before anything is made.
# shellcheck shell=bash

# parse_up ARG...: sets node_count, gpu_count, link_lines (lines 'A [B] RATE'), speeds (node to
# CPUs), prefix_given, install, load_plugin, plugin_arguments, slurm_lines, hostnames, limits,
# accounting, arguments_given.
parse_up() {
  node_count=4 gpu_count=0 prefix_given='' install=yes load_plugin=yes plugin_arguments='' slurm_lines=''
  hostnames=no limits=no accounting=no
  local rate='' links_file='' cpu=''
  link_lines=()
  declare -gA speeds=()
  arguments_given=$*
  while (($# > 0)); do
    case $1 in
      --nodes | --link | --links | --cpu | --gpus | --prefix | --plugin-args | --slurm)
        (($# > 1)) || usage_error "option $1 needs a value; see box --help" ;;
    esac
    case $1 in
      --nodes) node_count=$2 ;;
      --link) rate=$2 ;;
      --links) links_file=$2 ;;
      --cpu) cpu=$2 ;;
      --gpus) gpu_count=$2 ;;
      --prefix) prefix_given=$2 ;;
      --plugin-args) plugin_arguments=$2 ;;
      --slurm) slurm_lines=$2 ;;
      --no-install) install=no && shift && continue ;;
      --no-plugin) load_plugin=no && shift && continue ;;
      --hostnames) hostnames=yes && shift && continue ;;
      --limits) limits=yes && shift && continue ;;
      --accounting) accounting=yes && shift && continue ;;
      *) usage_error "unknown option '$1' of 'up'; see box --help" ;;
    esac
    shift 2
  done
  [[ $node_count =~ ^[1-9][0-9]?$ ]] && ((node_count <= max_nodes)) ||
    usage_error "--nodes is '$node_count'; allowed is 1 to $max_nodes"
  [[ $gpu_count =~ ^[0-9]$|^1[0-6]$ ]] || usage_error "--gpus is '$gpu_count'; allowed is 0 to 16"
  [[ -z $rate || -z $links_file ]] || usage_error "--link and --links exclude each other"
  [[ -z $prefix_given || $install == yes ]] ||
    usage_error "--prefix and --no-install exclude each other"
  [[ -z $prefix_given || -d $prefix_given ]] ||
    usage_error "--prefix is '$prefix_given', which is not a directory"
  [[ $plugin_arguments != *[$'\n#']* ]] ||
    usage_error "--plugin-args may hold neither a line break nor #"
  [[ $slurm_lines != *[$'\n#']* ]] ||
    usage_error "--slurm may hold neither a line break nor #"
  parse_links "$rate" "$links_file"
  parse_speeds "$cpu"
}

# parse_links RATE FILE: one of them or none is given; fills link_lines.
parse_links() {
  local node words line number=0
  if [[ $1 ]]; then
    require_rate "$1" "--link"
    for node in $(node_names); do link_lines+=("$node $1"); done
  fi
  [[ $2 ]] || return 0
  [[ -r $2 && ! -d $2 ]] || usage_error "--links is '$2', which cannot be read"
  while IFS= read -r line || [[ $line ]]; do
    ((number += 1))
    read -ra words <<<"${line%%#*}" || true
    ((${#words[@]} > 0)) || continue
    require_link "$2:$number" "${words[@]}"
    link_lines+=("${words[*]}")
  done <"$2"
}

# require_link PLACE WORD...: the words must be A RATE or A B RATE.
require_link() {
  local place=$1 node
  shift
  (($# == 2 || $# == 3)) || usage_error "$place: expected 'A RATE' or 'A B RATE', found '$*'"
  for node in "${@:1:$#-1}"; do
    is_node "$node" || usage_error "$place: unknown node '$node'; allowed is $(allowed_nodes)"
  done
  [[ $# == 2 || $1 != "$2" ]] || usage_error "$place: node $1 has no link to itself"
  require_rate "${!#}" "$place"
}

# require_rate RATE PLACE
require_rate() {
  [[ $1 == none || $1 =~ ^[1-9][0-9]{0,5}(kbit|mbit|gbit)$ ]] ||
    usage_error "$2: rate '$1' is not understood; write it like 500kbit, 200mbit, 1gbit or none"
}

# parse_speeds LIST: fills speeds from n1=0.5,n4=0.15.
parse_speeds() {
  local item node speed items
  [[ $1 ]] || return 0
  IFS=, read -ra items <<<"$1"
  for item in "${items[@]}"; do
    node=${item%%=*} speed=${item#*=}
    is_node "$node" || usage_error "--cpu: unknown node '$node'; allowed is $(allowed_nodes)"
    [[ $item == *=* && $speed =~ ^[0-9]{1,3}(\.[0-9]{1,3})?$ ]] &&
      (($(quota_of "$speed") >= 1000)) ||
      usage_error "--cpu: '$item' is not understood; write NODE=CPUS, CPUS from 0.1 up: n1=0.5"
    speeds[$node]=$speed
  done
}

# quota_of SPEED: microseconds of CPU time in each period. A period longer than 10 ms makes the
# training steps of a slowed node noisy.
readonly cpu_period_us=10000
quota_of() {
  local whole=${1%%.*} fraction=000
  [[ $1 != *.* ]] || fraction=${1#*.}00
  echo $(((10#$whole * 1000 + 10#${fraction:0:3}) * cpu_period_us / 1000))
}

node_names() {
  local i
  for ((i = 1; i <= node_count; i++)); do echo "n$i"; done
}
