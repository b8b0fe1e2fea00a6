# Links that share something: pairs that are measured at once slow each other down, and the output
# says so.
load box
load job

setup_file() {
  box_up_once --nodes 4 --link 100mbit
}
teardown_file() { box_down; }
setup() {
  make_job_home
  mkdir -p "$home/runs" && chown --reference="$home" "$home/runs"
}

# measured_links: an allocation's links, measured anew; what is printed is in $home/out.
measured_links() {
  rm -f "$home/runs/links.db"
  box_on ctl bash -c "cd '$home' && salloc --quiet -N4 adaptive-train links --measure --store 'file:$home/runs/links.db'" \
    >"$home/out" 2>&1 3>&- </dev/null
  grep '^links' "$home/out"
  grep -q '^links: 6 of 6 pairs measured' "$home/out"
}
# noted: 1 if it was said that links share something, with the figures, else 0.
noted() {
  grep -E 'links share something on their way: n[1-4] to n[1-4] had .* while 2 pairs were measured at once' "$home/out" | wc -l
}

# What else the machine does shows in single measurements, so links are measured with and without a shared uplink in turn, more
# often where it does much. A program that always says so, or never, does not pass; one that guesses does once in twenty times.
@test "an uplink that pairs share is noticed, and nothing is where they share none" {
  local with=0 without=0
  for _ in {1..20}; do
    box uplink none n3 n4
    measured_links
    without=$((without + $(noted)))
    box uplink 100mbit n3 n4
    measured_links
    with=$((with + $(noted)))
    echo "noted $with times with a shared uplink, $without times without"
    ((with - 2 * without < 4)) || return 0
  done
  return 1
}

# sent_by NODE: bytes that have left its network card.
sent_by() { box_root "$1" cat /sys/class/net/eth0/statistics/tx_bytes; }

@test "ranks that share nodes sum inside them first" {
  before=$(sent_by n1)
  job=$(submit -N2 -w n1,n2 --ntasks-per-node=2 -- --profile.measure=true --parallel.data=4 --parallel.shares=even \
    --train.global_batch=8 --model.hidden=128 --model.layers=4)
  wait_until 90 job_over "$job"
  after=$(sent_by n1)
  cat "$home/slurm-$job.out"
  jq -e '.stages[0].all_reduce.node_first' "$home/runs/$job/plan.json"
  grep -q 'what is larger inside nodes first' "$home/runs/$job/plan.txt"
  # Two ranks' payload is 3 n: a third of it leaves the node, around one ring half of it would.
  jq -es --argjson left $((after - before)) 'length == 20 and $left / (map(.grad_bytes) | add / 2) < 0.42' "$home/runs/$job/metrics.jsonl"
}

# Without copies of the state: residuals are each rank's own, and would go to the other node.
@test "ranks that share nodes add up inside them what is compressed" {
  before=$(sent_by n1)
  job=$(submit -N2 -w n1,n2 --ntasks-per-node=2 -- --profile.measure=true --parallel.data=4 --parallel.shares=even \
    --train.global_batch=8 --model.hidden=128 --model.layers=4 --compression.mode=topk --compression.density=0.3 --recovery.memory=off)
  wait_until 90 job_over "$job"
  after=$(sent_by n1)
  cat "$home/slurm-$job.out"
  jq -e '.stages[0].all_reduce.node_first' "$home/runs/$job/plan.json"
  # With n parameters, 1 + 16 x .3 bits each go up and 1 + 16 x .51 down (what either of two nodes
  # selects). Half of each leaves the node, 7.5 n bits in all. Directly between four ranks it would
  # be 19 n bits.
  parameters=$(sed -n 's/.* \([0-9.]*\) M parameters.*/\1/p' "$home/slurm-$job.out" | head -n 1)
  jq -es --argjson left $((after - before)) --argjson n "$parameters" \
    'length == 20 and $left * 8 / 20 / ($n * 1e6) < 13' "$home/runs/$job/metrics.jsonl"
}
