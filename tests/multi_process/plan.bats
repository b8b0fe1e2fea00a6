# What `plan` shows: what `run` would do, and with --ideal what may come later.
load run

examples=$BATS_TEST_DIRNAME/../../examples

plan() { "$bin/adaptive-train" plan "$examples/gpt-1.3b.toml" --cluster "$examples/clusters/two-switches.json" --json "$@"; }

@test "a plan is what this version runs unless --ideal asks for more" {
  [[ $(plan | jq -c '[(.stages | length), .tensor, .shard]') == '[1,1,0]' ]]
  [[ $(plan --ideal | jq '(.stages | length) * .tensor + .shard') -gt 1 ]]
}

@test "what the configuration asks for is planned, and it is told that it cannot run" {
  plan --parallel.pipeline=2 | jq -e '.stages | length == 2'
  "$bin/adaptive-train" plan "$examples/gpt-1.3b.toml" --cluster "$examples/clusters/two-switches.json" --parallel.pipeline=2 |
    grep -F 'note: this version cannot run'
}
