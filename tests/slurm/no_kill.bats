# Which jobs keep their allocation when they lose a node: those with --adaptive-train, unless --no-kill=off was asked for.
load box
load job

setup_file() { box_up_once --nodes 18; }
teardown_file() { box_down; }
setup() {
  make_job_home
  # Longer than Slurm needs to call a node down.
  printf '#!/bin/bash\nenv\nsleep 45\n' >"$home/plain.sh"
  printf '#!/bin/bash\n#SBATCH --adaptive-train\nenv\nsleep 45\n' >"$home/lines.sh"
  printf '#!/bin/bash\n#SBATCH --no-kill=off\n#SBATCH --adaptive-train\nenv\nsleep 45\n' >"$home/off.sh"
  chmod 755 "$home"/*.sh
}

# sleeps COMMAND: a job of two nodes, begun and left to itself.
sleeps() {
  local words
  read -ra words <<<"$1"
  box_on ctl "${words[@]}" >>"$home/begun" 2>&1 3>&- &
}
# job_of NAME: the job with that name.
job_of() { box_root ctl squeue -h -t all -n "$1" -o %i; }
second_node() { box_root ctl scontrol show hostnames "$(job_field "$1" NodeList)" | tail -n 1; }
# has_begun NAME: it has written its environment.
has_begun() {
  local job
  job=$(job_of "$1")
  [[ $job ]] && grep -qs ^SLURM_JOB_ID "$home/slurm-$job.out"
}

@test "--adaptive-train keeps the allocation of a job that loses a node, wherever the option stands; other jobs end as ever" {
  local sbatch='sbatch -N 2 --exclusive --no-requeue -J'
  declare -A commands=(
    [option]="$sbatch option --adaptive-train plain.sh"
    [line]="$sbatch line lines.sh"
    [variable]="env ADAPTIVE_TRAIN_OPTIONS=spares=0 $sbatch variable plain.sh"
    [salloc]="salloc -N 2 --exclusive -J salloc --adaptive-train sh -c ./plain.sh>slurm-\$SLURM_JOB_ID.out"
    [salloc_off]="env SALLOC_NO_KILL=off salloc -N 2 --exclusive -J salloc_off --adaptive-train sh -c ./plain.sh>slurm-\$SLURM_JOB_ID.out"
    [line_off]="$sbatch line_off off.sh"
    [none]="$sbatch none plain.sh --adaptive-train"
    [off]="$sbatch off --no-kill=off --adaptive-train plain.sh"
    [variable_off]="env SBATCH_NO_KILL=off $sbatch variable_off --adaptive-train plain.sh"
  )
  declare -A jobs=() seconds=()
  for name in "${!commands[@]}"; do sleeps "${commands[$name]}"; done
  for name in "${!commands[@]}"; do
    wait_until 60 has_begun "$name" || { cat "$home/begun"; return 1; }
    jobs[$name]=$(job_of "$name")
    seconds[$name]=$(second_node "${jobs[$name]}")
  done
  for node in "${seconds[@]}"; do box kill "$node"; done
  for name in "${!jobs[@]}"; do wait_until 90 job_over "${jobs[$name]}"; done
  for node in "${seconds[@]}"; do box revive "$node"; done
  for name in "${!jobs[@]}"; do
    echo "$name $(job_field "${jobs[$name]}" JobState) $(grep -c NO_KILL= "$home/slurm-${jobs[$name]}.out")"
  done | sort >"$home/states"
  # And how many such variables the job itself sees: what its user has set.
  diff - "$home/states" <<'STATES'
line COMPLETED 0
line_off COMPLETED 0
none NODE_FAIL 0
off NODE_FAIL 0
option COMPLETED 0
salloc COMPLETED 0
salloc_off NODE_FAIL 1
variable COMPLETED 0
variable_off NODE_FAIL 1
STATES
}
