"""The architectures in plain PyTorch, written from their papers: what the engine's models are checked against.

Parameters are a dictionary by adaptive-train's names, each weight of a product as [in, out]. The scalar type is that of
the parameters. Nothing here is tuned: clear first.
"""
import math
from dataclasses import dataclass

import torch


@dataclass
class Dims:
    kind: str  # gpt2 | llama | bert
    layers: int
    heads: int
    hidden: int
    sequence: int
    vocab: int
    kv_heads: int
    ffn: int
    tie_embeddings: bool = True
    head_size: int = 0  # 0: hidden / heads
    attention_bias: str = "auto"  # auto | none | qkv | all
    norm_epsilon: float = 0.0  # 0: the kind's own
    rope_base: float = 10000.0
    rope_scaling: dict | None = None  # of Llama 3, by config.json's keys
    sliding_window: int = 0  # positions that a position sees, its own among them; 0: all

    @property
    def head(self):
        return self.head_size or self.hidden // self.heads

    @property
    def biases(self):
        """Of queries, keys and values; of attention's output."""
        if self.attention_bias == "auto":
            return (self.kind != "llama",) * 2
        return self.attention_bias != "none", self.attention_bias == "all"

    @property
    def epsilon(self):
        return self.norm_epsilon or (1e-12 if self.kind == "bert" else 1e-5)


def parameter_shapes(dims):
    """Names and shapes in the order of adaptive-train's arena."""
    h, qkv = dims.hidden, (dims.heads + 2 * dims.kv_heads) * dims.head
    biases, norm_biases = dims.kind != "llama", dims.kind != "llama"
    shapes = {}

    def norm(name):
        shapes[name + ".weight"] = (h,)
        if norm_biases:
            shapes[name + ".bias"] = (h,)

    def linear(name, rows, columns, bias=biases):
        shapes[name + ".weight"] = (rows, columns)
        if bias:
            shapes[name + ".bias"] = (columns,)

    shapes["wte.weight"] = (dims.vocab, h)
    if dims.kind != "llama":
        shapes["wpe.weight"] = (dims.sequence, h)
    if dims.kind == "bert":
        shapes["wtt.weight"] = (1, h)
        norm("ln_embedding")
    for n in range(dims.layers):
        norm(f"h.{n}.ln_1")
        linear(f"h.{n}.attn.c_attn", h, qkv, dims.biases[0])
        linear(f"h.{n}.attn.c_proj", dims.heads * dims.head, h, dims.biases[1])
        norm(f"h.{n}.ln_2")
        linear(f"h.{n}.mlp.c_fc", h, dims.ffn * (2 if dims.kind == "llama" else 1))
        linear(f"h.{n}.mlp.c_proj", dims.ffn, h)
    if dims.kind == "bert":
        linear("head.dense", h, h)
        norm("head.ln")
        shapes["head.bias"] = (dims.vocab,)
    else:
        norm("ln_f")
    if not dims.tie_embeddings:
        shapes["lm_head.weight"] = (dims.vocab, h)
    return shapes


def layer_norm(x, weight, bias, epsilon):
    centered = x - x.mean(-1, keepdim=True)
    variance = (centered * centered).mean(-1, keepdim=True)
    return centered / torch.sqrt(variance + epsilon) * weight + bias


def rms_norm(x, weight, epsilon):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


def gelu_erf(x):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


def stretched(rates, scaling):
    """Llama 3's: of wavelengths that fill the first sequence less than once only a part is left, of short ones all."""
    if scaling is None:
        return rates
    wavelengths = 2 * math.pi / rates
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = (scaling["original_max_position_embeddings"] / wavelengths - low) / (high - low)
    smooth = smooth.clamp(0, 1)
    return rates * (smooth + (1 - smooth) / scaling["factor"])


def rotate(x, base, scaling):
    """Rotary positions in half-split order. x is [batch, heads, positions, head_size]."""
    half = x.shape[-1] // 2
    rates = stretched(base ** (-torch.arange(half, dtype=x.dtype) / half), scaling)
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * rates
    first, second = x[..., :half], x[..., half:]
    cosine, sine = torch.cos(angles), torch.sin(angles)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def attention(dims, qkv):
    """qkv is [batch, positions, columns]: queries, keys, values."""
    batch, positions, _ = qkv.shape
    counts = [dims.heads, dims.kv_heads, dims.kv_heads]
    parts = torch.split(qkv, [count * dims.head for count in counts], -1)
    q, k, v = (part.view(batch, positions, count, dims.head).transpose(1, 2) for part, count in zip(parts, counts))
    if dims.kind == "llama":
        q, k = (rotate(part, dims.rope_base, dims.rope_scaling) for part in (q, k))
    group = dims.heads // dims.kv_heads  # queries' heads that share one head of keys and values, side by side
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / dims.head**0.5
    if dims.kind != "bert":
        future = torch.ones(positions, positions, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    if dims.sliding_window:
        past = torch.ones(positions, positions, dtype=torch.bool).tril(-dims.sliding_window)
        scores = scores.masked_fill(past, float("-inf"))
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, positions, dims.heads * dims.head)


def linear(p, name, x):
    y = x @ p[name + ".weight"]
    return y + p[name + ".bias"] if name + ".bias" in p else y


def norm(dims, p, name, x):
    if dims.kind == "llama":
        return rms_norm(x, p[name + ".weight"], dims.epsilon)
    return layer_norm(x, p[name + ".weight"], p[name + ".bias"], dims.epsilon)


def feed_forward(dims, p, block, x):
    x = linear(p, block + "mlp.c_fc", x)
    if dims.kind == "llama":
        gate, up = x[..., : dims.ffn], x[..., dims.ffn :]
        x = gate * torch.sigmoid(gate) * up
    else:
        x = gelu_erf(x) if dims.kind == "bert" else gelu_tanh(x)
    return linear(p, block + "mlp.c_proj", x)


def block_forward(dims, p, block, x):
    if dims.kind == "bert":  # norms after the residual sums
        branch = attention(dims, linear(p, block + "attn.c_attn", x))
        x = norm(dims, p, block + "ln_1", x + linear(p, block + "attn.c_proj", branch))
        return norm(dims, p, block + "ln_2", x + feed_forward(dims, p, block, x))
    branch = attention(dims, linear(p, block + "attn.c_attn", norm(dims, p, block + "ln_1", x)))
    x = x + linear(p, block + "attn.c_proj", branch)
    return x + feed_forward(dims, p, block, norm(dims, p, block + "ln_2", x))


def logits(dims, p, tokens):
    """tokens is [batch, positions]; gives [batch, positions, vocab]."""
    x = p["wte.weight"][tokens]
    if dims.kind != "llama":
        x = x + p["wpe.weight"][: tokens.shape[1]]
    if dims.kind == "bert":
        x = norm(dims, p, "ln_embedding", x + p["wtt.weight"][0])
    for n in range(dims.layers):
        x = block_forward(dims, p, f"h.{n}.", x)
    if dims.kind == "bert":
        x = norm(dims, p, "head.ln", gelu_erf(linear(p, "head.dense", x)))
    else:
        x = norm(dims, p, "ln_f", x)
    out = x @ p["wte.weight" if dims.tie_embeddings else "lm_head.weight"].T
    return out + p["head.bias"] if dims.kind == "bert" else out


def loss_sum(values, targets):
    """The sum of the cross-entropies in nats over the targets that are not negative."""
    log_probabilities = torch.log_softmax(values, -1)
    chosen = log_probabilities.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return -(chosen * (targets >= 0)).sum()
