# What the bats files about the plugin share beyond box.bash: which plugins Slurm loads, and what
# its nodes say.
# shellcheck shell=bash

REPOSITORY=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
BUILD=${ADAPTIVE_TRAIN_BUILD:-$REPOSITORY/build/${ADAPTIVE_TRAIN_PRESET:-release}}

# plugin_prepare: for setup_file: a box of this file's own is to hold what was built.
plugin_prepare() {
  if ((EUID != 0)); then echo "these tests need root" >&2 && return 1; fi
  unset ADAPTIVE_TRAIN_OPTIONS
  export ADAPTIVE_TRAIN_BOX=/var/tmp/adaptive-train-box-${BATS_TEST_FILENAME##*/}.$$
  cmake --install "$BUILD" --prefix "$BATS_FILE_TMPDIR/prefix" >/dev/null
}

# plugin_box_up ARG...: brings it up, with the fakes where its nodes can reach them.
plugin_box_up() {
  box up --prefix "$BATS_FILE_TMPDIR/prefix" "$@"
  BOX_DIR=$(box_value BOX_DIR) BOX_HOME=$(box_value BOX_HOME)
  BOX_LOG=$(box_value BOX_LOG) BOX_PREFIX=$(box_value BOX_PREFIX)
  export BOX_DIR BOX_HOME BOX_LOG BOX_PREFIX
  cp -r "$REPOSITORY/tests/fakes/probes" "$BOX_PREFIX/probes"
  chmod -R go+rX "$BOX_PREFIX/probes"
  cp "$BUILD/lib/faulty_plugin.so" "$BOX_PREFIX/lib/"
  export OUR_PLUGIN="$BOX_PREFIX/lib/slurm/adaptive_train.so"
  OUR_PLUGIN+=" probe=$BOX_PREFIX/bin/adaptive-train-probe"
  export FAULTY_PLUGIN="$BOX_PREFIX/lib/faulty_plugin.so"
}

# plugstack LINE...: what Slurm's processes load from now on. slurmd itself keeps what it was
# started with; its prologs, epilogs and steps, and the commands of users, are new processes each
# time.
plugstack() {
  printf '%s\n' "$@" >"$BOX_DIR/etc/slurm/plugstack.conf.new"
  mv "$BOX_DIR/etc/slurm/plugstack.conf.new" "$BOX_DIR/etc/slurm/plugstack.conf"
}

# run_as_user CMD...: CMD on the login node as the ordinary user, with bats' status, output and
# lines.
run_as_user() { run box_on ctl "$@"; }

# run_batch ARG...: submits as the user, and waits until the job is over. `sbatch --wait` would do the
# same in steps of two seconds.
run_batch() {
  run box_on ctl sbatch --parsable "$@"
  [[ $status -ne 0 ]] || wait_until 60 is_over "$output"
}
is_over() { [[ -z $(box_root ctl squeue -h -j "$1" 2>/dev/null) ]]; }

# job_count: jobs that Slurm knows, finished ones too.
job_count() { box_root ctl scontrol --oneliner show jobs | grep -c '^JobId=' || true; }

all_idle() {
  [[ $(box_root ctl sinfo -h -N -o %t | sort -u) == idle && -z $(box_root ctl squeue -h) ]]
}

# our_lines NODE: what the plugin has said in a node's slurmd.log.
our_lines() {
  sed -nE 's/^\[[^]]*\] (\[[^]]*\] )?(error: )?(adaptive-train: .*)/\3/p' "$BOX_LOG/slurmd.$1.log"
}

# last_job: the id of the latest submission.
last_job() {
  box_root ctl scontrol --oneliner show jobs | sed -n 's/^JobId=\([0-9]*\) .*/\1/p' |
    sort -n | tail -n 1
}
