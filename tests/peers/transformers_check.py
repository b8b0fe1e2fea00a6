#!/usr/bin/env python3
"""Models of transformers, imported, computed and exported by adaptive-train: the largest difference of their logits.

    python3 tests/peers/transformers_check.py build/release/bin [--save FOLDER]

Run by hand, with transformers and PyTorch from PyPI. For each architecture a model of random weights is saved by
transformers; `hf_logits` computes its logits; `import` and `export` take it there and back, and transformers loads what
came back. Fails where a logit differs by more than 1e-4, or where a parameter of config.json did not come back.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

LIMIT = 1e-4
TOKENS = 96
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 64}
SIZES = {"vocab_size": 320, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 128, "attention_dropout": 0.0}
KEPT = ("architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "sliding_window", "use_sliding_window",
        "attention_bias", "tie_word_embeddings", "head_dim")


def rope(theta, scaling=None):
    """As this version of transformers takes it."""
    if int(transformers.__version__.split(".")[0]) >= 5:
        return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **(scaling or {})}}
    return {"rope_theta": theta, "rope_scaling": scaling}


def configs():
    yield "llama 3", transformers.LlamaConfig(**SIZES, **rope(500000.0, LLAMA_3), rms_norm_eps=1e-5)
    yield "llama, biases", transformers.LlamaConfig(**SIZES, **rope(10000.0), rms_norm_eps=1e-6, attention_bias=True)
    yield "mistral", transformers.MistralConfig(**SIZES, **rope(1e6), rms_norm_eps=1e-5, head_dim=32,
                                                sliding_window=TOKENS)
    yield "qwen 2", transformers.Qwen2Config(**SIZES, **rope(1e6), rms_norm_eps=1e-6, tie_word_embeddings=True)


def random_model(config):
    """Weights that are large enough for every part to count, biases and norms among them."""
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.float32).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name else 0.0, 0.1)
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].double()


def rope_of(config):
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope.setdefault("rope_type", "default")
    rope.setdefault("rope_theta", config.get("rope_theta"))
    return rope


def lost_keys(before, after):
    lost = [key for key in KEPT if before.get(key) != after.get(key) and not (key == "head_dim" and key not in after)]
    return lost + (["rope"] if rope_of(before) != rope_of(after) else [])


def check(name, config, programs, folder):
    tokens = torch.randint(0, config.vocab_size, (TOKENS,), generator=torch.Generator().manual_seed(3)).tolist()
    model = random_model(config)
    model.save_pretrained(folder / "theirs")
    expected = logits_of(model, tokens)
    run = lambda *command: subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: E731
    ours = run(programs / "hf_logits", folder / "theirs", *map(str, tokens))
    ours = torch.tensor(json.loads(ours), dtype=torch.float64)
    program = programs / "adaptive-train"
    run(program, "import", "--hf", folder / "theirs", "--output", folder / "start", "--sequence", str(TOKENS))
    run(program, "export", folder / "start", "--hf", folder / "back")
    back = logits_of(transformers.AutoModelForCausalLM.from_pretrained(folder / "back").eval(), tokens)
    configs = [transformers.AutoConfig.from_pretrained(folder / each).to_dict() for each in ("theirs", "back")]
    lost = lost_keys(*configs)
    difference, of_back = (expected - ours).abs().max().item(), (expected - back).abs().max().item()
    print(f"{name:14} largest logit {expected.abs().max():.3f}, largest difference {difference:.2e}, "
          f"of what came back {of_back:.2e}{', lost: ' + ', '.join(lost) if lost else ''}")
    return difference <= LIMIT and of_back <= LIMIT and not lost


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path, help="folder of adaptive-train and hf_logits")
    parser.add_argument("--save", type=pathlib.Path, help="keep the models there")
    arguments = parser.parse_args()
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, {TOKENS} tokens, limit {LIMIT}")
    good = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, config in configs():
            folder = (arguments.save or pathlib.Path(temporary)) / name.replace(" ", "-").replace(",", "")
            folder.mkdir(parents=True)
            good.append(check(name, config, arguments.programs.resolve(), folder))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
