#!/usr/bin/python3
"""Logits and loss of an exported model, computed by a second implementation: see architectures.py.

    adaptive-train export RUN_DIR --hf DIR
    /usr/bin/python3 tests/peers/logits_check.py DIR --text FILE [--samples 4]
    /usr/bin/python3 tests/peers/logits_check.py DIR --tokens 1,2,3 --logits

Reads config.json and model.safetensors by itself, with PyTorch (Debian's python3-torch) and nothing else. The text's
bytes are the tokens; a sample is as long as the model's sequence and is followed by the byte that its last position
predicts: what adaptive-train eval RUN_DIR --data FILE counts too. BERT predicts masked tokens, so it wants --tokens and
--targets=-1,5,-1. Prints JSON: tokens, loss (mean over the predicted tokens, in nats), and logits when asked.
"""
import argparse
import json
import pathlib
import struct
import sys

import torch

import architectures
from architectures import Dims

KINDS = ("gpt2", "llama", "mistral", "qwen2", "bert")


def read_safetensors(path, scalar):
    """Tensors by name, each as `scalar`."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise SystemExit(f"{path}: {name} is {entry['dtype']}; F32 is read")
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        tensors[name] = values.view(entry["shape"]).to(scalar)
    return tensors


def dims_of(config):
    kind = config["model_type"]
    if kind not in KINDS:
        raise SystemExit(f"model_type {kind}: known are {', '.join(KINDS)}")
    if kind == "gpt2":
        heads, hidden = config["n_head"], config["n_embd"]
        return Dims(kind, config["n_layer"], heads, hidden, config["n_positions"], config["vocab_size"], heads,
                    config["n_inner"] or 4 * hidden, config["tie_word_embeddings"],
                    norm_epsilon=config["layer_norm_epsilon"])
    heads = config["num_attention_heads"]
    dims = Dims("bert" if kind == "bert" else "llama", config["num_hidden_layers"], heads, config["hidden_size"],
                config["max_position_embeddings"], config["vocab_size"], config.get("num_key_value_heads", heads),
                config["intermediate_size"], config["tie_word_embeddings"])
    if kind == "bert":
        dims.norm_epsilon = config["layer_norm_eps"]
        return dims
    rope = config.get("rope_parameters") or {"rope_theta": config["rope_theta"], **(config["rope_scaling"] or {})}
    rope_type = rope.get("rope_type", "default")
    if rope_type not in ("default", "llama3"):
        raise SystemExit(f"rope_type {rope_type}: known are default, llama3")
    dims.norm_epsilon, dims.rope_base = config["rms_norm_eps"], rope["rope_theta"]
    dims.rope_scaling = rope if rope_type == "llama3" else None
    dims.head_size = config.get("head_dim") or 0
    dims.attention_bias = "qkv" if kind == "qwen2" else "all" if config.get("attention_bias") else "none"
    if kind == "mistral" or config.get("use_sliding_window"):
        dims.sliding_window = config.get("sliding_window") or 0
    return dims


def gpt2_parameters(dims, theirs):
    return {name.removeprefix("transformer."): value for name, value in theirs.items()}


def llama_parameters(dims, theirs):
    ours = {"wte.weight": theirs["model.embed_tokens.weight"], "ln_f.weight": theirs["model.norm.weight"]}
    if not dims.tie_embeddings:
        ours["lm_head.weight"] = theirs["lm_head.weight"]
    for n in range(dims.layers):
        layer, h = f"model.layers.{n}.", f"h.{n}."
        joined = lambda *names: torch.cat([theirs[layer + name + ".weight"] for name in names]).T  # noqa: E731
        if dims.biases[0]:
            biases = [theirs[f"{layer}self_attn.{part}_proj.bias"] for part in "qkv"]
            ours[h + "attn.c_attn.bias"] = torch.cat(biases)
        if dims.biases[1]:
            ours[h + "attn.c_proj.bias"] = theirs[layer + "self_attn.o_proj.bias"]
        ours[h + "ln_1.weight"] = theirs[layer + "input_layernorm.weight"]
        ours[h + "attn.c_attn.weight"] = joined("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        ours[h + "attn.c_proj.weight"] = joined("self_attn.o_proj")
        ours[h + "ln_2.weight"] = theirs[layer + "post_attention_layernorm.weight"]
        ours[h + "mlp.c_fc.weight"] = joined("mlp.gate_proj", "mlp.up_proj")
        ours[h + "mlp.c_proj.weight"] = joined("mlp.down_proj")
    return ours


def bert_parameters(dims, theirs):
    embeddings = "bert.embeddings."
    ours = {"wte.weight": theirs[embeddings + "word_embeddings.weight"],
            "wpe.weight": theirs[embeddings + "position_embeddings.weight"],
            "wtt.weight": theirs[embeddings + "token_type_embeddings.weight"],
            "head.bias": theirs["cls.predictions.bias"]}
    if not dims.tie_embeddings:
        ours["lm_head.weight"] = theirs["cls.predictions.decoder.weight"]

    def norm(name, their_name):
        for part in (".weight", ".bias"):
            ours[name + part] = theirs[their_name + part]

    def linear(name, *their_names):
        ours[name + ".weight"] = torch.cat([theirs[each + ".weight"] for each in their_names]).T
        ours[name + ".bias"] = torch.cat([theirs[each + ".bias"] for each in their_names])

    norm("ln_embedding", embeddings + "LayerNorm")
    for n in range(dims.layers):
        layer, h = f"bert.encoder.layer.{n}.", f"h.{n}."
        attention = layer + "attention.self."
        linear(h + "attn.c_attn", attention + "query", attention + "key", attention + "value")
        linear(h + "attn.c_proj", layer + "attention.output.dense")
        norm(h + "ln_1", layer + "attention.output.LayerNorm")
        linear(h + "mlp.c_fc", layer + "intermediate.dense")
        linear(h + "mlp.c_proj", layer + "output.dense")
        norm(h + "ln_2", layer + "output.LayerNorm")
    linear("head.dense", "cls.predictions.transform.dense")
    norm("head.ln", "cls.predictions.transform.LayerNorm")
    return ours


def load(folder, scalar=torch.float64):
    """Dimensions and parameters, by our names, of an exported model."""
    folder = pathlib.Path(folder)
    dims = dims_of(json.loads((folder / "config.json").read_text()))
    theirs = read_safetensors(folder / "model.safetensors", scalar)
    parameters = {"gpt2": gpt2_parameters, "llama": llama_parameters, "bert": bert_parameters}[dims.kind](dims, theirs)
    for name, shape in architectures.parameter_shapes(dims).items():
        if tuple(parameters[name].shape) != tuple(shape):
            raise SystemExit(f"{name} is {tuple(parameters[name].shape)}, expected {tuple(shape)}")
    return dims, parameters


def samples_of_text(path, dims, count):
    """The first samples of a text, each with the tokens that its positions predict."""
    data = torch.tensor(list(pathlib.Path(path).read_bytes()))
    count = min(count, (len(data) - 1) // dims.sequence)
    if count < 1:
        raise SystemExit(f"{path}: shorter than a sample of {dims.sequence} bytes")
    used = count * dims.sequence
    return data[:used].view(count, -1), data[1 : used + 1].view(count, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="an exported model")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="bytes are tokens; positions predict the next one")
    source.add_argument("--tokens", help="one sample: 1,2,3")
    parser.add_argument("--targets", help="of --tokens, as --targets=2,-1,4; -1 counts for nothing")
    parser.add_argument("--samples", type=int, default=4, help="of --text (default 4)")
    parser.add_argument("--logits", action="store_true", help="print the last position's")
    arguments = parser.parse_args()
    dims, parameters = load(arguments.folder)
    if arguments.text and dims.kind == "bert":
        parser.error("bert predicts masked tokens, not the next one: give --tokens and --targets")
    listed = lambda text: torch.tensor([[int(word) for word in text.split(",")]])  # noqa: E731
    if arguments.text:
        tokens, targets = samples_of_text(arguments.text, dims, arguments.samples)
    else:
        tokens, targets = listed(arguments.tokens), arguments.targets and listed(arguments.targets)
    with torch.no_grad():
        logits = architectures.logits(dims, parameters, tokens)
    out = {"kind": dims.kind, "tokens": tokens.numel()}
    if targets is not None:
        counted = int((targets >= 0).sum())
        out["loss"] = architectures.loss_sum(logits, targets).item() / max(counted, 1)
    if arguments.logits:
        out["logits"] = logits[-1, -1].tolist()
    json.dump(out, sys.stdout)
    print()


if __name__ == "__main__":
    main()
