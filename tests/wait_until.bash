# How bats files wait.
# shellcheck shell=bash

# wait_until SECONDS CMD...: until CMD succeeds, or fails saying what did not happen.
wait_until() {
  local give_up=$((SECONDS + $1 + 1)) seconds=$1
  shift
  until "$@"; do
    if ((SECONDS >= give_up)); then
      echo "not within $seconds s: $*" >&2
      return 1
    fi
    sleep 0.05
  done
}
