# The text and the models on 4 ranks of one machine that tests/bench/learning, gate_harm and replan_harm train.
# shellcheck shell=bash

# write_learning_model FOLDER BUILD STEPS [SIZE]: config.toml, and the tokens of the English text that it names. SIZE is "small"
# (default): GPT-2 of 4 layers x 128, sequences of 128, vocabulary 2048; or "13.9M": 6 layers x 384, sequences of 256, vocabulary 8192.
write_learning_model() {
  local layers=4 heads=4 hidden=128 sequence=128 vocab=2048 lr=2e-3
  [[ ${4:-small} == small ]] || layers=6 heads=6 hidden=384 sequence=256 vocab=8192 lr=1e-3
  zcat /usr/share/dictd/foldoc.dict.dz | iconv -c -t UTF-8 >"$1/foldoc.txt"
  "$2/bin/adaptive-train" data build --vocab-size $vocab --output "$1/text" "$1/foldoc.txt" >/dev/null
  cat >"$1/config.toml" <<TOML
[model]
layers = $layers
heads = $heads
hidden = $hidden
sequence = $sequence
vocab = $vocab
[data]
train = "text"
[train]
steps = $3
global_batch = 8
validation_samples = 400
[optimizer]
lr = $lr
warmup_steps = 100
[parallel]
data = 4
shares = "even"
[profile]
measure = false
[device]
threads = 1
TOML
}
