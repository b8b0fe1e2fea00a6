# What the bats files about packages share; each says with files NAME what a package holds.
# shellcheck shell=bash disable=SC2034 # they are for who sources this

repository=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
packages=(adaptive-train adaptive-train-slurm adaptive-traind)
# What administrators edit, below the root: one file of each package that has any.
drop_in=etc/slurm/plugstack.conf.d/adaptive_train.conf
options=etc/adaptive-train/adaptive-traind.toml

# holds NAME PATTERN...: each pattern is a file of the package.
holds() {
  local pattern list
  list=$(files "$1")
  for pattern in "${@:2}"; do
    grep -qxE "$pattern" <<<"$list" || { echo "$1 has no $pattern" && return 1; }
  done
}

# switched_on FILE: a drop-in as it is after step 1 of its own instructions.
switched_on() { sed 's/^#optional /optional /' "$1"; }

# is_switched_off FILE: it has no line that Slurm reads, and one when it is switched on.
is_switched_off() {
  [ "$(grep -vcE '^(#|$)' "$1")" -eq 0 ] && [ "$(switched_on "$1" | grep -vcE '^(#|$)')" -eq 1 ]
}

# administrator_edits ROOT: one line of each of the files that are hers.
administrator_edits() {
  sed -i 's/^#optional /optional /' "$1/$drop_in"
  echo 'operators = ["slurm"]' >>"$1/$options"
}

# edits_are_kept ROOT
edits_are_kept() {
  [ "$(grep -c '^optional ' "$1/$drop_in")" -eq 1 ] && [ "$(tail -n 1 "$1/$options")" = 'operators = ["slurm"]' ]
}
