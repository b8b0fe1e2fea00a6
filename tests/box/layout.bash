# What lies in the box's directory before a node boots: our build, Slurm's settings, users, homes.
# shellcheck shell=bash

make_directories() {
  rm -rf "${box:?}"/{run,etc,log,dev,prefix}
  mkdir "$box"/{run,etc,log,dev,prefix} "$box/run/bin" "$box/etc/slurm" && mkdir -p "$box/home" ||
    die "cannot write to $box"
  local node
  for node in ctl $(node_names); do mkdir -p "$box/run/$node/spool"; done
  # Nodes run copies: the repository may lie where they cannot see it, and may change under them.
  cp "$here"/{munged-start,node-start,node-init,accounting-start} "$box/run/bin/"
}

# require_build: sets build to what will be installed, if that is what `up` is to do.
require_build() {
  build=$repository/build/${ADAPTIVE_TRAIN_PRESET:-release}
  [[ $install == no || $prefix_given || -f $build/cmake_install.cmake ]] ||
    die "nothing is built in $build; build it, or use --no-install"
}

# install_build: our programs and plugin to prefix/; sets plugin_file ('' where none is to be
# loaded) and probe_file.
install_build() {
  plugin_file='' probe_file=''
  [[ $install == yes ]] || return 0
  if [[ $prefix_given ]]; then
    cp -a --no-preserve=ownership "$prefix_given/." "$box/prefix/" ||
      die "cannot copy $prefix_given to $box/prefix"
  else
    cmake --install "$build" --prefix "$box/prefix" >"$box/log/install.log" 2>&1 ||
      die "installing $build failed: $(tail -n 1 "$box/log/install.log")"
  fi
  [[ $load_plugin == yes ]] || return 0
  local tree=${prefix_given:-$box/prefix} debian_lib
  debian_lib=lib/$(uname -m)-linux-gnu
  plugin_file=$(find_in_prefix {,usr/}{lib,lib64,"$debian_lib"}/slurm/adaptive_train.so) ||
    die "no lib/slurm or lib64/slurm/adaptive_train.so below $tree; use --no-plugin to go without"
  probe_file=$(find_in_prefix {,usr/}{bin,libexec,libexec/adaptive-train}/adaptive-train-probe) ||
    die "no bin/adaptive-train-probe below $tree"
}

# find_in_prefix CANDIDATE...: prints the first that is there, as an absolute path.
find_in_prefix() {
  local candidate
  for candidate in "$@"; do
    [[ -f $box/prefix/$candidate ]] && echo "$box/prefix/$candidate" && return
  done
  return 1
}

# make_users: the box's own passwd and group, which only nodes see; homes keep what is in them.
make_users() {
  local name database id=20001
  for database in passwd group; do
    grep -vE "^($(IFS='|' && echo "${user_names[*]}")):" "/etc/$database" >"$box/etc/$database"
  done
  user_id=
  for name in "${user_names[@]}"; do
    while getent passwd $id >/dev/null || getent group $id >/dev/null; do ((id += 1)); done
    user_id=${user_id:-$id}
    echo "$name:x:$id:$id:$name of the box:$box/home/$name:/bin/bash" >>"$box/etc/passwd"
    echo "$name:x:$id:" >>"$box/etc/group"
    mkdir -p "$box/home/$name" && chown -h "$id:$id" "$box/home/$name" &&
      chmod 755 "$box/home/$name" ||
      die "cannot make the home of $name in $box/home"
    ((id += 1))
  done
  setpriv --reuid "$user_id" --regid "$user_id" --clear-groups test -x "$box/home" ||
    die "a directory above $box is closed to ordinary users; set ADAPTIVE_TRAIN_BOX"
  cp "$here/etc/nsswitch.conf" "$box/etc/nsswitch.conf"
}

make_slurm_settings() {
  local proctrack=linuxproc task=none gather=linux storage=none settings=''
  local consumed=CR_Core cpus=CPUs=8 node name
  [[ $cgroup_version != v1 ]] || proctrack=cgroup task=cgroup gather=cgroup
  echo "127.0.0.1 localhost" >"$box/etc/hosts"
  for node in ctl $(node_names); do
    name=$(hostname_of "$node")
    echo "$(address_of "$node") $name ${name%%.*}"
  done >>"$box/etc/hosts"

  [[ $hostnames == no ]] || settings+=" NodeHostname=host-n[1-$node_count]"
  if [[ $limits == yes ]]; then
    # Slurm pins to the machine's CPUs only where it knows how they lie.
    task=affinity,task/cgroup consumed=CR_Core_Memory
    cpus=$(slurmd -C | sed -n 's/^NodeName=[^ ]* \(.*\) RealMemory=.*/\1/p')
  fi
  [[ $accounting == no ]] || make_accounting_settings
  sed "s/@LIMITS@/$limits/" "$here/etc/cgroup.conf" >"$box/etc/slurm/cgroup.conf"
  : >"$box/etc/slurm/gres.conf"
  if ((gpu_count > 0)); then
    make_fake_gpus
    settings+=" Gres=gpu:$gpu_count"
  fi
  {
    sed -e "s#@LOG@#$box/log#" -e "s#@PROCTRACK@#$proctrack#" -e "s#@TASK@#$task#" \
      -e "s#@GATHER@#$gather#" -e "s#@CONSUMED@#$consumed#" -e "s#@ACCOUNTING@#$storage#" "$here/etc/slurm.conf"
    [[ $accounting == no ]] || echo AccountingStorageHost=ctl
    ((gpu_count == 0)) || echo GresTypes=gpu
    echo "NodeName=n[1-$node_count] NodeAddr=10.77.0.[1-$node_count] $cpus RealMemory=4000$settings"
    echo "PartitionName=main Nodes=n[1-$node_count] Default=YES MaxTime=INFINITE State=UP"
    tr ';' '\n' <<<"$slurm_lines"
  } >"$box/etc/slurm/slurm.conf"
  if [[ $plugin_file ]]; then
    echo "optional $plugin_file probe=$probe_file $plugin_arguments"
  fi >"$box/etc/slurm/plugstack.conf"
}

# make_accounting_settings: slurmdbd wants its file closed to others; the users are to have an account.
make_accounting_settings() {
  storage=slurmdbd
  (umask 077 && sed "s#@LOG@#$box/log#" "$here/etc/slurmdbd.conf" >"$box/etc/slurm/slurmdbd.conf")
  echo "${user_names[*]}" >"$box/run/users"
}

# Slurm wants device files it can stat; a Count without File makes the node invalid.
make_fake_gpus() {
  local i
  for ((i = 0; i < gpu_count; i++)); do
    mknod -m 666 "$box/dev/fakegpu$i" c 1 3 || die "cannot make device files in $box/dev"
  done
  echo "NodeName=n[1-$node_count] Name=gpu File=$box/dev/fakegpu[0-$((gpu_count - 1))]" \
    >"$box/etc/slurm/gres.conf"
}
