# One control group per node: where it is made, its share of the CPUs, and its removal.
# A node roots its own cgroup namespace there, so what Slurm makes for jobs lies below it as well.
# shellcheck shell=bash

# list_hierarchies VERSION: lines 'DIRECTORY CONTROLLERS' of the mounted hierarchies, each once.
list_hierarchies() {
  local mount_point rest type options option controllers seen=' ' line
  while read -r _ _ _ _ mount_point rest; do
    line=${rest#* - }
    read -r type _ options <<<"$line"
    case $1:$type in
      v1:cgroup)
        controllers=
        for option in ${options//,/ }; do
          case $option in
            rw | ro | *=* | xattr | noprefix | clone_children) ;;
            *) controllers+=${controllers:+,}$option ;;
          esac
        done
        [[ $controllers && $options != *name=* ]] || continue
        ;;
      v2:cgroup2) controllers=unified ;;
      *) continue ;;
    esac
    [[ $seen == *" $controllers "* ]] && continue
    seen+="$controllers "
    echo "$mount_point $controllers"
  done </proc/self/mountinfo
}

# detect_cgroups: sets cgroup_version to v1, v2 or none. A version counts only when it carries the
# cpu controller and is not read-only: many machines have an empty cgroup2 mount beside v1.
detect_cgroups() {
  local directory controllers controller
  cgroup_version=${BOX_CGROUP:-}
  case $cgroup_version in
    none | v1 | v2) return ;;
    '') cgroup_version=none ;;
    *) usage_error "BOX_CGROUP is '$cgroup_version'; allowed is none, v1 or v2" ;;
  esac
  local -A v1=()
  local v1_complete=yes
  while read -r directory controllers; do
    for controller in ${controllers//,/ }; do v1[$controller]=$directory; done
  done < <(list_hierarchies v1)
  for controller in cpu cpuacct cpuset memory devices freezer; do
    [[ ${v1[$controller]-} ]] || v1_complete=no
  done
  if [[ $v1_complete == yes ]]; then
    [[ -w ${v1[freezer]} ]] && cgroup_version=v1
  else
    read -r directory controllers < <(list_hierarchies v2) || return 0
    [[ " $(cat "$directory/cgroup.controllers" 2>/dev/null) " == *' cpu '* ]] &&
      [[ -w $directory ]] && cgroup_version=v2
  fi
  return 0
}

# require_limits: Slurm can hold jobs to their memory and cores here. It numbers CPUs from the machine's first.
require_limits() {
  local hierarchies controller
  [[ $cgroup_version == v1 ]] ||
    die "--limits needs control groups of version 1, and this box would use: $cgroup_version"
  hierarchies=$(list_hierarchies v1 | tr ', ' '\n\n')
  for controller in cpuset memory; do
    grep -qx "$controller" <<<"$hierarchies" ||
      die "--limits needs the controller $controller, and the machine does not have it"
  done
  # nproc obeys OpenMP's variables.
  local ours all
  ours=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) all=$(nproc --all)
  ((ours == all)) || die "--limits needs all $all CPUs of the machine, and only $ours are ours"
}

# make_cgroups: the directories of all nodes, which learn of them from run/{cgroups,hierarchies}.
# CPUs are shared by groups only where nodes are to have unlike shares: with two nodes busy on two CPUs, Linux 6.18 let nothing
# outside these groups run for up to 27 s, not even munged and the kernel's own threads.
make_cgroups() {
  local directory controllers node
  : >"$box/run/cgroups"
  : >"$box/run/hierarchies"
  [[ $cgroup_version != none ]] || return 0
  while read -r directory controllers; do
    [[ $controllers != cpu || ${#speeds[@]} -gt 0 ]] || continue
    mkdir "$directory/$tag" || die "cannot make the control group $directory/$tag"
    inherit_cpuset "$directory" "$directory/$tag"
    if [[ $cgroup_version == v2 ]] && ((${#speeds[@]} > 0)); then
      enable_cpu_controller "$directory"
    fi
    for node in ctl $(node_names); do
      mkdir "$directory/$tag/$node"
      inherit_cpuset "$directory/$tag" "$directory/$tag/$node"
    done
    echo "$directory/$tag" >>"$box/run/cgroups"
    echo "${directory##*/} $controllers" >>"$box/run/hierarchies"
  done < <(list_hierarchies "$cgroup_version")
  [[ -s $box/run/cgroups ]] ||
    die "BOX_CGROUP=$cgroup_version, but no such control groups are mounted"
}

# inherit_cpuset PARENT CHILD: a new group of the v1 cpuset controller takes no process before this.
inherit_cpuset() {
  local file
  [[ $cgroup_version == v1 && -e $2/cpuset.cpus ]] || return 0
  for file in cpuset.cpus cpuset.mems; do cat "$1/$file" >"$2/$file"; done
}

enable_cpu_controller() {
  local parent
  for parent in "$1" "$1/$tag"; do
    { echo +cpu >"$parent/cgroup.subtree_control"; } 2>/dev/null ||
      die "--cpu needs the cpu controller below $parent, and the machine does not hand it on"
  done
}

# limit_cpus: gives the nodes in speeds their share.
limit_cpus() {
  local node directory quota
  for node in "${!speeds[@]}"; do
    quota=$(quota_of "${speeds[$node]}")
    directory=$(cpu_cgroups) || die "cannot limit the CPUs of $node: the box is up without --cpu"
    if [[ $cgroup_version == v2 ]]; then
      echo "$quota $cpu_period_us" >"$directory/$node/cpu.max"
    else
      echo "$cpu_period_us" >"$directory/$node/cpu.cfs_period_us" &&
        echo "$quota" >"$directory/$node/cpu.cfs_quota_us"
    fi || die "cannot limit the CPUs of $node"
  done
}

# cpu_cgroups: the directory of the nodes' groups that limit CPUs.
cpu_cgroups() {
  local directory
  while read -r directory; do
    [[ -e $directory/ctl/cpu.cfs_quota_us || -e $directory/ctl/cpu.max ]] && echo "$directory" && return
  done <"$box/run/cgroups"
  return 1
}

# box_cgroups: the box's directories in whatever hierarchies are mounted, however far a start got.
box_cgroups() {
  local directory rest
  while read -r directory rest; do
    [[ -d $directory/$tag ]] && echo "$directory/$tag"
  done < <(list_hierarchies v1; list_hierarchies v2)
  return 0
}

# remove_cgroup_tree DIRECTORY SECONDS: children first; a group may stay busy for a moment after its
# last process.
remove_cgroup_tree() {
  local give_up=$((SECONDS + $2))
  while [[ -d $1 ]]; do
    find "$1" -depth -type d -exec rmdir {} + 2>/dev/null
    [[ -d $1 ]] || return 0
    ((SECONDS < give_up)) || return 1
    sleep 0.05
  done
}
