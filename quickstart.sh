#!/bin/bash
# The main use case on this machine: installs missing packages, builds, and boots a 4-node Slurm cluster in a box.
# It trains a small GPT on English text by `sbatch --adaptive-train`, and shows the plan, the falling loss and the
# stored profile. Run as root on Debian 12; may be run again. The run folder stays; everything else ends with this script.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
box=tests/box/box

fail() {
  echo "quickstart: $*" >&2
  exit 1
}
((EUID == 0)) || fail "must be run as root: it installs packages and makes network namespaces"
[[ $# -eq 0 ]] || fail "takes no arguments"

echo "1/4 packages"
packaging/debian/install-packages

echo "2/4 build (build/release)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { cmake --preset release && cmake --build --preset release --target adaptive-train adaptive-train-worker adaptive-train-probe adaptive-traind adaptive_train; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  fail "the build failed"
fi

echo "3/4 a Slurm cluster of 4 nodes"
follower=
end() {
  status=$?
  trap '' INT TERM
  rm -f "$log"
  [[ -z $follower ]] || kill "$follower" 2>/dev/null || true
  "$box" down >/dev/null || status=1
  exit "$status"
}
"$box" up
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
eval "$("$box" env)"
"$box" on ctl --user sinfo

echo "4/4 training on the Free On-line Dictionary of Computing (Debian's dict-foldoc)"
zcat /usr/share/dictd/foldoc.dict.dz >"$BOX_HOME/corpus.txt"
cp examples/quickstart.toml examples/quickstart.job "$BOX_HOME/"
chown --reference="$BOX_HOME" "$BOX_HOME"/{corpus.txt,quickstart.toml,quickstart.job}
rm -f "$BOX_HOME"/slurm-*.out # of an earlier cluster that counted its jobs from 1 as well
job=$("$box" on ctl --user sbatch --parsable -N4 --adaptive-train quickstart.job)
output=$BOX_HOME/slurm-$job.out
echo "\$ sbatch -N4 --adaptive-train quickstart.job    # job $job"
tail -n +1 -F "$output" 2>/dev/null &
follower=$!
give_up=$((SECONDS + 600))
while "$box" on ctl --user squeue -h -j "$job" -t PENDING,RUNNING,COMPLETING 2>/dev/null | grep -q .; do
  ((SECONDS < give_up)) || fail "job $job did not end within 10 minutes"
  sleep 0.5
done
sleep 0.3 # tail's last look
kill "$follower"
wait "$follower" 2>/dev/null || true
follower=

echo
echo "\$ adaptive-train jobs"
"$box" on ctl --user adaptive-train jobs -S now-1hour
result=$(grep -o 'validation loss [0-9.]* nats per token (unigram entropy of the validation text: [0-9.]*)' "$output" | tail -n 1) ||
  fail "job $job gave no validation loss; its output is $output"
read -r loss entropy < <(sed 's/[^0-9.]\+/ /g' <<<"$result")
awk -v a="$loss" -v b="$entropy" 'BEGIN { exit !(a < b) }' || fail "validation loss $loss is not below the unigram entropy $entropy"
echo
echo "The model does better than letter frequencies: $loss < $entropy nats per byte."
sed -n 's/^run folder: /Run folder: /p' "$output"
