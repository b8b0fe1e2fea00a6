# A rank that the system ends for its memory, and not a peer in which UCX aborts for lack of it, is named.
load ../multi_process/run

setup() { make_run_folder; }
teardown() {
  kill -9 "$launcher" 2>/dev/null || true
  [[ ! -d ${group-} ]] || wait_until 10 rmdir "$group"
}

@test "a rank that the system ends because memory is short: out of memory" {
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control
    group=$(mktemp -d /sys/fs/cgroup/adaptive-train-test-XXXXXX)
    echo 600M >"$group/memory.max"
  else
    group=$(mktemp -d /sys/fs/cgroup/memory/adaptive-train-test-XXXXXX)
    echo 600M >"$group/memory.limit_in_bytes"
  fi
  # bash would go on in the group.
  bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' _ "$group" \
    "$bin/adaptive-train" run "$work/config.toml" --run-dir "$work/run" --store "$store" --train.steps=100000 \
    --recovery.attempts=0 >"$work/out" 2>"$work/err" 3>&- &
  launcher=$!
  wait_until 60 steps_done 5
  mapfile -t ranks < <(rank_pids)
  echo 1000 >"/proc/${ranks[1]}/oom_score_adj"
  # Takes memory until that rank is gone; it may be ended next.
  bash -c 'echo $$ >"$1/cgroup.procs"; exec python3 -c "
import os, sys, time
blocks = []
while os.path.exists(sys.argv[1]):
    blocks.append(bytearray(4 << 20))
    time.sleep(0.01)" "/proc/$2"' _ "$group" "${ranks[1]}" 3>&- &
  ends_with 5
  wait "$!" || true
  grep -E '^adaptive-train: rank 1 on .*: its process ended: killed by signal 9 \(Killed\), out of memory' "$work/err"
  [[ $(sqlite3 "$work/profiles.db" 'SELECT kind FROM failures') == out_of_memory ]]
}
