# What `plan` shows: what `run` would do, and with --ideal what may come later.
load run

examples=$BATS_TEST_DIRNAME/../../examples

plan() { "$bin/adaptive-train" plan "$examples/gpt-1.3b.toml" --cluster "$examples/clusters/two-switches.json" --json "$@"; }

@test "a plan is what this version runs unless --ideal asks for more" {
  [[ $(plan | jq -c '[.tensor, .shard]') == '[1,0]' ]]
  [[ $(plan --ideal | jq '.tensor + .shard') -gt 1 ]]
}

@test "stages are found where they are faster, and run" {
  [[ $(plan | jq '.stages | length') -gt 1 ]]
  plan --compression.mode=auto --parallel.pipeline=2 | jq -e '(.stages | length) == 2 and (.stages[0].compressed_layers | type) == "array"'
}

@test "what the configuration asks for is planned, and it is told that it cannot run" {
  plan --parallel.tensor=2 | jq -e '.tensor == 2'
  "$bin/adaptive-train" plan "$examples/gpt-1.3b.toml" --cluster "$examples/clusters/two-switches.json" --parallel.tensor=2 --compression.mode=sketch |
    grep -F 'note: this version cannot run'
}

# with_memory BYTES COMMAND...: in a control group with this limit or, if none can be made, in a
# mount namespace where the own group's file says so.
with_memory() {
  local bytes=$1 mount=/sys/fs/cgroup/memory file=memory.limit_in_bytes group
  group=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
  if [[ -z $group ]]; then
    mount=/sys/fs/cgroup file=memory.max
    group=$(sed -n 's/^0:://p' /proc/self/cgroup)
  fi
  local child=$mount$group/adaptive-train-test.$$ status=0
  shift
  if mkdir "$child" 2>/dev/null && echo "$bytes" >"$child/$file" && bash -c "echo \$\$ >'$child/cgroup.procs'"; then
    bash -c "echo \$\$ >'$child/cgroup.procs' && exec \"\$@\"" with_memory "$@" || status=$?
    rmdir "$child"
    return $status
  fi
  rmdir "$child" 2>/dev/null
  echo "$bytes" >"$BATS_TEST_TMPDIR/limit"
  unshare --user --map-root-user --mount \
    bash -c "mount --bind '$BATS_TEST_TMPDIR/limit' '$mount$group/$file' && exec \"\$@\"" with_memory "$@"
}

@test "a plan has no more memory than its control group" {
  make_run_folder
  with_memory 299999232 "$bin/adaptive-train" plan "$work/config.toml" --store "$store" | tee "$work/out"
  grep -E 'memory of .*: 0\.3 GiB of [0-9.]+ GiB: control group .*' "$work/out"
  with_memory 299999232 "$bin/adaptive-train" plan "$work/config.toml" --store "$store" --json >"$work/plan.json"
  # Ranks that share the node share its memory.
  jq -e '[.ranks[].device_memory_bytes] == [74999808, 74999808, 74999808, 74999808]' "$work/plan.json"
  run with_memory 8388608 "$bin/adaptive-train" plan "$work/config.toml" --store "$store"
  echo "$output"
  [[ $status -eq 3 && $output == *'GiB: control group '* ]]
}

@test "a layout by hand that does not fit is refused with the nearest one that does" {
  local keys=(--train.recompute=none --parallel.shard=0 --parallel.tensor=1 --train.micro_batch=4)
  for asked in '1 Et*23|tL' '2 Et*2|t*20|t|tL'; do
    read -r chunks layout <<<"$asked"
    run plan "${keys[@]}" --parallel.layout="$layout" --parallel.interleave="$chunks"
    echo "$output"
    [[ $status == 3 && $output =~ parallel.layout\ =\ \"([^\"]*)\" ]]
    plan "${keys[@]}" --parallel.layout="${BASH_REMATCH[1]}" --parallel.interleave="$chunks" |
      jq -e --arg layout "${BASH_REMATCH[1]}" '.layout == $layout'
  done
}
