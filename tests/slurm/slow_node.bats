# A node that becomes slow while a job trains: another share, or a spare in its place.
load box
load job

setup_file() { box_up_once; }
teardown_file() { box_down; }
setup() { make_job_home; }
teardown() { box_root ctl scancel "${job:-}" 2>/dev/null || true; }

# Layers are timed, so that it is known what is slow.
keys=(--profile.warmup_steps=3 --model.hidden=64 --model.sequence=64 --train.global_batch=24 --train.steps=100000
  --recovery.allow_injection=true)
# said REGEX: within 120 s.
said() { wait_until 120 grep -Eq "$1" "$home/slurm-$job.out" || { show_job "$job"; return 1; }; }
nodes_of() { jq -r '[.ranks[].node] | join(" ")' "$home/runs/$1/plan.json"; }

@test "a slow node gets a smaller share without a restart" {
  job=$(submit -N4 -- "${keys[@]}" --inject "slow node n3 to 5 % from 30 to 100000")
  said "^rank 2 on n3 computes [0-9.]+ times as long as planned .*: its share goes from [0-9]+ to [1-5] sequences$"
  said "^steps are .* since the share of rank 2 on n3 went from [0-9]+ to [1-5] sequences: "
  jq -e '[.ranks[].samples] | add == 24 and .[2] < 6' "$home/runs/$job/plan.json"
  run grep -c '^resumed from' "$home/slurm-$job.out"
  [[ $output == 0 ]]
  jq -es 'map(.step) == [range(1; length + 1)]' <(head -n -1 "$home/runs/$job/metrics.jsonl")
  # It was asked for, so nobody holds it against n3 later.
  box_on n1 adaptive-train jobs -j "$job" --json | jq -e '.jobs[0].failures == []'
}

@test "where shares stay a spare takes the place of a slow node, and what that brought is told" {
  job=$(box_on ctl sbatch --parsable -N4 --adaptive-train=spares=1 job.sh "${keys[@]}" --parallel.shares=even \
    --inject "slow node n2 to 5 % from 30 to 100000")
  said "^rank 1 on n2 computes [0-9.]+ times as long as planned .*: shares stay even \(parallel.shares\); a spare takes the place of n2$"
  said '^moving to a plan without n2 \(n4 takes its place\)$'
  said '^resumed from the checkpoint of step '
  said '^steps are [0-9]+ % faster since a spare took the place of n2: '
  [[ $(nodes_of "$job") == "n1 n3 n4" ]]
}
