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

# A frame on the stack is memory beyond the caches' first level. The one spill that is allowed is a float4 of the keys'
# gradients, outside the innermost loop.
@test "no kernel spills registers or has a stack but those stated" {
  run "$here/ptxas_report" "$build/kernels/cuda/CMakeFiles/kernels_cuda.dir"
  [ "$status" -eq 0 ]
  ((${#lines[@]} > 100))
  run awk '$2 + $3 + $4 > 0 && !(/KeyGradientKernel/ && $3 <= 16 && $4 <= 16)' <<<"$output"
  echo "$output"
  [ -z "$output" ]
}
