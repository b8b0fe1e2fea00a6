# Launching: 100 in a row as an ordinary user without a hang, and fences that hang on purpose.
load box
load job

setup_file() { box_up_once; }
teardown_file() { box_down; }
setup() { make_job_home; }

@test "100 launches in a row: none hangs, at most 2 retries, counted in the store" {
  cat >"$home/hundred.sh" <<'SH'
#!/bin/bash
for i in $(seq 100); do
  timeout 60 adaptive-train run config.toml --train.steps=1 --train.validation_samples=1 --run-dir runs/launch --train.seed="$i" --store file:launches.db >launch.out 2>&1 || { cat launch.out; exit 1; }
  rm -rf runs/launch
done
SH
  chmod 755 "$home/hundred.sh"
  rm -f "$home"/launches.db*
  box_on ctl timeout 800 salloc -N4 --adaptive-train ./hundred.sh
  ok=$(sqlite3 "$home/launches.db" "SELECT count(*) FROM launches WHERE outcome = 'ok'")
  retries=$(sqlite3 "$home/launches.db" "SELECT count(*) FROM launches WHERE outcome = 'retried'")
  echo "# 100 launches: $ok ok, $retries retried" >&3
  ((ok == 100 && retries <= 2))
}

@test "a hung fence costs one retry, not the job" {
  mkdir -p "$home/fake"
  cp "$fakes/libhung_fence.so" "$home/fake/"
  echo 1 >"$home/fake/HUNG_FENCES"
  chown -R --reference="$home" "$home/fake"
  job=$(box_on ctl sbatch --parsable -N4 --adaptive-train --wrap "LD_PRELOAD=$home/fake/libhung_fence.so exec adaptive-train run config.toml")
  wait_until 90 job_over "$job"
  show_job "$job"
  [[ $(job_field "$job" ExitCode) == 0:0 ]]
  grep -q '1 launch retry$' "$home/slurm-$job.out"
}
