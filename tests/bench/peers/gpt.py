"""The GPT of PyTorch's that the engine's speed is compared with, for whatever version of PyTorch: its model, DDP's settings, steps.

The same model as kind = "gpt2": learned positions, pre-norm blocks, tanh GELU, tied head, no dropout, AdamW. ddp_gpt.py and
newest_gpt.py train it, each with what its PyTorch is fastest with. One process, or one per rank with DistributedDataParallel
over gloo (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
"""
import argparse
import contextlib
import ctypes
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn import functional as F

# DDP orders its buckets anew after the first step; PowerSGD's state must be made after that.
POWER_SGD_STARTS = 2


def refuse(reason):
    sys.exit(f"{os.path.basename(sys.argv[0])}: {reason}")


class Attention(nn.Module):
    """`form` is how scores become outputs: the choice that PyTorch 1.13 leaves open and that time decides."""

    def __init__(self, a, form):
        super().__init__()
        self.heads, self.form = a.heads, form
        self.qkv, self.out = nn.Linear(a.hidden, 3 * a.hidden), nn.Linear(a.hidden, a.hidden)
        # Not buffers, which DDP would send around.
        self.future = torch.full((a.sequence, a.sequence), float("-inf")).triu(1)
        self.is_future = self.future < 0

    def forward(self, x):
        batch, positions, hidden = x.shape
        size = hidden // self.heads
        q, k, v = self.qkv(x).view(batch, positions, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        y = getattr(self, self.form)(q, k, v, 1 / math.sqrt(size))
        return self.out(y.transpose(1, 2).reshape(batch, positions, hidden))

    def masked_fill(self, q, k, v, scale):
        scores = (q * scale) @ k.transpose(-2, -1)
        return scores.masked_fill(self.is_future, float("-inf")).softmax(-1) @ v

    def baddbmm(self, q, k, v, scale):
        """The mask is the sum that the product starts from."""
        batch, heads, positions, size = q.shape
        q, k, v = (t.reshape(batch * heads, positions, size) for t in (q, k, v))
        scores = torch.baddbmm(self.future, q, k.transpose(1, 2), alpha=scale)
        return torch.bmm(scores.softmax(-1), v).view(batch, heads, positions, size)

    def in_place(self, q, k, v, scale):
        scores = (q * scale) @ k.transpose(-2, -1)
        return scores.add_(self.future).softmax(-1) @ v

    def fused(self, q, k, v, scale):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F._scaled_dot_product_attention(q, k, v, is_causal=True)[0]  # its name in 1.13


class Block(nn.Module):
    def __init__(self, a, form):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(a.hidden), nn.LayerNorm(a.hidden)
        self.attention = Attention(a, form)
        self.up, self.down = nn.Linear(a.hidden, 4 * a.hidden), nn.Linear(4 * a.hidden, a.hidden)

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, a, form):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(a.vocab, a.hidden), nn.Embedding(a.sequence, a.hidden)
        self.blocks = nn.Sequential(*[Block(a, form) for _ in range(a.layers)])
        self.ln_f = nn.LayerNorm(a.hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        logits = F.linear(self.ln_f(self.blocks(x)), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def distributed(a, model):
    """The model as DDP trains it by a.static_graph and a.hook; as it is where there is one process."""
    if a.world == 1:
        return model
    settings = {"gradient_as_bucket_view": True, "static_graph": a.static_graph}
    if a.hook == "powersgd":
        # Its later all-reduces start when earlier ones end, so with several buckets ranks may start them in different orders,
        # which gloo takes for one another. It sends too little to gain from buckets.
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 40
        settings["bucket_cap_mb"] = 1 << 20
    model = nn.parallel.DistributedDataParallel(model, **settings)
    if a.hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif a.hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=a.power_rank, start_powerSGD_iter=POWER_SGD_STARTS)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif a.hook == "local":
        state = post_localSGD_hook.PostLocalSGDState(None, None, 0, post_local_gradient_allreduce=False)
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    return model


class Trainer:
    """One way of training, ready to take steps. `adamw` are AdamW's own settings; `prepare` may wrap the model."""

    def __init__(self, a, form, adamw, prepare=lambda model: model, bf16=False):
        torch.manual_seed(a.seed)
        self.a, self.bf16 = a, bf16
        model = Gpt(a, form)
        self.parameters = sum(p.numel() for p in model.parameters())
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), **adamw)
        self.model = prepare(distributed(a, model))
        if a.hook == "local" and a.world > 1:
            self.optimizer = PostLocalSGDOptimizer(self.optimizer, PeriodicModelAverager(a.period, warmup_steps=0))
        self.generator = torch.Generator().manual_seed(a.seed + a.rank)

    def step(self):
        """Seconds on the clock, seconds of the processor, and the loss."""
        shape = (self.a.batch, self.a.sequence + 1)
        tokens = torch.randint(0, self.a.vocab, shape, generator=self.generator)
        start, cpu_start = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext():
            loss = self.model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        # Sums into the same buckets are DDP's way; without it, gradients that are not there need not be cleared.
        self.optimizer.zero_grad(set_to_none=self.a.world == 1)
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start, time.process_time() - cpu_start, loss.item()

    def best_of(self, steps):
        """Of the processor's seconds, which others on the machine disturb least."""
        self.step()
        return min(self.step()[1] for _ in range(steps))

    def measure(self):
        """What a.steps steps took after a.warmup ones, to be printed."""
        for _ in range(max(self.a.warmup, POWER_SGD_STARTS + 1 if self.a.hook == "powersgd" else 0)):
            self.step()
        if self.a.hook == "local":
            self.a.steps = math.ceil(self.a.steps / self.a.period) * self.a.period
        seconds, cpu_seconds, losses = zip(*(self.step() for _ in range(self.a.steps)))
        # Most steps of post-local SGD average nothing: its mean step is both.
        mean = statistics.mean(seconds)
        typical, best = (mean, mean) if self.a.hook == "local" else (statistics.median(seconds), min(seconds))
        tokens = self.a.world * self.a.batch * self.a.sequence
        return {
            "parameters": self.parameters, "world": self.a.world, "threads": self.a.threads, "batch": self.a.batch,
            "sequence": self.a.sequence, "steps": self.a.steps, "hook": self.a.hook, "static_graph": self.a.static_graph,
            "median_step_ms": round(1e3 * statistics.median(seconds), 2), "median_step_cpu_ms": round(1e3 * statistics.median(cpu_seconds), 2),
            "best_step_ms": round(1e3 * best, 2), "tokens_per_s": round(tokens / typical, 1),
            "best_tokens_per_s": round(tokens / best, 1), "loss": round(losses[-1], 4)}


def keep_freed_memory():
    """By default glibc gives large blocks back and takes them again, page by page, in every step."""
    libc = ctypes.CDLL(None)
    trim_threshold, mmap_threshold = -1, -3
    return bool(libc.mallopt(mmap_threshold, 1 << 30) and libc.mallopt(trim_threshold, (1 << 31) - 1))


def product_gflops():
    """Of a float32 product of 1024 x 1024 on PyTorch's threads: what its library makes of this processor."""
    a, b, best = torch.rand(1024, 1024), torch.rand(1024, 1024), math.inf
    for _ in range(8):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return round(2e-9 * 1024 ** 3 / best, 1)


def argument_parser(purpose):
    parser = argparse.ArgumentParser(description=purpose)
    for name, value in (("layers", 6), ("hidden", 384), ("heads", 6), ("vocab", 8192), ("sequence", 256), ("batch", 4),
                        ("threads", 1), ("steps", 20), ("warmup", 2), ("tries", 5), ("seed", 1337)):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--hook", default="none", choices=["none", "fp16", "powersgd", "local"],
                        help="how DDP sends gradients; local sends none and averages parameters now and then (post-local SGD)")
    parser.add_argument("--period", type=int, default=16, help="steps from one average to the next with --hook local, default 16")
    parser.add_argument("--power-rank", type=int, default=4, help="rank of PowerSGD's approximation, default 4")
    parser.add_argument("--static-graph", action="store_true", help="tell DDP that every step is alike")
    return parser


def parse(parser):
    a = parser.parse_args()
    if a.hidden % a.heads:
        refuse(f"--hidden {a.hidden} is not a multiple of --heads {a.heads}")
    a.rank, a.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return a
