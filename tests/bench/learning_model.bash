# The text and the small GPT-2 (4 layers x 128, sequences of 128, vocabulary 2048) on 4 ranks of one machine that tests/bench/learning
# and tests/bench/gate_harm train.
# shellcheck shell=bash

# write_learning_model FOLDER BUILD STEPS: config.toml, and the tokens of the English text that it names.
write_learning_model() {
  zcat /usr/share/dictd/foldoc.dict.dz | iconv -c -t UTF-8 >"$1/foldoc.txt"
  "$2/bin/adaptive-train" data build --vocab-size 2048 --output "$1/text" "$1/foldoc.txt" >/dev/null
  cat >"$1/config.toml" <<TOML
[model]
layers = 4
heads = 4
hidden = 128
sequence = 128
vocab = 2048
[data]
train = "text"
[train]
steps = $3
global_batch = 8
validation_samples = 400
[optimizer]
lr = 2e-3
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
