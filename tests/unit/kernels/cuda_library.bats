#!/usr/bin/env bats
# libadaptive_train_cuda.so as it is built, and who needs it. Nothing here needs a GPU.

setup() {
  here=$BATS_TEST_DIRNAME
  build=$ADAPTIVE_TRAIN_BUILD
  library=$build/lib/libadaptive_train_cuda.so
}

# needed FILE: the libraries that are loaded with it.
needed() { ldd "$1" | awk '{ print $1 }'; }

@test "programs start without CUDA, and so does the library" {
  for file in "$build/bin/adaptive-train" "$build/bin/adaptive-train-worker" "$library"; do
    run needed "$file"
    [ "$status" -eq 0 ]
    [[ $output == *libc.so* ]]
    [[ $output != *libcu* && $output != *libnv* && $output != *libadaptive_train_cuda* ]]
  done
}

@test "the library has machine code for sm_90 and PTX for later GPUs, of every source" {
  run "$here/fatbin_architectures" "$library"
  echo "$output"
  [ "$status" -eq 0 ]
  local sources
  sources=$(ls "$here"/../../../kernels/cuda/*.cu | wc -l)
  while read -r architecture count; do
    ((count >= sources))
  done <<<"$output"
  [[ $output == *compute_90* && $output == *sm_90* ]]
}

# A frame on the stack is memory beyond the caches' first level. Attention's kernels may spill what they read outside their
# innermost loops: with fewer registers more blocks fit. Others may spill two numbers.
@test "no kernel spills registers or has a stack but those stated" {
  run "$here/ptxas_report" "$build/kernels/cuda/CMakeFiles/kernels_cuda.dir"
  [ "$status" -eq 0 ]
  ((${#lines[@]} > 100))
  run awk '{ most = /AttentionKernel|GradientKernelILi/ ? 72 : 16 } $2 > most || $3 > most || $4 > most' <<<"$output"
  echo "$output"
  [ -z "$output" ]
}

# fake_nvidia_smi LINES...: stands before the machine's own, if it has one.
fake_nvidia_smi() {
  mkdir -p "$BATS_TEST_TMPDIR/fake"
  printf '#!/bin/bash\n%s\n' "$1" >"$BATS_TEST_TMPDIR/fake/nvidia-smi"
  chmod +x "$BATS_TEST_TMPDIR/fake/nvidia-smi"
  PATH=$BATS_TEST_TMPDIR/fake:$PATH
}

@test "the archive for machines with GPUs runs where it is unpacked, and says what is missing" {
  run "$here/../../gpu/bundle" "$build" "$BATS_TEST_TMPDIR/gpu.tar.gz"
  echo "$output"
  [ "$status" -eq 0 ]
  tar -C "$BATS_TEST_TMPDIR" -xf "$BATS_TEST_TMPDIR/gpu.tar.gz"
  local root=$BATS_TEST_TMPDIR/adaptive-train-gpu
  # Its own libraries, not the machine's, but for the C library.
  run ldd "$root/bin/gpu_kernels_test" "$root/bin/device_bench" "$root/lib/libadaptive_train_cuda.so"
  [[ $output == *"/lib/libstdc++.so"* && $output != *"not found"* ]]
  run awk -v root="$root/" '$2 == "=>" && index($3, root) != 1 && $3 !~ /\/(libc|libm|libdl|librt|libpthread)\.so/' <<<"$output"
  echo "$output"
  [ -z "$output" ]
  # `run` has the programs that train look there.
  LD_LIBRARY_PATH=$root/lib run ldd "$root"/bin/adaptive-train{,-worker,-probe}
  [[ $output == *"/lib/libpmix.so"* && $output != *"not found"* ]]
  run awk -v root="$root/" '$2 == "=>" && index($3, root) != 1 && $3 !~ /\/(libc|libm|libdl|librt|libpthread)\.so/' <<<"$output"
  [ -z "$output" ]
  run "$root/bin/gpu_kernels_test" --gtest_list_tests
  [ "$status" -eq 0 ]
  run "$root/bin/device_bench" GPU-01234567-89ab-cdef-0123-456789abcdef bf16
  echo "$output"
  [ "$status" -eq 4 ]
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == "device_bench: GPU: "* ]]
  run "$root/bin/device_bench" cpu bf16 100000 64
  echo "$output"
  [ "$status" -eq 0 ]
  [[ $output == *"AttentionBackward"*TFLOP/s* && $output == *"Select 0.30"*" % of a copy"* ]]

  fake_nvidia_smi 'echo "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver."; exit 9'
  run "$root/run" "$BATS_TEST_TMPDIR/report.txt"
  [ "$status" -eq 4 ]
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == "run: no GPU here: "* ]]
}

@test "a failed GPU check is named at the report's end" {
  run "$here/../../gpu/bundle" "$build" "$BATS_TEST_TMPDIR/gpu.tar.gz"
  tar -C "$BATS_TEST_TMPDIR" -xf "$BATS_TEST_TMPDIR/gpu.tar.gz"
  fake_nvidia_smi 'echo GPU-01234567-89ab-cdef-0123-456789abcdef'
  run "$BATS_TEST_TMPDIR/adaptive-train-gpu/run" "$BATS_TEST_TMPDIR/report.txt"
  cat "$BATS_TEST_TMPDIR/report.txt"
  [ "$status" -eq 1 ]
  [[ $output == *"FAILED: [shared suite in fp32, bf16 and fp16] [bandwidth and operations in bf16]"* ]]
  grep -q '^== bandwidth and operations in fp16: FAILED with 4' "$BATS_TEST_TMPDIR/report.txt"
}
