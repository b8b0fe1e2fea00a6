# Runs that go on after failures in the layouts that recovery.bats leaves out.
load recovery

@test "ranks that are killed: the run goes on with the bits of one that did not fail, in any layout" {
  for layout in "--parallel.data=4" "--parallel.data=2 --parallel.tensor=2"; do killed_twice "$layout"; done
}

@test "a state in memory takes the place of a checkpoint: no step that was reported is lost, in any layout" {
  for layout in "--parallel.data=4" "--parallel.data=2 --parallel.pipeline=2 --parallel.shard=1" "--parallel.data=4 --parallel.shard=2" \
    "--parallel.data=2 --parallel.tensor=2"; do no_step_lost "$layout"; done
}
