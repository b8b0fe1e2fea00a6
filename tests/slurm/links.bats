# Measured links in a Slurm job: bandwidths as limited, stored, checked by the next job, measured anew where they changed.
load box
load job

setup_file() {
  printf '%s\n' 'n1 n2 200mbit' 'n1 n3 50mbit' 'n2 n3 50mbit' >"$BATS_FILE_TMPDIR/links"
  box_up_once --nodes 3 --links "$BATS_FILE_TMPDIR/links"
}
teardown_file() { box_down; }
setup() {
  make_job_home
  sed -i 's/^measure = false/measure = true/' "$home/config.toml"
  box link n1 n2 200mbit
}

# measure_now: in an allocation of all nodes, with a store of its own.
measure_now() {
  box_on ctl bash -c "cd '$home' && salloc --quiet -N3 adaptive-train links --measure --json --store 'file:$home/runs/links.db'"
}
# rate FROM TO: Mbit/s.
rate() {
  jq --arg a "$1" --arg b "$2" '.links[] | select(.from == $a and .to == $b) | .bytes_per_second * 8e-6' "$home/measured.json"
}
between() { awk -v x="$1" -v low="$2" -v high="$3" 'BEGIN { print x; exit !(x > low && x < high) }'; }

@test "every link is near its limit, both ways, and is stored" {
  mkdir -p "$home/runs" && chown --reference="$home" "$home/runs"
  measure_now >"$home/measured.json"
  between "$(rate n1 n2)" 120 240
  between "$(rate n2 n1)" 120 240
  between "$(rate n3 n1)" 30 60
  between "$(rate n2 n3)" 30 60
  jq -e '[.links[] | select(.from != .to)] | length == 6' "$home/measured.json"
  jq -e '[.devices[].node] == ["n1","n2","n3"]' "$home/measured.json"
  box_on ctl adaptive-train links --store "file:$home/runs/links.db" | grep -E '^n1 '
  [[ -s $(echo "$home"/runs/links-*/logs/measure-2.log) ]]
}

@test "a second job checks one round only; a link that changed has its nodes measured again" {
  first=$(submit -N3 -- --train.steps=1)
  wait_until 90 job_over "$first"
  grep -F 'links: 3 of 3 pairs measured, 0 checked' "$home/slurm-$first.out"
  second=$(submit -N3 -- --train.steps=1)
  wait_until 90 job_over "$second"
  grep -F 'links: 0 of 3 pairs measured, 1 checked, 2 taken from the store' "$home/slurm-$second.out"
  # Whichever pair the next jobs check, one of three is the changed one.
  box link n1 n2 20mbit
  for _ in 1 2 3; do
    next=$(submit -N3 -- --train.steps=1)
    wait_until 90 job_over "$next"
    grep '^links:' "$home/slurm-$next.out"
  done
  grep -hE '^links: [12] of 3 pairs measured, 1 checked' "$home"/slurm-*.out
  box_on ctl adaptive-train links --json >"$home/measured.json"
  between "$(rate n1 n2)" 10 30
}

@test "stored device speeds are checked: wrong ones make no shares, and are gone after the next job" {
  first=$(submit -N3 -- --train.steps=1 --parallel.data=3)
  wait_until 90 job_over "$first"
  grep -E '^links: .*; 3 of 3 devices measured, 0 checked' "$home/slurm-$first.out"
  # One sample each, taken as certain: the second node an eighth as fast, the third three times as fast.
  box_on ctl sqlite3 "$home/.local/state/adaptive-train/profiles.db" "UPDATE device_profiles SET spread = 0, count = 1, product_flops = product_flops * CASE node WHEN 'n2' THEN .125 WHEN 'n3' THEN 3 ELSE 1 END"
  second=$(submit -N3 -- --train.steps=1 --parallel.data=3)
  wait_until 90 job_over "$second"
  grep -E '^links: .*; 0 of 3 devices measured, 3 checked, 3 in doubt measured twice' "$home/slurm-$second.out"
  jq -c '[.devices[] | {node, product_flops, evidence}]' "$home/runs/$second/profile.json"
  jq -e '[.devices[].product_flops] | max < 4 * min' "$home/runs/$second/profile.json"
  jq -e '[.ranks[].samples] | sort == [3,3,4]' "$home/runs/$second/plan.json"
}

@test "with reuse=never all is measured each time" {
  for _ in 1 2; do
    job=$(box_on ctl sbatch --parsable -N3 --adaptive-train=reuse=never job.sh --train.steps=1)
    wait_until 90 job_over "$job"
    grep -F 'links: 3 of 3 pairs measured' "$home/slurm-$job.out"
  done
}

# has_sent NODE BYTES: so many have left its network card.
has_sent() { (($(box_root "$1" cat /sys/class/net/eth0/statistics/tx_bytes) >= $2)); }

# measuring_fails_on_n3 COMMAND...: what happens to n3 while it is measured ends the command with 5 and its name.
measuring_fails_on_n3() {
  local before
  before=$(box_root n3 cat /sys/class/net/eth0/statistics/tx_bytes)
  box_on ctl bash -c "cd '$home' && salloc --quiet -N3 adaptive-train links --measure --store 'file:$home/runs/links.db'" \
    >"$home/out" 2>"$home/err" 3>&- &
  local measuring=$! status=0
  # Wiring up takes kilobytes: it is over, and a link is being measured.
  wait_until 180 has_sent n3 $((before + 500000))
  "$@"
  wait "$measuring" || status=$?
  cat "$home/err"
  [[ $status -eq 5 ]]
  grep -E '^adaptive-train links: measuring the nodes: rank 2 on n3 failed' "$home/err"
}

@test "a rank that dies while its node is measured: the node is named, exit 5" {
  measuring_fails_on_n3 box_root n3 pkill -KILL -f "$worker_command"
}

@test "with spares=1 the worst node is measured, named with the reason, and not trained on" {
  job=$(box_on ctl sbatch --parsable -N3 --adaptive-train=spares=1 job.sh --train.steps=2 --parallel.data=2)
  finished_with "$job" 0:0
  aside=$(sed -n 's/^  kept aside: \(n[123]\): its .* slowest, .*/\1/p' "$home/slurm-$job.out")
  [[ $aside == n[123] ]]
  jq -e --arg aside "$aside" '[.ranks[].node] == (["n1","n2","n3"] - [$aside])' "$home/runs/$job/plan.json"
  grep -F "kept aside, or without devices: $aside" "$home/runs/$job/plan.txt"
  # Planned again from the files that the run left, it stays aside.
  box_on ctl bash -c "cd '$home' && adaptive-train plan config.toml --json --parallel.data=2 \
    --cluster runs/$job/cluster.json --profile runs/$job/profile.json" >"$home/again.json"
  jq -c '[.ranks[].node]' "$home/again.json"
  jq -e --arg aside "$aside" '[.ranks[].node] | sort == (["n1","n2","n3"] - [$aside])' "$home/again.json"
  job=$(box_on ctl sbatch --parsable -N3 --adaptive-train=spares=3 job.sh --train.steps=2)
  finished_with "$job" 3:0
  grep -F 'spares=3 leaves none of 3 nodes to train; allowed: 0 to 2' "$home/slurm-$job.out"
}

# The last two: Slurm takes its time until it gives such a node to a job again.
@test "a node that loses power while it is measured: named, exit 5" {
  measuring_fails_on_n3 box kill n3
  wait_until 60 no_rank_on n1 n2
  box revive n3
}

@test "a node cut off while it is measured: named, exit 5, and no rank is left on it" {
  measuring_fails_on_n3 box cut n3
  wait_until 60 no_rank_on n1 n2 n3
  box mend n3
}
