# libadaptive_train_cuda.so for all GPUs that its sources are for. Nothing here needs a GPU.
bats_require_minimum_version 1.5.0

setup_file() {
  repository=$BATS_TEST_DIRNAME/../..
  sources=$(find "$repository/kernels/cuda" -name '*.cu' | wc -l)
  export repository sources
}

@test "machine code for sm_75, 80, 86, 89, 90 and 100, and PTX of the last, of every source; spills of 24 bytes at most" {
  local build=$BATS_TEST_TMPDIR/all unit=$repository/tests/unit/kernels
  cmake -S "$repository" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DADAPTIVE_TRAIN_TESTS=OFF \
    -DADAPTIVE_TRAIN_CUDA=ON -DADAPTIVE_TRAIN_CUDA_ARCHITECTURES=all >/dev/null
  cmake --build "$build" --target adaptive_train_cuda >"$BATS_TEST_TMPDIR/log" || { tail "$BATS_TEST_TMPDIR/log" && return 1; }
  run "$unit/fatbin_architectures" "$build/lib/libadaptive_train_cuda.so"
  echo "$output"
  for architecture in sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 compute_100; do
    awk -v name="$architecture" -v sources="$sources" '$1 == name && $2 >= sources { found = 1 } END { exit !found }' <<<"$output"
  done
  ((${#lines[@]} >= 7))
  "$unit/ptxas_report" "$build/kernels/cuda/CMakeFiles/kernels_cuda.dir" >"$BATS_TEST_TMPDIR/report"
  awk '$2 > most { most = $2 } $4 > loads { loads = $4 } END { print NR " functions, frames of " most " bytes at most, spills of " loads
    exit NR < 600 || most > 72 || loads > 72 }' "$BATS_TEST_TMPDIR/report"
}

@test "the sources compile for sm_70 with CUDA 12.9, which has the V100" {
  run --separate-stderr "$repository/tests/gpu/compile_for_sm_70" "$BATS_TEST_TMPDIR/sm_70"
  # shellcheck disable=SC2154 # run sets it
  echo "$output$stderr"
  [ "$status" -eq 0 ]
  ((${#lines[@]} == sources))
  [[ $output != *": 0 kernels"* ]]
}
