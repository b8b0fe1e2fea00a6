# A text and a configuration that train in a second, for all bats files.
# shellcheck shell=bash

# write_small_model FOLDER [LINE...]: corpus.txt (about 120 kB of generated words) and config.toml, LINEs at its end.
write_small_model() {
  local folder=$1
  shift
  awk 'BEGIN { srand(7); split("the of training node link rank stage batch step gradient loss time memory cluster", w, " ");
       while (n < 120000) { word = w[int(rand() * rand() * 14) + 1]; printf "%s%s", word, rand() < .1 ? ".\n" : " "; n += length(word) + 1 } }' >"$folder/corpus.txt"
  cat >"$folder/config.toml" <<'TOML'
[model]
layers = 2
heads = 2
hidden = 32
sequence = 32
[data]
train = "corpus.txt"
[train]
steps = 20
global_batch = 10
[optimizer]
warmup_steps = 2
[device]
threads = 1
TOML
  (($# == 0)) || printf '%s\n' "$@" >>"$folder/config.toml"
}
