# Links and devices on one machine: the command without Slurm.
load run

setup() {
  work=$(mktemp -d "$BATS_TEST_TMPDIR/links.XXXXXX")
  store=file:$work/profiles.db
}

# links ARG...: the command in the work folder.
links() { (cd "$work" && timeout --kill-after=10 60 "$bin/adaptive-train" links --store "$store" "$@" 3>&-); }

@test "measured here and now: this machine's device, stored and shown again" {
  links --measure --json >"$work/measured.json"
  jq -e '.format_version == 1 and (.devices | length) == 1 and .devices[0].product_flops > 1e6
    and (.links | length) == 1 and .links[0].from == .links[0].to' "$work/measured.json"
  links --json >"$work/stored.json"
  cmp "$work/measured.json" "$work/stored.json"
  links | grep -q ' GFLOP/s, copies '
  [[ -s $work/runs/links/logs/measure-0.log ]]
  links --svg "$work/links.svg"
  grep -q '^</svg>$' "$work/links.svg"
}

@test "measuring keeps to [launch] of a configuration and of the command line" {
  printf '[data]\ntrain = "none"\n[launch]\ninterface = "none0"\n' >"$work/config.toml"
  run links --measure config.toml
  ((status == 4))
  [[ $output == *'launch.interface: "none0" is not up'* ]]
  links --measure config.toml --launch.interface=lo >/dev/null
}

# What is in doubt is looked at twice, and what contradicts the store replaces it: counts differ from run to run.
# measured_after UPDATE: the device, measured again where the store had it otherwise before.
measured_after() {
  sqlite3 "$work/profiles.db" "UPDATE device_profiles SET $1"
  links --measure >/dev/null
  links --json | jq -c '.devices[0] | {product_flops, count: .evidence.count, at: .evidence.measured_at}'
}

# What is in doubt is looked at twice, so one measuring counts as one or two.
@test "measuring again is kept: as more evidence, or instead of what it contradicts" {
  links --measure >/dev/null
  links --json >"$work/first.json"
  sleep 1.1
  measured_after 'spread = 10, count = 5' >"$work/agreed.json"
  cat "$work/agreed.json"
  jq -e --slurpfile first "$work/first.json" '(.count == 6 or .count == 7) and .at > $first[0].devices[0].evidence.measured_at' "$work/agreed.json"
  measured_after 'product_flops = product_flops / 100, spread = 0, count = 5' >"$work/contradicted.json"
  cat "$work/contradicted.json"
  jq -e --slurpfile agreed "$work/agreed.json" '(.count == 1 or .count == 2) and .product_flops > $agreed[0].product_flops / 50' "$work/contradicted.json"
}

@test "a Ctrl-C while measuring ends it with 130 and leaves no process" {
  # A wide matrix product keeps the rank busy long enough to be met.
  (cd "$work" && exec "$bin/adaptive-train" links --store "$store" --measure >"$work/out" 2>"$work/err" 3>&-) &
  launcher=$!
  wait_until 60 started_ranks
  mapfile -t ranks < <(started_ranks)
  kill -INT "$launcher"
  ends_with 130
  wait_until 60 all_gone "${ranks[@]}"
}

@test "a rank that dies while measuring: one line, exit 5" {
  (cd "$work" && exec "$bin/adaptive-train" links --store "$store" --measure >"$work/out" 2>"$work/err" 3>&-) &
  launcher=$!
  wait_until 60 started_ranks
  kill -KILL "$(started_ranks)"
  ends_with 5
  grep -E '^adaptive-train links: measuring the nodes: .*rank 0 on ' "$work/err"
}

@test "wrong input is refused in one line" {
  run links
  [[ $status -eq 2 && $output == "adaptive-train links: no links are stored in profile store $work/profiles.db yet"* ]]
  run links --cluster x --measure
  [[ $status -eq 2 && $output == *"--measure measures the nodes of this job"* ]]
  run links --nonsense
  [[ $status -eq 2 ]]
  echo garbage >"$work/profiles.db"
  run links
  [[ $status -eq 6 ]]
}
