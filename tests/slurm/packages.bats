#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031 # every test is a subshell; what one sets is meant for it alone
# What administrators install: the RPM packages are built, looked at, unpacked, and run in a box.
# ADAPTIVE_TRAIN_RPMS=DIR takes packages that packaging/rpm/build has put there already.

load box

# shellcheck source=tests/slurm/packages.bash
source "$BATS_TEST_DIRNAME/packages.bash"

setup_file() {
  if ((EUID != 0)); then echo "these tests need root" >&2 && return 1; fi
  export ADAPTIVE_TRAIN_BOX=/var/tmp/adaptive-train-box-packages.$$
  export rpms=${ADAPTIVE_TRAIN_RPMS:-$BATS_FILE_TMPDIR/rpms} root=$BATS_FILE_TMPDIR/root
  if [[ -z ${ADAPTIVE_TRAIN_RPMS-} ]]; then
    "$repository/packaging/rpm/build" --working-tree "$rpms" >"$BATS_FILE_TMPDIR/build.log" 2>&1 3>&- ||
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

# scratch_system SLURM-RELEASE: $system is the root of a machine that has rpm's database, a shell for scriptlets, and a
# package that provides what ours want of a distribution with this Slurm.
scratch_system() {
  local work=$BATS_TEST_TMPDIR/scratch.$1 file name
  system=$work/root
  mkdir -p "$system"
  for file in /bin/sh $(ldd /bin/sh | grep -o '/[^ ]*'); do install -D "$(readlink -f "$file")" "$system$file"; done
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

# rpm_in ARG...: rpm in that root; Debian's has to say something about alien every time.
rpm_in() { rpm --root "$system" "$@" 2> >(grep -vE '^rpm: (RPM should not be used|However assuming)' >&2); }

# package_before NAME: makes release 0 of a package, and prints its file: with all that release 1 has, one file more, and other
# configuration files.
package_before() {
  local work=$BATS_TEST_TMPDIR/before.$1 gone=/usr/share/$1.gone file
  mkdir -p "$work/files$(dirname "$gone")"
  touch "$work/files$gone"
  {
    printf '%s\n' "Name: $1" "Version: $(<"$repository/VERSION")" 'Release: 0' 'Summary: The release before' 'License: MIT' \
      'AutoReqProv: no' '%global debug_package %{nil}' '%global __os_install_post %{nil}' '%global _build_id_links none' \
      '%description' '%{summary}.' '%install' "cp -a $work/files/. %{buildroot}/" '%files' "$gone"
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
  local version name before=() after=()
  version=$(<"$repository/VERSION")
  scratch_system "$(slurmd -V | cut -d' ' -f2)"
  for name in "${packages[@]}"; do
    before+=("$(package_before "$name")")
    after+=("$(package "$name")")
  done
  rpm_in -i "${before[@]}"
  [ -e "$system/usr/share/adaptive-train-slurm.gone" ]
  administrator_edits "$system"

  rpm_in -U "${after[@]}"
  [ "$(rpm_in -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\n' 'adaptive*' | sort)" = "$(printf "%s $version-1\n" "${packages[@]}" | sort)" ]
  [ "$(find "$system" -name '*.gone')" = "" ]
  edits_are_kept "$system"
  cmp "$root/$drop_in" "$system/$drop_in.rpmnew"
  cmp "$root/$options" "$system/$options.rpmnew"
  # All is as the packages have it, but for what the administrator wrote.
  rpm_in -V "${packages[@]}" >"$BATS_TEST_TMPDIR/differs" || true
  [ "$(awk '{ print $NF }' "$BATS_TEST_TMPDIR/differs" | sort | xargs)" = "/$options /$drop_in" ] || { cat "$BATS_TEST_TMPDIR/differs" && false; }

  rpm_in -e "${packages[@]}"
  [ "$(rpm_in -qa 'adaptive*')" = "" ]
  # rpm keeps what an administrator changed, and what it had put beside that.
  [ "$(find "$system" ! -type d \( -path '*adaptive*' -o -path '*/.build-id/*' \) -printf '/%P\n' | sort | xargs)" = \
    "$(printf '%s\n' "/$drop_in".rpm{new,save} "/$options".rpm{new,save} | sort | xargs)" ] || { find "$system" -path '*adaptive*' && false; }
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
    "VERSION adaptive-train-$(<"$repository/VERSION").tar.gz adaptive-train.spec" ]
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
