# Runs on a GPU that is emulated (tests/unit/kernels/emulated_cuda.cc) and that a fake NVML shows. Its memory is closed to the host.
bats_require_minimum_version 1.5.0
load run

setup_file() {
  local installed=$BATS_FILE_TMPDIR/installed
  mkdir -p "$installed"/{bin,lib}
  cp "$bin"/adaptive-train{,-worker,-probe} "$installed/bin/"
  cp "$ADAPTIVE_TRAIN_BUILD/lib/emulated/libadaptive_train_cuda.so" "$installed/lib/"
}
setup() {
  make_run_folder
  # An emulated GPU has some 50 tokens a second of the model's usual size.
  sed -i 's/^sequence = 32$/sequence = 8/; s/^hidden = 32$/hidden = 16/; s/^steps = 20$/steps = 8/; s/^global_batch = 10$/global_batch = 6/' "$work/config.toml"
  bin=$BATS_FILE_TMPDIR/installed/bin
  export LD_LIBRARY_PATH=$ADAPTIVE_TRAIN_BUILD/tests/unit/spank_plugin/fake_nvml
}

# on KIND FOLDER ARG...: 8 steps of one rank, if no ARG says otherwise.
on() {
  train --device.kind="$1" --parallel.data=1 --run-dir "$work/$2" "${@:3}" >"$work/log" 2>&1 || { cat "$work/log" && return 1; }
}
# refused ARG...: sets $output to the one line that says why the GPU cannot be had.
refused() {
  rm -rf "$work/run"
  run ! train --device.kind=cuda --parallel.data=1 "$@"
  output=$(grep '^adaptive-train: ' <<<"$output" | grep -v '^adaptive-train: its log: ')
  echo "$output"
  [[ $output != *$'\n'* ]]
}

@test "a GPU's losses are the CPU's: GPT-2 with dropout and recomputation, Llama, BERT" {
  for model in "--model.kind=gpt2 --train.dropout=0.1 --train.recompute=full" "--model.kind=llama --model.kv_heads=1" "--model.kind=bert --train.recompute=selective"; do
    rm -rf "$work"/{cpu,gpu}
    read -ra keys <<<"$model"
    on cpu cpu "${keys[@]}" --train.micro_batch=4 --train.steps=4
    on cuda gpu "${keys[@]}" --train.micro_batch=4 --train.steps=4
    losses_agree "$work/cpu" "$work/gpu" 1e-5 4
    grep -q 'rank 0 of 1 on .*: guarded emulated GPU, ' "$work/gpu/logs/rank-0.log"
  done
}

@test "replicas on two GPUs sum through the host: the losses are those of replicas on CPUs" {
  on cpu cpus --parallel.data=2 --train.steps=4 "${same_layout[@]}"
  on cuda gpus --parallel.data=2 --train.steps=4 "${same_layout[@]}"
  [[ $(jq -c '[.ranks[].device_uuid[-1:]]' "$work/gpus/plan.json") == '["0","1"]' ]]
  losses_agree "$work/cpus" "$work/gpus" 1e-5 4
}

# agree TOLERANCE ARG...: 4 steps on CPUs and on GPUs.
agree() {
  rm -rf "$work"/{cpus,gpus}
  on cpu cpus --train.steps=4 "${same_layout[@]}" "${@:2}"
  FAKE_NVML_GPUS=4 on cuda gpus --train.steps=4 "${same_layout[@]}" "${@:2}"
  losses_agree "$work/cpus" "$work/gpus" "$1" 4
}

@test "stages on GPUs: the losses are those on CPUs, with a shared matrix, chunks, two versions of the weights" {
  agree 1e-5 --parallel.data=2 --parallel.pipeline=2
  agree 1e-5 --parallel.pipeline=2 --parallel.interleave=2 --model.layers=4 --model.kind=llama --parallel.schedule=interleaved
  agree 1e-2 --parallel.pipeline=2 --train.precision=bf16 --parallel.schedule=pipedream-2bw --train.micro_batch=1
}

@test "tensor ranks on GPUs: the losses are those on CPUs, also where they share a head of keys" {
  agree 1e-5 --parallel.tensor=2 --parallel.data=2 --train.dropout=0.1
  agree 1e-5 --parallel.tensor=2 --parallel.pipeline=2 --model.kind=llama --model.kv_heads=1
  agree 1e-2 --parallel.tensor=2 --train.precision=bf16
}

@test "sharded state and compressed gradients on GPUs: the losses are those on CPUs" {
  agree 1e-5 --parallel.data=2 --parallel.shard=1
  agree 1e-2 --parallel.data=3 --parallel.shard=2 --train.precision=bf16 --train.micro_batch=1 --parallel.gather=int8
  agree 1e-4 --parallel.data=2 --compression.mode=topk
  agree 1e-4 --parallel.data=2 --parallel.pipeline=2 --compression.mode=sketch
}

@test "a stage on a GPU is killed: the run goes on from memory, and has the losses of one that did not fail" {
  on cpu stays --parallel.pipeline=2 "${same_layout[@]}"
  train_in_background --device.kind=cuda --parallel.data=1 --parallel.pipeline=2 "${same_layout[@]}" --recovery.memory_every=1 --checkpoint.every=0
  wait_until 60 steps_done 3
  kill -KILL "$(rank_pids | tail -n 1)"
  ends_with 0
  grep -E '^resumed from the memory of step [0-9]+$' "$work/out"
  losses_agree "$work/stays" "$work/run" 1e-5 8
}

@test "a run's checkpoints go from CPU to GPU and back, and its losses are those of a run that stayed" {
  keys=(--optimizer.schedule=constant --checkpoint.every=0)
  on cpu stays "${keys[@]}"
  on cpu moves "${keys[@]}" --train.steps=3
  on cuda moves "${keys[@]}" --train.steps=6
  grep '^resumed from the checkpoint of step 3$' "$work/log"
  on cpu moves "${keys[@]}"
  grep '^resumed from the checkpoint of step 6$' "$work/log"
  losses_agree "$work/stays" "$work/moves" 1e-5 8
}

@test "16 bits on a GPU learn as on a CPU" {
  for precision in bf16 fp16; do
    on cpu "cpu-$precision" --train.precision=$precision
    on cuda "gpu-$precision" --train.precision=$precision
    losses_agree "$work/cpu-$precision" "$work/gpu-$precision" 1e-2 8
  done
}

@test "a killed rank on a GPU is started again and takes its state up from memory" {
  on cpu stays
  train_in_background --device.kind=cuda --parallel.data=1 --recovery.memory_every=1 --checkpoint.every=0
  wait_until 60 steps_done 3
  kill -KILL "$(rank_pids)"
  ends_with 0
  grep -E '^resumed from the memory of step [0-9]+$' "$work/out"
  losses_agree "$work/stays" "$work/run" 1e-5 8
}

@test "no driver, no library, another job on the GPU, the bits of any layout: one line each" {
  LD_LIBRARY_PATH='' refused
  [[ $output == *"device.kind = cuda: no node of the job has a GPU ("*"); ask Slurm for some with --gres=gpu:1"* ]]
  CUDA_EMULATED_FREE=1000000 refused
  [[ $output =~ needs\ [0-9]+\ MiB,\ 1\ MiB\ of\ [0-9]+\ are\ free\ on\ Fake\ H200\ \(GPU-00000000 ]]
  refused --train.reproducible=layout --train.micro_batch=1
  [[ $output == *"the bits of any layout (train.reproducible) on GPUs"* ]]
  mv "$BATS_FILE_TMPDIR/installed/lib/libadaptive_train_cuda.so" "$work/"
  refused
  mv "$work/libadaptive_train_cuda.so" "$BATS_FILE_TMPDIR/installed/lib/"
  [[ $output == *"libadaptive_train_cuda.so, which is not installed"* ]]
}

@test "a lost GPU beside one that works is not used" {
  FAKE_NVML=gpu1 on cuda run --train.steps=3
  [[ $(jq -r '.ranks[0] | .device + " " + .device_uuid' "$work/run/plan.json") == "cuda GPU-00000000-0000-0000-0000-000000000000" ]]
}
