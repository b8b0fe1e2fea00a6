# A rank that becomes slow while it trains: its share changes without a restart.
load run

setup() { make_run_folder; }
teardown() { kill -9 "$launcher" 2>/dev/null || true; }

model=(--model.layers=4 --model.hidden=128 --model.heads=4 --model.sequence=128 --train.global_batch=16 --train.micro_batch=1
  --train.steps=100000 --recovery.allow_injection=true)
# slowed KEY...: a run on two replicas whose rank 1 is slow from step 40 on, until ranks are started again.
slowed() {
  train_in_background "${model[@]}" --parallel.data=2 --parallel.pipeline=1 --parallel.schedule=1f1b --inject "slow rank 1 to 15 % from 40 to 100000" "$@"
  wait_until 60 steps_done 41
}
# said REGEX: within 120 s.
said() { wait_until 120 grep -qE "$1" "$work/out" || { cat "$work/out" "$work/err"; return 1; }; }
shares() { jq -c '[.ranks[] | select(.stage == 0).samples]' "$work/run/plan.json"; }
# Of 16, two alike have 8; on a busy machine they are measured as up to a third apart, and shares that fit that stay.
has_its_share() { jq -e '.[1] >= 5' < <(shares); }
ends_after_every_step_once() {
  kill -TERM "$launcher"
  ends_with 143
  jq -es 'map(.step) == [range(1; length + 1)]' "$work/run/metrics.jsonl"
}
slow="^rank 1 on $(uname -n) computes [0-9.]+ times as long as planned \([0-9]+ steps, \+-[0-9.]+ %\): "

@test "a slow rank gets a smaller share while it trains, keeps it when ranks are started again, and gives it back" {
  slowed
  mapfile -t ranks < <(rank_pids)
  ((${#ranks[@]} == 2))
  said "${slow}its share goes from 8 to [1-6] sequences$"
  said "^steps are .* since the share of rank 1 on .* went from 8 to [1-6] sequences: "
  mapfile -t now < <(rank_pids)
  [[ ${now[*]} == "${ranks[*]}" ]]
  less=$(shares)
  jq -e 'add == 16 and .[1] < 7' <<<"$less"
  jq -e '.why | any(test("after step [0-9]+: .* its share goes from 8 to "))' "$work/run/plan.json"
  grep -q "its share goes from 8 to " "$work/run/plan.txt"
  kill -9 "${ranks[0]}"
  said '^going on \(failure 1 of this run\)$'
  said '^resumed from the '
  [[ $(shares) == "$less" ]]
  # Ranks that were started again are measured again, so that the planner may be the first to find equal shares. Noise may make two
  # steps of the way back.
  said "^(rank 1 on .* computes 0\.[0-9]+ times as long as before .*: its share goes from [1-6] to [2-9] sequences$|moving to another plan: )"
  wait_until 60 has_its_share
  ends_after_every_step_once
}

@test "a stage that is slow makes its replica slow; a rank that fails as shares change leaves all with the same ones" {
  slowed --parallel.pipeline=2
  mapfile -t ranks < <(rank_pids)
  said "${slow}its share goes from 8 to [2-6] sequences$"
  kill -9 "${ranks[3]}"
  said '^going on \(failure 1 of this run\)$'
  said "^steps are .* since the share of rank 1 on .* went from 8 to [2-6] sequences: "
  jq -e '[.ranks[].samples] | add == 32 and .[0] == .[2] and .[1] == .[3]' "$work/run/plan.json"
  ends_after_every_step_once
}

@test "where shares stay the line says why" {
  slowed --train.reproducible=layout
  said "${slow}train.reproducible = layout keeps shares$"
  [[ $(shares) == '[8,8]' ]]
  ends_after_every_step_once
}
