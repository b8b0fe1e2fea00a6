# doctor on a host without Slurm: each planted fault is found with why it matters and what mends it.
bats_require_minimum_version 1.5.0
source "$BATS_TEST_DIRNAME/../wait_until.bash"
: "${ADAPTIVE_TRAIN_BUILD:?the build folder to test, such as build/release}"
bin=$ADAPTIVE_TRAIN_BUILD/bin

setup() {
  export XDG_STATE_HOME=$BATS_TEST_TMPDIR/state XDG_CONFIG_HOME=$BATS_TEST_TMPDIR/config
  export ADAPTIVE_TRAIN_SITE_CONFIG=$BATS_TEST_TMPDIR/site.toml ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0
  unset UCX_NET_DEVICES UCX_TLS ADAPTIVE_TRAIN_STORE
  cd "$BATS_TEST_TMPDIR"
}
teardown() { [[ -z ${service:-} ]] || kill -9 "$service"; }

# doctor COMMAND...: what it finds as JSON, with COMMAND before it. No Slurm is in reach.
doctor() { PATH=/nonexistent "$@" "$bin/adaptive-train" doctor --json; }

# finds SUBJECT WHAT COMMAND...: this trouble and no other.
finds() {
  run -4 --separate-stderr doctor "${@:3}"
  jq -e --arg subject "$1" --arg what "$2" '[.findings[] | select(.severity == "trouble")] |
    length == 1 and .[0].subject == $subject and (.[0].what | contains($what)) and .[0].why != "" and .[0].mend != ""' <<<"$output" ||
    { echo "$output" && false; }
}

@test "where nothing is wrong there is no trouble, and every setting has its source" {
  printf '[launch]\nports = "40000-40100"\n' >"$ADAPTIVE_TRAIN_SITE_CONFIG"
  mkdir -p "$XDG_CONFIG_HOME/adaptive-train"
  printf '[recovery]\nattempts = 5\n' >"$XDG_CONFIG_HOME/adaptive-train/adaptive-train.toml"
  run -0 --separate-stderr doctor /usr/bin/env
  jq -e '[.findings[] | select(.severity == "trouble")] == []' <<<"$output"
  jq -e --arg site "$ADAPTIVE_TRAIN_SITE_CONFIG: line 2" '.settings[] | select(.key == "launch.ports") | .source == $site' <<<"$output"
  jq -e '.settings[] | select(.key == "recovery.attempts") | .value == "5" and (.source | endswith("adaptive-train.toml: line 2"))' <<<"$output"
  jq -e '.settings[] | select(.key == "launch.mpi") | .source == "built-in"' <<<"$output"
  run -0 --separate-stderr doctor /usr/bin/env ADAPTIVE_TRAIN_STORE=file:other.db
  jq -e '.settings[] | select(.key == "store") | .value == "\"file:other.db\"" and .source == "ADAPTIVE_TRAIN_STORE"' <<<"$output"
  [[ ! -e $XDG_STATE_HOME ]]
}

@test "in a run its configuration and its command line are sources, too" {
  printf '[recovery]\nattempts = 5\nhalf_life_days = 3\n' >"$ADAPTIVE_TRAIN_SITE_CONFIG"
  printf '[data]\ntrain = "text"\n[recovery]\nattempts = 6\nmemory = "off"\n' >config.toml
  run -0 --separate-stderr /usr/bin/env PATH=/nonexistent "$bin/adaptive-train" doctor --json config.toml --recovery.memory=auto --train.steps=3
  # sources KEY VALUE SOURCE
  sources() { jq -e --arg key "$1" --arg value "$2" --arg source "$3" '.settings[] | select(.key == $key) | .value == $value and .source == $source' <<<"$output"; }
  sources recovery.attempts 6 'config.toml: line 4'
  sources recovery.half_life_days 3.0 "$ADAPTIVE_TRAIN_SITE_CONFIG: line 3"
  sources recovery.memory '"auto"' 'the command line'
  run -2 "$bin/adaptive-train" doctor config.toml --recovery.attempts=many
  [[ $output == *"recovery.attempts"* ]]
  run -2 "$bin/adaptive-train" doctor --recovery.attempts=2
  [[ $output == *config* ]]
}

@test "its text says what, why and what mends it" {
  run -4 env PATH=/nonexistent UCX_TLS=self,sm "$bin/adaptive-train" doctor
  grep '^trouble  UCX transports: UCX_TLS=self,sm has no transport between hosts' <<<"$output"
  grep '^         why:  ranks on two nodes' <<<"$output"
  grep '^         mend: unset UCX_TLS' <<<"$output"
  grep '^  launch.silence_seconds .* built-in' <<<"$output"
}

@test "a limit on open files" {
  finds "open files" "the hard limit is 500" /usr/bin/prlimit --nofile=500:500
}

@test "transports and devices of UCX" {
  finds "UCX transports" "self,sm" /usr/bin/env UCX_TLS=self,sm
  finds "UCX devices" "names nosuch0, which is not here; there are: " /usr/bin/env UCX_NET_DEVICES=lo,nosuch0
}

@test "an interface that is not here" {
  printf '[launch]\ninterface = "nosuch0"\n' >"$ADAPTIVE_TRAIN_SITE_CONFIG"
  finds "launcher's interface" '"nosuch0" is not up' /usr/bin/env
}

@test "a wrong line, and a file that anybody may write" {
  printf '\n[launch]\nport = "1-2"\n' >"$ADAPTIVE_TRAIN_SITE_CONFIG"
  finds settings "site.toml: line 3: unknown key launch.port; the nearest is launch.ports" /usr/bin/env
  : >"$ADAPTIVE_TRAIN_SITE_CONFIG"
  chmod 666 "$ADAPTIVE_TRAIN_SITE_CONFIG"
  finds settings "others than its owner may write it" /usr/bin/env
}

@test "a store that cannot be used, on a network file system too" {
  printf '%5000s' 'dear diary' >profiles.db
  finds store "the file is corrupt" /usr/bin/env "ADAPTIVE_TRAIN_STORE=file:$PWD/profiles.db"
  finds store "would lie on a network file system (nfs)" /usr/bin/env "NETWORK_FOLDER=$BATS_TEST_TMPDIR" \
    "ADAPTIVE_TRAIN_STORE=file:$PWD/state/profiles.db" "LD_PRELOAD=$ADAPTIVE_TRAIN_BUILD/lib/libnetwork_folder.so"
}

@test "a service that keeps the store is reached or not" {
  export ADAPTIVE_TRAIN_STORE=unix:$PWD/socket
  finds store "profile store unix:$PWD/socket: cannot connect: No such file or directory" /usr/bin/env
  "$bin/adaptive-traind" --database "$PWD/shared.db" --socket "$PWD/socket" 2>service.log 3>&- &
  service=$!
  wait_until 60 grep -q ' serves ' service.log
  run -0 --separate-stderr doctor /usr/bin/env
  jq -e '.findings[] | select(.subject == "store") | .severity == "good" and (.what | endswith("socket: adaptive-traind answers"))' <<<"$output"
}

@test "a place without room for run folders" {
  : >runs
  finds "run folder" "/runs is not a folder" /usr/bin/env
}
