#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031 # every test is a subshell; what one sets is meant for it alone
# What administrators of Debian install: the packages are made from the build that is tested, looked at, and installed, upgraded,
# removed and purged in a scratch root. ADAPTIVE_TRAIN_DEBS=DIR takes packages that packaging/debian/build has compiled and put there.

# shellcheck source=tests/slurm/packages.bash
source "$BATS_TEST_DIRNAME/packages.bash"

setup_file() {
  if ((EUID != 0)); then echo "these tests need root" >&2 && return 1; fi
  export debs=${ADAPTIVE_TRAIN_DEBS:-$BATS_FILE_TMPDIR/debs} root=$BATS_FILE_TMPDIR/root
  if [[ -z ${ADAPTIVE_TRAIN_DEBS-} ]]; then
    # Small packages are of no use here.
    export DPKG_DEB_COMPRESSOR_TYPE=gzip DPKG_DEB_COMPRESSOR_LEVEL=1
    "$repository/packaging/debian/build" --working-tree --built "$ADAPTIVE_TRAIN_BUILD" "$debs" >"$BATS_FILE_TMPDIR/build.log" 2>&1 3>&- ||
      { tail -n 40 "$BATS_FILE_TMPDIR/build.log" >&2 && return 1; }
  fi
  mkdir "$root"
  local name
  for name in "${packages[@]}"; do
    dpkg-deb -x "$(package "$name")" "$root" || return 1
  done
}

# package NAME: the file of a binary package.
package() { echo "$debs/$1_$(<"$repository/VERSION")-1_$(dpkg --print-architecture).deb"; }

# files NAME: what a package holds besides folders.
files() { dpkg-deb --fsys-tarfile "$(package "$1")" | tar -t | sed -n 's/^\.\(.*[^/]\)$/\1/p'; }

# control NAME: the names in a package's control archive, that is without folders, on one line.
control() { dpkg-deb --ctrl-tarfile "$(package "$1")" | tar -t | sed -n 's/^\.\///p' | grep . | sort | xargs; }

# wants NAME: what a package depends on, a line each.
wants() { dpkg-deb -f "$(package "$1")" Pre-Depends Depends | sed 's/^[A-Z][A-Za-z-]*: //' | tr ',' '\n' | sed 's/^ *//'; }

# plugin_folder: where this machine's Slurm looks for plugins.
plugin_folder() { dirname "$(dpkg -L slurm-wlm-basic-plugins | grep '/auth_munge\.so$')"; }

@test "each package holds its part, and no file is in two" {
  local name page
  holds adaptive-train /usr/bin/adaptive-train{,-worker,-probe} /usr/share/bash-completion/completions/adaptive-train \
    /usr/share/adaptive-train/examples/quickstart.toml /usr/share/doc/adaptive-train/{README.md.gz,changelog.gz,adaptive-train.toml}
  holds adaptive-train-slurm "$(plugin_folder)/adaptive_train.so" "/$drop_in" /usr/share/doc/adaptive-train-slurm/admin_guide.md.gz
  holds adaptive-traind /usr/sbin/adaptive-traind /lib/systemd/system/adaptive-traind.service \
    /usr/lib/sysusers.d/adaptive-traind.conf "/$options"
  for name in "${packages[@]}"; do
    holds "$name" "/usr/share/doc/$name/copyright"
    files "$name"
  done >"$BATS_TEST_TMPDIR/files"
  [ "$(sort "$BATS_TEST_TMPDIR/files" | uniq -d)" = "" ]
  for page in "$repository"/packaging/man/*; do
    grep -qxF "/usr/share/man/man${page##*.}/${page##*/}.gz" "$BATS_TEST_TMPDIR/files" || { echo "no ${page##*/}" && false; }
  done
  run grep -E 'slurm|^/etc' <(files adaptive-train)
  [ -z "$output" ]
}

@test "all belongs to root, nothing is setuid or writable by others" {
  local name wrong list=$BATS_TEST_TMPDIR/modes
  for name in "${packages[@]}"; do dpkg-deb -c "$(package "$name")"; done >"$list"
  [ "$(wc -l <"$list")" -gt 10 ]
  wrong=$(grep -vE '^(-rw-r--r--|-rwxr-xr-x|drwxr-xr-x|lrwxrwxrwx) root/root ' "$list" || true)
  [ -z "$wrong" ] || { echo "$wrong" && false; }
  grep -qE '^-rw-r--r-- .* \./usr/lib/.*/adaptive_train\.so$' "$list"
  grep -qE "^-rw-r--r-- .* \./$drop_in\$" "$list"
  [ "$(grep -E '^-rwx' "$list" | awk '{ print $NF }' | sort | xargs)" = \
    "$(printf './usr/%s ' bin/adaptive-train{,-probe,-worker} sbin/adaptive-traind | xargs)" ]
}

@test "the drop-in is switched off, and both files that administrators edit are kept" {
  is_switched_off "$root/$drop_in"
  # The programs may have been built for another place.
  grep -q '^#optional adaptive_train.so probe=/usr/bin/adaptive-train-probe ' "$root/$drop_in"
  [ "$(dpkg-deb -I "$(package adaptive-train-slurm)" conffiles)" = "/$drop_in" ]
  [ "$(dpkg-deb -I "$(package adaptive-traind)" conffiles)" = "/$options" ]
}

@test "the plugin's package wants the Slurm release that it was built for, and its own probe" {
  local installed release
  installed=$(slurmd -V)
  release=$(cut -d. -f1,2 <<<"${installed#* }")
  [ "$(wants adaptive-train-slurm | grep slurm)" = "slurm-wlm-basic-plugins (>= $release)
slurm-wlm-basic-plugins (<< ${release%.*}.$(printf %02d $((10#${release#*.} + 1))))" ]
  wants adaptive-train-slurm | grep -qxF "adaptive-train (= $(<"$repository/VERSION")-1)"
  # What else Slurm's daemons would have to load.
  run grep -E '^lib' <(wants adaptive-train-slurm | grep -vE '^lib(c6|stdc\+\+6|gcc-s1) ')
  [ -z "$output" ]
}

@test "no package runs anything when it is installed or removed, but for the service's" {
  [ "$(control adaptive-train)" = "control md5sums" ]
  [ "$(control adaptive-train-slurm)" = "conffiles control md5sums" ]
  [ "$(control adaptive-traind)" = "conffiles control md5sums postinst postrm prerm" ]
}

@test "the service's unit is hardened: systemd's measure of what it is exposed to is at most 1.5 of 10" {
  local unit=$root/lib/systemd/system/adaptive-traind.service
  # The threshold is in tenths.
  run systemd-analyze security --offline=true --no-pager --threshold=15 "$unit"
  grep -oE 'exposure level for [^ ]+ [0-9.]+ [A-Z]+' <<<"$output" | sed 's/^/# /' >&3
  [ "$status" = 0 ]
}

# scratch_system SLURM-VERSION: $system is the root of a machine with one package: a distribution with this Slurm. It provides
# what ours want, and holds a shell for maintainer scripts and stand-ins that note how those call them.
scratch_system() {
  local file work=$BATS_TEST_TMPDIR/scratch.$1 all
  system=$work/root all=$work/package
  mkdir -p "$system"/var/lib/dpkg/{info,updates} "$all"/{DEBIAN,dev,etc,run/systemd/system,usr/{bin,sbin,lib,lib64}}
  touch "$system/var/lib/dpkg/status" "$all"/{calls,dev/null}
  for file in bin sbin lib lib64; do ln -s "usr/$file" "$all/$file"; done
  for file in /bin/sh $(ldd /bin/sh | grep -o '/[^ ]*'); do install -D "$(readlink -f "$file")" "$all$file"; done
  stand_in >"$all/usr/bin/systemctl"
  chmod 755 "$all/usr/bin/systemctl"
  for file in deb-systemd-helper deb-systemd-invoke systemd-sysusers; do cp -p "$all/usr/bin/"{systemctl,$file}; done
  {
    printf '%s\n' 'Package: scratch-distribution' 'Version: 1' 'Architecture: all' 'Maintainer: nobody <nobody@localhost>' \
      'Description: what packages want'
    printf 'Provides: slurm-wlm-basic-plugins (= %s)' "$1"
    for file in "${packages[@]}"; do wants "$file"; done | sed 's/ *|.*//' | grep -vE '^(adaptive-train|slurm)' | sort -u |
      sed 's/(>= /(= /; s/^/, /' | tr -d '\n'
    echo
  } >"$all/DEBIAN/control"
  dpkg-deb --root-owner-group -b "$all" "$work/distribution.deb" >/dev/null
  dpkg_in -i "$work/distribution.deb"
}

# stand_in: a program that notes its call. As for deb-systemd-helper, a service that it does not know yet is to be enabled; later
# it is enabled if there is a file /enabled.
stand_in() {
  cat <<'STAND_IN'
#!/bin/sh
echo "${0##*/} $*" >>/calls
case "${0##*/} $*" in
  *" update-state "*) : >/known ;;
  *" debian-installed "*) [ -e /known ] ;;
  *" --quiet was-enabled "*) [ ! -e /known ] || [ -e /enabled ] ;;
  "systemd-sysusers "*) [ -e "/usr/lib/sysusers.d/$1" ] ;;
esac
STAND_IN
}

# dpkg_in ARG...: dpkg in that root, with all files of the packages whatever this machine's settings leave out.
dpkg_in() {
  dpkg --root="$system" --log="$BATS_TEST_TMPDIR/dpkg.log" --path-include='*' "$@" </dev/null 3>&-
}

# called: what maintainer scripts have had done since it was asked last; questions and rereading units count for nothing.
called() {
  grep -vE ' (debian-installed|unmask|update-state|--quiet was-enabled|--system daemon-reload)( |$)' "$system/calls" || true
  : >"$system/calls"
}

# versions: our packages that are installed, with their versions.
versions() {
  dpkg-query --admindir="$system/var/lib/dpkg" -W -f '${db:Status-Status} ${Package} ${Version}\n' | sed -n 's/^installed \(adaptive\)/\1/p'
}

# tree: all there is in the root but dpkg's own records.
tree() { (cd "$system" && find . -path ./var/lib/dpkg -prune -o -print | sort); }

# package_before NAME: makes revision 0 of a package, and prints its file: with all that revision 1 has, one file more, and
# other configuration files.
package_before() {
  local file work=$BATS_TEST_TMPDIR/before/$1
  mkdir -p "${work%/*}"
  dpkg-deb -R "$(package "$1")" "$work"
  sed -i "s/^\(Version: .*\|.*(= .*\)-1\b/\1-0/" "$work/DEBIAN/control"
  touch "$work/usr/share/$1.gone"
  if [[ -e $work/DEBIAN/conffiles ]]; then
    while IFS= read -r file; do echo '# Of the release before.' >>"$work$file"; done <"$work/DEBIAN/conffiles"
  fi
  dpkg-deb --root-owner-group -b "$work" "$work.deb" >/dev/null
  echo "$work.deb"
}

@test "installed, upgraded, removed and purged in a scratch root: an administrator's lines are kept, and nothing is left" {
  local version name before=() after=()
  version=$(<"$repository/VERSION")
  scratch_system "$(dpkg-query -W -f '${Version}' slurm-wlm-basic-plugins)"
  tree >"$BATS_TEST_TMPDIR/tree"
  for name in "${packages[@]}"; do
    before+=("$(package_before "$name")")
    after+=("$(package "$name")")
  done
  dpkg_in -i "${before[@]}"
  [ "$(versions)" = "$(printf "%s $version-0\n" "${packages[@]}")" ]
  # Neither enabled nor started.
  [ "$(called)" = "systemd-sysusers adaptive-traind.conf" ]
  [ "$(grep -c 'release before' "$system/$drop_in" "$system/$options" | grep -c ':1$')" -eq 2 ]
  [ -e "$system/usr/share/adaptive-train-slurm.gone" ]
  administrator_edits "$system"
  touch "$system/enabled"

  dpkg_in --force-confold -i "${after[@]}"
  [ "$(versions)" = "$(printf "%s $version-1\n" "${packages[@]}")" ]
  [ "$(called)" = "systemd-sysusers adaptive-traind.conf
deb-systemd-helper enable adaptive-traind.service
deb-systemd-invoke try-restart adaptive-traind.service" ]
  rm "$system"/{enabled,known}
  [ "$(find "$system" -name '*.gone')" = "" ]
  edits_are_kept "$system"
  cmp "$root/$drop_in" "$system/$drop_in.dpkg-dist"
  cmp "$root/$options" "$system/$options.dpkg-dist"
  # All is as the packages have it, but for what the administrator wrote.
  [ "$(dpkg_in --verify | awk '{ print $NF }' | sort | xargs)" = "/$options /$drop_in" ] || { dpkg_in --verify && false; }

  dpkg_in -r "${packages[@]}"
  [ "$(called)" = "deb-systemd-invoke stop adaptive-traind.service" ]
  [ "$(find "$system" ! -type d -path '*adaptive*' ! -path '*/dpkg/info/*' -printf '/%P\n' | sort | xargs)" = \
    "$(printf '%s\n' "/$drop_in"{,.dpkg-dist} "/$options"{,.dpkg-dist} | sort | xargs)" ] || { tree && false; }

  dpkg_in -P adaptive-train-slurm adaptive-traind
  [ "$(called)" = "deb-systemd-helper purge adaptive-traind.service" ]
  diff "$BATS_TEST_TMPDIR/tree" <(tree)
  [ "$(dpkg-query --admindir="$system/var/lib/dpkg" -W -f '${Package}\n')" = scratch-distribution ]
}

@test "other releases of Slurm are refused" {
  local release
  for release in 20.11.9-1 23.02.7-1; do
    scratch_system "$release"
    run dpkg_in -i "$(package adaptive-train)" "$(package adaptive-train-slurm)"
    [ "$status" -ne 0 ]
    [[ $output == *"adaptive-train-slurm depends on slurm-wlm-basic-plugins ("*"provided by scratch-distribution:all, is $release."* ]] ||
      { echo "$output" && false; }
    [ "$(versions)" = "adaptive-train $(<"$repository/VERSION")-1" ]
  done
}

@test "the programs know their version, and have left what only debuggers read" {
  local version file
  version=$(<"$repository/VERSION")
  [ "$("$root/usr/bin/adaptive-train" --version)" = "$version" ]
  [ "$("$root/usr/bin/adaptive-train-probe" --version)" = "adaptive-train-probe $version" ]
  [ "$("$root/usr/sbin/adaptive-traind" --version)" = "$version" ]
  for file in "$root"/usr/{bin,sbin}/* "$root$(plugin_folder)"/*; do
    [[ $(file -b "$file") == ELF*", stripped" ]] || { file "$file" && false; }
  done
}

@test "the build says what it cannot do" {
  run "$repository/packaging/debian/build" --nonsense
  [ "$status" -eq 2 ]
  [ "$output" = "packaging/debian/build: unknown option '--nonsense'; see --help" ]
  run "$repository/packaging/debian/build" --built "$BATS_TEST_TMPDIR" "$BATS_TEST_TMPDIR/out"
  [ "$status" -eq 1 ]
  [[ $output == *"packaging/debian/build: $BATS_TEST_TMPDIR has no bin/adaptive-train; build the release preset there" ]]
  mkdir "$BATS_TEST_TMPDIR/bin"
  printf '#!/bin/sh\necho 0.0.7\n' >"$BATS_TEST_TMPDIR/bin/adaptive-train"
  chmod +x "$BATS_TEST_TMPDIR/bin/adaptive-train"
  run "$repository/packaging/debian/build" --built "$BATS_TEST_TMPDIR" "$BATS_TEST_TMPDIR/out"
  [ "$status" -eq 1 ]
  [[ $output == *"has version 0.0.7, and VERSION says "* ]]
  [ ! -e "$BATS_TEST_TMPDIR/out" ]
}
