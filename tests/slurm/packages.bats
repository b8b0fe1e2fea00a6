#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031 # every test is a subshell; what one sets is meant for it alone
# What administrators install: the RPM packages are built, looked at, unpacked, and run in a box.
# ADAPTIVE_TRAIN_RPMS=DIR takes packages that packaging/rpm/build has put there already, with the macros of el9.macros.

load box

# shellcheck source=tests/slurm/packages.bash
source "$BATS_TEST_DIRNAME/packages.bash"

setup_file() {
  if ((EUID != 0)); then echo "these tests need root" >&2 && return 1; fi
  export ADAPTIVE_TRAIN_BOX=/var/tmp/adaptive-train-box-packages.$$
  export rpms=${ADAPTIVE_TRAIN_RPMS:-$BATS_FILE_TMPDIR/rpms} root=$BATS_FILE_TMPDIR/root macros=$BATS_TEST_DIRNAME/el9.macros
  if [[ -z ${ADAPTIVE_TRAIN_RPMS-} ]]; then
    "$repository/packaging/rpm/build" --working-tree "$rpms" -- --load "$macros" >"$BATS_FILE_TMPDIR/build.log" 2>&1 3>&- ||
      { tail -n 40 "$BATS_FILE_TMPDIR/build.log" >&2 && return 1; }
  fi
  mkdir "$root"
  local name
  for name in "${packages[@]}"; do
    rpm2cpio "$(package "$name")" | cpio -idm --quiet -D "$root" || return 1
  done
}

teardown_file() { box down --purge; }

# package NAME: the file of a binary package.
package() { echo "$rpms/$1-$(<"$repository/VERSION")-1"*."$(uname -m).rpm"; }

# files NAME: what a package holds, without the links that rpm makes for debuggers.
files() { rpm -qp --list "$(package "$1")" | grep -v '^/usr/lib/\.build-id'; }

@test "each package holds its part, and no part is in both" {
  holds adaptive-train /usr/bin/adaptive-train{,-worker,-probe} \
    /usr/share/adaptive-train/examples/quickstart.toml '/usr/share/licenses/.*/LICENSE' \
    /usr/share/man/man1/adaptive-train{,-run,-data,-eval,-export,-import,-jobs,-probe,-worker}.1.gz
  holds adaptive-train-slurm /usr/lib64/slurm/adaptive_train.so "/$drop_in" \
    '/usr/share/man/man8/adaptive-train-slurm.8.gz' '/usr/share/doc/.*/admin_guide.md'
  holds adaptive-traind /usr/sbin/adaptive-traind /usr/lib/systemd/system/adaptive-traind.service \
    /usr/lib/sysusers.d/adaptive-traind.conf /etc/adaptive-train/adaptive-traind.toml /usr/share/man/man8/adaptive-traind.8.gz
  [ "$(rpm -qp --configfiles "$(package adaptive-traind)")" = /etc/adaptive-train/adaptive-traind.toml ]
  [ -z "$(comm -12 <(files adaptive-train | sort) <(files adaptive-train-slurm | sort))" ]
  run bash -c "$(declare -f package files); repository=$repository; files adaptive-train | grep -E 'slurm|/etc'"
  [ -z "$output" ]
}

@test "all belongs to root, nothing is setuid or writable by others" {
  local name wrong
  for name in "${packages[@]}"; do
    rpm -qp --qf '[%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES}\n]' "$(package "$name")"
  done >"$BATS_TEST_TMPDIR/modes"
  [ "$(wc -l <"$BATS_TEST_TMPDIR/modes")" -gt 10 ]
  wrong=$(grep -vE '^(-rw-r--r--|-rwxr-xr-x|drwxr-xr-x|lrwxrwxrwx) root:root /' "$BATS_TEST_TMPDIR/modes" || true)
  [ -z "$wrong" ] || { echo "$wrong" && false; }
  grep -qx -- '-rwxr-xr-x root:root /usr/lib64/slurm/adaptive_train.so' "$BATS_TEST_TMPDIR/modes"
  grep -qx -- "-rw-r--r-- root:root /$drop_in" "$BATS_TEST_TMPDIR/modes"
}

@test "the drop-in is switched off, and an administrator's own is kept" {
  is_switched_off "$root/$drop_in"
  [ "$(rpm -qp --configfiles "$(package adaptive-train-slurm)")" = "/$drop_in" ]
  # 17 is config and noreplace, as rpm writes them.
  [ "$(rpm -qp --qf '[%{FILEFLAGS} %{FILENAMES}\n]' "$(package adaptive-train-slurm)" | grep "$drop_in")" = "17 /$drop_in" ]
}

@test "the plugin's package wants the Slurm release that it was built for, and its own probe" {
  local installed release requires
  installed=$(slurmd -V)
  release=$(cut -d. -f1,2 <<<"${installed#* }")
  requires=$(rpm -qp --requires "$(package adaptive-train-slurm)")
  grep -qxF "slurm >= $release" <<<"$requires"
  grep -qxF "slurm < ${release%.*}.$(printf %02d $((10#${release#*.} + 1)))" <<<"$requires"
  grep -qE "^adaptive-train(\(.*\))? = $(<"$repository/VERSION")-1" <<<"$requires"
  # What else Slurm's daemons would have to load.
  run grep -E '^lib.*\.so' <<<"$(grep -vE '^lib(c|m|stdc\+\+|gcc_s)\.so' <<<"$requires")"
  [ -z "$output" ]
}

@test "no package runs anything when it is installed or removed" {
  local name
  for name in adaptive-train adaptive-train-slurm; do
    [ -z "$(rpm -qp --scripts --triggers "$(package "$name")")" ]
  done
}

# scratch_system SLURM-RELEASE: $system is the root of a machine that has rpm's database, what scriptlets call, and a
# package that provides what ours want of a distribution with this Slurm.
scratch_system() {
  local work=$BATS_TEST_TMPDIR/scratch.$1 name
  system=$work/root
  mkdir -p "$system"
  copied_into "$system" /bin/sh /usr/bin/getent /usr/sbin/{group,user}add
  accounts "$system"
  records_words "$system"
  rpm --root "$system" --initdb
  {
    printf '%s\n' 'Name: scratch-distribution' 'Version: 1' 'Release: 1' 'Summary: What packages want' 'License: MIT' \
      'BuildArch: noarch' "Provides: slurm = $1"
    for name in "${packages[@]}"; do rpm -qp --requires "$(package "$name")"; done |
      grep -vE '^(rpmlib\(|config\(|adaptive-train|slurm )' | sort -u | sed 's/^/Provides: /'
    printf '%s\n' '%description' '%{summary}.' '%files'
  } >"$work/scratch.spec"
  rpmbuild --define "_topdir $work" -bb "$work/scratch.spec" >"$work/log" 2>&1 || { cat "$work/log" && return 1; }
  rpm_in -i "$work"/RPMS/noarch/*.rpm
}

# copied_into ROOT PROGRAM...: programs of this machine with their libraries.
copied_into() {
  local program file
  for program in "${@:2}"; do
    for file in "$program" $(ldd "$program" | grep -o '/[^ ]*'); do install -D "$(readlink -f "$file")" "$1$file"; done
  done
}

# accounts ROOT: what useradd wants: root's own account, and a file to throw words into.
accounts() {
  mkdir -p "$1"/{dev,etc}
  echo 'root:x:0:0:root:/root:/bin/sh' >"$1/etc/passwd"
  echo 'root:x:0:' >"$1/etc/group"
  touch "$1"/dev/null "$1"/etc/{shadow,gshadow,login.defs}
}

# records_words ROOT [STATUS]: systemd's helper for scriptlets writes down what it is told, and ends with that status.
records_words() {
  install -D -m 755 /dev/stdin "$1/usr/lib/systemd/systemd-update-helper" <<SH
#!/bin/sh
echo "\$*" >>/told
exit ${2:-0}
SH
}

# told WORDS...: what the helper of the scratch root was told since this was asked last, one line each, and nothing else.
told() {
  [ "$(cat "$system/told" 2>/dev/null)" = "$(if (($# > 0)); then printf '%s\n' "$@"; fi)" ] ||
    { echo "told: $(cat "$system/told" 2>/dev/null), not: $*" && return 1; }
  rm -f "$system/told"
}

# rpm_in ARG...: rpm in that root; Debian's has to say something about alien every time.
rpm_in() { rpm --root "$system" "$@" 2> >(grep -vE '^rpm: (RPM should not be used|However assuming)' >&2); }

# scriptlets FILE: those of a package, as a spec has them.
scriptlets() {
  rpm -qp --qf '%|PREIN?{%%pre\n%{PREIN}\n}|%|POSTIN?{%%post\n%{POSTIN}\n}|' "$1"
  rpm -qp --qf '%|PREUN?{%%preun\n%{PREUN}\n}|%|POSTUN?{%%postun\n%{POSTUN}\n}|' "$1"
}

# package_before NAME: makes release 0 of a package, and prints its file: with all that release 1 has, one file more, and other
# configuration files.
package_before() {
  local work=$BATS_TEST_TMPDIR/before.$1 gone=/usr/share/$1.gone file
  mkdir -p "$work/files$(dirname "$gone")"
  touch "$work/files$gone"
  {
    printf '%s\n' "Name: $1" "Version: $(<"$repository/VERSION")" 'Release: 0' 'Summary: The release before' 'License: MIT' \
      'AutoReqProv: no' '%global debug_package %{nil}' '%global __os_install_post %{nil}' '%global _build_id_links none' \
      '%description' '%{summary}.' '%install' "cp -a $work/files/. %{buildroot}/"
    scriptlets "$(package "$1")"
    printf '%s\n' '%files' "$gone"
    while IFS= read -r file; do
      if [[ -d $root$file ]]; then
        mkdir -p "$work/files$file"
        echo "%dir $file"
        continue
      fi
      mkdir -p "$work/files$(dirname "$file")"
      cp -a "$root$file" "$work/files$file"
      if rpm -qp --configfiles "$(package "$1")" | grep -qxF "$file"; then
        echo '# Of the release before.' >>"$work/files$file"
        echo "%config(noreplace) $file"
      else
        echo "$file"
      fi
    done < <(files "$1")
  } >"$work/before.spec"
  rpmbuild --define "_topdir $work" -bb "$work/before.spec" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2 && return 1; }
  echo "$work/RPMS/$(uname -m)/$1"-*.rpm
}

@test "installed, upgraded and removed in a scratch root: an administrator's lines are kept, and nothing else is left" {
  local version name user before=() after=()
  version=$(<"$repository/VERSION")
  scratch_system "$(slurmd -V | cut -d' ' -f2)"
  for name in "${packages[@]}"; do
    before+=("$(package_before "$name")")
    after+=("$(package "$name")")
  done
  rpm_in -i "${before[@]}"
  [ -e "$system/usr/share/adaptive-train-slurm.gone" ]
  told 'install-system-units adaptive-traind.service'
  user=$(service_user "$system")
  administrator_edits "$system"

  rpm_in -U "${after[@]}"
  [ "$(rpm_in -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\n' 'adaptive*' | sort)" = "$(printf "%s $version-1\n" "${packages[@]}" | sort)" ]
  [ "$(find "$system" -name '*.gone')" = "" ]
  told 'mark-restart-system-units adaptive-traind.service'
  edits_are_kept "$system"
  cmp "$root/$drop_in" "$system/$drop_in.rpmnew"
  cmp "$root/$options" "$system/$options.rpmnew"
  # All is as the packages have it, but for what the administrator wrote.
  rpm_in -V "${packages[@]}" >"$BATS_TEST_TMPDIR/differs" || true
  [ "$(awk '{ print $NF }' "$BATS_TEST_TMPDIR/differs" | sort | xargs)" = "/$options /$drop_in" ] || { cat "$BATS_TEST_TMPDIR/differs" && false; }

  rpm_in -e "${packages[@]}"
  [ "$(rpm_in -qa 'adaptive*')" = "" ]
  told 'remove-system-units adaptive-traind.service'
  # The store's files are still his.
  [ "$(service_user "$system")" = "$user" ]
  # rpm keeps what an administrator changed, and what it had put beside that.
  [ "$(find "$system" ! -type d \( -path '*adaptive*' -o -path '*/.build-id/*' \) -printf '/%P\n' | sort | xargs)" = \
    "$(printf '%s\n' "/$drop_in".rpm{new,save} "/$options".rpm{new,save} | sort | xargs)" ] || { find "$system" -path '*adaptive*' && false; }
}

# service_user ROOT: prints the account of the service; it must be a system's, as the unit and sysusers.d want it.
service_user() {
  local name password uid gid rest
  IFS=: read -r name password uid gid rest < <(grep '^adaptive-traind:' "$1/etc/passwd")
  echo "$name:$password:$uid:$gid:$rest"
  ((uid > 0 && uid < 1000)) && grep -q "^adaptive-traind:x:$gid:" "$1/etc/group" &&
    [ "$rest" = 'Profile store of adaptive-train:/var/lib/adaptive-train:/usr/sbin/nologin' ]
}

@test "the user that the scriptlet makes is the one that systemd would make" {
  local user
  scratch_system "$(slurmd -V | cut -d' ' -f2)"
  rpm_in -i "$(package adaptive-train)" "$(package adaptive-traind)"
  user=$(service_user "$system")
  # As EL 9's systemd does after each transaction that brings such a file.
  systemd-sysusers --root="$system"
  [ "$(service_user "$system")" = "$user" ]
  cp "$system/usr/lib/sysusers.d/adaptive-traind.conf" "$BATS_TEST_TMPDIR/"
  mkdir "$BATS_TEST_TMPDIR/other"
  accounts "$BATS_TEST_TMPDIR/other"
  systemd-sysusers --root="$BATS_TEST_TMPDIR/other" "$BATS_TEST_TMPDIR/adaptive-traind.conf"
  service_user "$BATS_TEST_TMPDIR/other"
}

# there_and_back FILE: this release before of the service is installed, upgraded and removed.
there_and_back() {
  rpm_in -i "$1" && rpm_in -U "$(package adaptive-traind)" && rpm_in -e adaptive-traind
}

@test "without systemd's helper, and with one that fails, the service's package comes and goes, and a user who was there stays" {
  local accounts old
  scratch_system "$(slurmd -V | cut -d' ' -f2)"
  old=$(package_before adaptive-traind)
  echo 'adaptive-traind:x:970:970::/srv:/bin/false' >>"$system/etc/passwd"
  echo 'adaptive-traind:x:970:' >>"$system/etc/group"
  accounts=$(cat "$system"/etc/{passwd,group})

  rm "$system/usr/lib/systemd/systemd-update-helper"
  run there_and_back "$old"
  [ "$status" -eq 0 ] && [ -z "$output" ] || { echo "$output" && false; }
  told

  records_words "$system" 1
  run there_and_back "$old"
  [ "$status" -eq 0 ] && [ -z "$output" ] || { echo "$output" && false; }
  told {install,mark-restart,remove}-system-units' adaptive-traind.service'
  [ "$(cat "$system"/etc/{passwd,group})" = "$accounts" ]
}

@test "the service's package asks for what its scriptlets call, before they run" {
  [ "$(rpm -qp --qf '[%{REQUIREFLAGS:deptype} %{REQUIRENAME}\n]' "$(package adaptive-traind)" | grep -E ' (systemd|shadow-utils)$' | sort)" = \
    "$(printf '%s\n' 'post systemd' 'postun systemd' 'pre shadow-utils' 'preun systemd')" ]
}

# spec_read ARG...: rpmspec on our spec, with the sources that it reads, as on a machine that has nothing else of ours.
spec_read() {
  mkdir -p "$BATS_TEST_TMPDIR/sources"
  cp "$repository"/VERSION "$repository/packaging/systemd/adaptive-traind.sysusers" "$BATS_TEST_TMPDIR/sources/"
  (cd "$BATS_TEST_TMPDIR" && rpmspec --define "_sourcedir $PWD/sources" "$@" "$repository/packaging/rpm/adaptive-train.spec")
}

@test "where rpm has no macros of systemd, the spec has places for its files and no scriptlets" {
  spec_read -P >"$BATS_TEST_TMPDIR/spec"
  run grep -E '%(_|systemd|sysusers)|update-helper|useradd' "$BATS_TEST_TMPDIR/spec"
  [ -z "$output" ] || { echo "$output" && false; }
  grep -qx /usr/lib/systemd/system/adaptive-traind.service "$BATS_TEST_TMPDIR/spec"
  grep -qx /usr/lib/sysusers.d/adaptive-traind.conf "$BATS_TEST_TMPDIR/spec"
}

@test "where rpm has them, they read what goes with the source package" {
  # A file that is in a checkout alone would make an empty scriptlet elsewhere, and nobody would be told.
  spec_read --load "$macros" -P >"$BATS_TEST_TMPDIR/spec"
  [ "$(grep -c "useradd .*'adaptive-traind'" "$BATS_TEST_TMPDIR/spec")" -eq 1 ]
  [ "$(grep -c '/systemd-update-helper [a-z-]* adaptive-traind.service' "$BATS_TEST_TMPDIR/spec")" -eq 3 ]
}

@test "all that the spec asks for by name is known to be in EL 9 or EPEL 9" {
  local known=$BATS_TEST_DIRNAME/el9.names
  { spec_read --load "$macros" --define 'rhel 9' -q --buildrequires
    spec_read --load "$macros" --define 'rhel 9' -q --requires; } | cut -d' ' -f1 | grep -v '^adaptive-train' | sort -u >"$BATS_TEST_TMPDIR/asked"
  [ "$(wc -l <"$BATS_TEST_TMPDIR/asked")" -gt 20 ]
  # A name that is new here has to be looked up and written into that file, and one that is gone out of it.
  diff <(grep -v '^#' "$known" | cut -d' ' -f1 | sort -u) "$BATS_TEST_TMPDIR/asked"
}

@test "another release of Slurm is refused, and nothing is installed" {
  scratch_system 20.11.9
  run rpm_in -i "$(package adaptive-train)" "$(package adaptive-train-slurm)"
  [ "$status" -ne 0 ]
  [[ $output == *"slurm >= "*" is needed by adaptive-train-slurm"* ]] || { echo "$output" && false; }
  [ "$(rpm_in -qa 'adaptive*')" = "" ]
}

@test "the source package can make the packages again: sources, spec and version" {
  local source
  source=$(echo "$rpms"/adaptive-train-*.src.rpm)
  [ "$(rpm -qp --list "$source" | sort | xargs)" = \
    "VERSION adaptive-train-$(<"$repository/VERSION").tar.gz adaptive-train.spec adaptive-traind.sysusers" ]
  run tar -tzf "$rpms/adaptive-train-$(<"$repository/VERSION").tar.gz"
  [ "$status" -eq 0 ]
  grep -qx 'adaptive-train-[0-9.]*/CMakeLists.txt' <<<"$output"
  run grep -E '^adaptive-train-[0-9.]*/(build|runs|\.git)/' <<<"$output"
  [ -z "$output" ]
}

@test "the programs know their version" {
  [ "$("$root/usr/bin/adaptive-train" --version)" = "$(<"$repository/VERSION")" ]
  [ "$("$root/usr/bin/adaptive-train-probe" --version)" = "adaptive-train-probe $(<"$repository/VERSION")" ]
}

# page NAME: a manual page as text; what the formatter complains of is an error.
page() {
  local complaints=$BATS_TEST_TMPDIR/complaints
  gzip -dc "$root"/usr/share/man/man?/"$1".gz | groff -mdoc -ww -Tascii -P-c -P-b -P-u 2>"$complaints"
  [ ! -s "$complaints" ] || { cat "$complaints" >&2 && return 1; }
}

@test "manual pages name every option and verb of the programs" {
  local verb verbs help word text
  verbs=$("$root/usr/bin/adaptive-train" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
  [ -n "$verbs" ]
  text=$(page adaptive-train.1)
  for verb in $verbs; do
    grep -qF "adaptive-train-$verb(1)" <<<"$text" || { echo "adaptive-train.1 lacks $verb" && false; }
  done
  for verb in $verbs; do
    text=$(page "adaptive-train-$verb.1")
    help=$("$root/usr/bin/adaptive-train" "$verb" --help | grep -oE '^ +-[-a-zA-Z0-9,]+')
    for word in ${help//,/ }; do
      grep -qE -- "(^|[^-a-zA-Z])$word([^-a-zA-Z]|$)" <<<"$text" ||
        { echo "adaptive-train-$verb.1 lacks $word" && false; }
    done
  done
  page adaptive-train-slurm.8 >/dev/null
}

@test "bash completes verbs, options and files" {
  # completed WORD...: what bash offers for the last word.
  completed() {
    PATH=$root/usr/bin:$PATH bash -c 'source "$0"; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _adaptive_train; printf "%s\n" "${COMPREPLY[@]}"' \
      "$root/usr/share/bash-completion/completions/adaptive-train" adaptive-train "$@"
  }
  [ "$(completed no)" = nodes ]
  [ "$(completed jobs --al)" = --allusers ]
  [[ $(completed run --) == *--run-dir* ]]
  [ -z "$(completed run config.to)" ]
  [ -z "$(completed nonsense --x)" ]
}

@test "a job in a box trains with what the packages hold, and the prolog has photographed its nodes" {
  box_up_once --nodes 2 --prefix "$root/usr"
  local prefix home job
  prefix=$(box_value BOX_PREFIX) home=$(box_value BOX_HOME)
  [ "$(box_on ctl sh -c 'command -v adaptive-train')" = "$prefix/bin/adaptive-train" ]
  seq -f 'The %g. line of a text that is long enough for a few steps.' 4000 >"$home/corpus.txt"
  cat >"$home/job.sh" <<JOB
#!/bin/bash
adaptive-train run $prefix/share/adaptive-train/examples/quickstart.toml \
  --data.train=$home/corpus.txt --train.steps=5 --run-dir $home/run
JOB
  job=$(box_on ctl sbatch -N2 --adaptive-train --parsable --wait --time=5 --output="$home/job.out" job.sh) ||
    { cat "$home/job.out" "$home"/run/logs/* && false; }
  [[ $(box_on ctl scontrol -o show job "$job") == *" JobState=COMPLETED "*" ExitCode=0:0 "* ]]
  [ "$(grep -c '(snapshot by the prolog)' "$home/job.out")" -eq 2 ]
  [ "$(wc -l <"$home/run/metrics.jsonl")" -ge 5 ]
  [ "$(box_on ctl adaptive-train jobs -j "$job" -n -P -o State,ExitCode,Nodes)" = 'COMPLETED|0:0|2' ]
}

@test "the drop-in, switched on by its own instructions, offers the option" {
  box_up_once --nodes 2 --prefix "$root/usr"
  local slurm=$ADAPTIVE_TRAIN_BOX/etc/slurm
  mkdir -p "$slurm/plugstack.conf.d"
  cp "$slurm/plugstack.conf" "$BATS_TEST_TMPDIR/"
  echo 'include /etc/slurm/plugstack.conf.d/*.conf' >"$slurm/plugstack.conf"
  cp "$root/$drop_in" "$slurm/plugstack.conf.d/"
  run box_on ctl srun --help
  [[ $output != *--adaptive-train* ]]
  # The plugin lies in the box's prefix, not in the folder of Slurm's own plugins.
  switched_on "$root/$drop_in" | sed "s#adaptive_train.so#$(box_value BOX_PREFIX)/lib64/slurm/&#" \
    >"$slurm/plugstack.conf.d/adaptive_train.conf"
  run box_on ctl srun --help
  [[ $output == *--adaptive-train* ]]
}
