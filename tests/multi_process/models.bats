# The further life of a trained model: evaluated on another text, exported, imported, started from.
load run

setup() {
  make_run_folder
  sed 's/the/a/g; s/rank/node/g' "$work/corpus.txt" >"$work/other.txt"
}

field() { jq -r ".$1" "$work/answer.json"; }

@test "eval gives the run's own validation loss on its validation text, and another on another text" {
  local kind vocab
  for kind in gpt2 llama bert; do
    vocab=$([[ $kind == bert ]] && echo 257 || echo 256)
    cp "$work/other.txt" "$work/validation.txt"
    rm -rf "$work/run"
    train --model.kind=$kind --model.vocab="$vocab" --data.validation="$work/validation.txt" --train.validation_samples=10 --parallel.data=2
    "$bin/adaptive-train" eval "$work/run" --data "$work/validation.txt" --samples 10 --batch 3 --json >"$work/answer.json"
    jq -es --argjson loss "$(field loss)" '.[-1].validation_loss as $v | (($v - $loss) / $v | fabs) < 1e-6' "$work/run/metrics.jsonl"
    [[ $(field samples) == 10 ]]
  done
  "$bin/adaptive-train" eval "$work/run/checkpoints/step-00000020" --data "$work/corpus.txt" --threads 2 | grep -E '^perplexity +[0-9]'
}

@test "eval says in one line what is wrong" {
  train --parallel.data=1
  run -4 "$bin/adaptive-train" eval "$work/run" --data "$work/gone.txt"
  [[ ${#lines[@]} == 1 && $output == *"$work/gone.txt"* ]]
  run -2 "$bin/adaptive-train" eval "$work/nowhere" --data "$work/other.txt"
  [[ ${#lines[@]} == 1 && $output == *nowhere* ]]
  truncate -s -100 "$work/run/checkpoints/step-00000020/shard-00000.bin"
  run -4 "$bin/adaptive-train" eval "$work/run" --data "$work/other.txt"
  [[ ${#lines[@]} == 1 && $output == *shard-00000.bin* ]]
}

@test "what Llama's relatives have comes back from export and import, and a run goes on with it" {
  local relative=(--model.kind=llama --model.attention_bias=qkv --model.head_size=10 --model.rope_base=500 --model.norm_epsilon=1e-3
    --model.rope_scaling=llama3 --model.rope_original_sequence=16)
  train "${relative[@]}" --parallel.data=2
  "$bin/adaptive-train" export "$work/run" --hf "$work/hf"
  jq -e '.model_type == "qwen2" and .head_dim == 10 and .rope_theta == 500 and .rms_norm_eps == 0.001
    and .rope_scaling.rope_type == "llama3" and .rope_scaling.original_max_position_embeddings == 16' "$work/hf/config.json"
  "$bin/adaptive-train" import --hf "$work/hf" --output "$work/start"
  "$bin/adaptive-train" eval "$work/run" --data "$work/other.txt" --samples 5 --json | jq .loss >"$work/trained"
  "$bin/adaptive-train" eval "$work/start" --data "$work/other.txt" --samples 5 --json | jq .loss >"$work/imported"
  cmp "$work/trained" "$work/imported"
  # The same parameters in another model are refused.
  run train --model.kind=llama --model.attention_bias=qkv --model.head_size=10 --model.norm_epsilon=1e-3 --parallel.data=1 \
    --run-dir "$work/again" --checkpoint.start="$work/start/step-00000000"
  [[ $status -ne 0 && $output == *model.rope_base\ =\ 500* ]]
}

@test "export, import, and a run that begins with it: the same model" {
  local kind
  for kind in gpt2 llama; do
    rm -rf "$work/run" "$work/hf" "$work/start" "$work/again"
    train --model.kind=$kind --parallel.data=1
    "$bin/adaptive-train" export "$work/run" --hf "$work/hf"
    [[ -s $work/hf/model.safetensors && $(jq -r '.architectures[0]' "$work/hf/config.json") == *LMHeadModel || $(jq -r '.architectures[0]' "$work/hf/config.json") == LlamaForCausalLM ]]
    run "$bin/adaptive-train" export "$work/run" --hf "$work/hf"
    [[ $status -ne 0 && ${#lines[@]} == 1 ]]
    "$bin/adaptive-train" import --hf "$work/hf" --output "$work/start"
    "$bin/adaptive-train" eval "$work/run" --data "$work/other.txt" --samples 5 --json | jq .loss >"$work/trained"
    "$bin/adaptive-train" eval "$work/start" --data "$work/other.txt" --samples 5 --json | jq .loss >"$work/imported"
    cmp "$work/trained" "$work/imported"
    # With a learning rate of 0 the first step's loss is the imported model's.
    train --model.kind=$kind --parallel.data=1 --optimizer.lr=0 --train.steps=1 --run-dir "$work/again" \
      --checkpoint.start="$(dirname "$(find "$work/start" -name DONE | head -n 1)")" | grep 'begins with the parameters of'
    jq -es --argjson last "$(jq -s '.[-1].loss' "$work/run/metrics.jsonl")" '.[0].loss < $last * 1.1' "$work/again/metrics.jsonl"
  done
}
