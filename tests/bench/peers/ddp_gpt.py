#!/usr/bin/python3
"""A GPT trained by PyTorch on CPUs, as fast as Debian's python3-torch can: what the engine's speed is compared with.

One process, or one per rank with DistributedDataParallel over gloo (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). The same
model as kind = "gpt2": learned positions, pre-norm blocks, tanh GELU, tied head, fp32, no dropout, AdamW. Prints one JSON
line: the median step's milliseconds, tokens/s of the median step, and how it was tuned. With one thread the processor time
of the median step is told too: it is what the step would take on a core of its own where others are busy.

    OPENBLAS_CORETYPE=SKYLAKEX /usr/bin/python3 tests/bench/peers/ddp_gpt.py
    OPENBLAS_CORETYPE=SKYLAKEX /usr/bin/python3 tests/bench/peers/ddp_gpt.py --layers 12 --hidden 768 --heads 12 \
        --vocab 50257 --threads 2 --steps 5

OPENBLAS_CORETYPE is required: Debian's OpenBLAS does not know processors younger than itself and takes them for a Prescott,
several times slower; a comparison with that would flatter us. What OpenBLAS then runs is asked of the library itself.
"""
import argparse
import ctypes
import json
import math
import os
import platform
import statistics
import sys
import time

FAST_CORES = {
    "x86_64": ("Haswell", "Zen", "SkylakeX", "Cooperlake", "Sapphirerapids"),
    "aarch64": ("NEOVERSEN1", "NEOVERSEV1", "NEOVERSEN2", "CORTEXA72", "CORTEXA73", "THUNDERX2T99", "TSV110", "A64FX"),
}


def refuse(reason):
    sys.exit(f"ddp_gpt.py: {reason}")


def openblas_core():
    """The kernels that OpenBLAS runs in this process, by its own word."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        paths = {line.split()[-1] for line in maps if "openblas" in line and ".so" in line}
    for path in sorted(paths):
        name = ctypes.CDLL(path).openblas_get_corename
        name.restype = ctypes.c_char_p
        return name().decode()
    return refuse("PyTorch here does not use OpenBLAS; install Debian's python3-torch and libopenblas0-pthread")


if not os.environ.get("OPENBLAS_CORETYPE"):
    refuse("set OPENBLAS_CORETYPE (SKYLAKEX with AVX-512, HASWELL or ZEN with AVX2); an untuned peer is no peer")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Attention(nn.Module):
    """`form` is how scores become outputs: the choice that 1.13 leaves open and that time decides."""

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


def optimizer_of(parameters, name):
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), foreach=name == "foreach")


class Trainer:
    """One way of training, ready to take steps."""

    def __init__(self, a, form, optimizer):
        torch.manual_seed(a.seed)
        self.a, self.form, self.optimizer_name = a, form, optimizer
        model = Gpt(a, form)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True) if a.world > 1 else model
        if a.hook == "fp16" and a.world > 1:
            self.model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        self.optimizer = optimizer_of(list(model.parameters()), optimizer)
        self.generator = torch.Generator().manual_seed(a.seed + a.rank)

    def step(self):
        """Seconds on the clock, seconds of the processor, and the loss."""
        shape = (self.a.batch, self.a.sequence + 1)
        tokens = torch.randint(0, self.a.vocab, shape, generator=self.generator)
        start, cpu_start = time.perf_counter(), time.process_time()
        loss = self.model(tokens[:, :-1], tokens[:, 1:].contiguous())
        # Sums into the same buckets are DDP's way; without it, gradients that are not there need not be cleared.
        self.optimizer.zero_grad(set_to_none=self.a.world == 1)
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start, time.process_time() - cpu_start, loss.item()

    def best_of(self, steps):
        """Of the processor's seconds, which others on the machine disturb least."""
        self.step()
        return min(self.step()[1] for _ in range(steps))


def keep_freed_memory():
    """By default glibc gives large blocks back and takes them again, page by page, in every step."""
    libc = ctypes.CDLL(None)
    trim_threshold, mmap_threshold = -1, -3
    return bool(libc.mallopt(mmap_threshold, 1 << 30) and libc.mallopt(trim_threshold, (1 << 31) - 1))


def works(a, form):
    try:
        Trainer(a, form, "foreach").step()
    except (RuntimeError, AttributeError) as error:
        print(f"ddp_gpt.py: attention {form} is left out: {str(error).splitlines()[0]}", file=sys.stderr)
        return False
    return True


def fastest(a):
    """The forms that work, tried on one block of the real width; the fastest, the same one on every rank."""
    small = argparse.Namespace(**{**vars(a), "layers": 1, "vocab": min(a.vocab, 1024), "world": 1})
    forms = [a.attention] if a.attention != "best" else ["masked_fill", "baddbmm", "in_place", "fused"]
    seconds = {}
    for form in forms:
        if works(small, form):
            seconds[form] = Trainer(small, form, "foreach").best_of(a.tries)
    if not seconds:
        refuse(f"attention {a.attention} does not work in PyTorch {torch.__version__}")
    form = min(seconds, key=seconds.get)
    times = {name: Trainer(small, form, name).best_of(a.tries) for name in ("foreach", "loop")}
    choice = [form, min(times, key=times.get)]
    if a.world > 1:
        dist.broadcast_object_list(choice, src=0)
    return choice


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("layers", 6), ("hidden", 384), ("heads", 6), ("vocab", 8192), ("sequence", 256), ("batch", 4),
                        ("threads", 1), ("steps", 20), ("warmup", 2), ("tries", 5), ("seed", 1337)):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--attention", default="best", choices=["best", "masked_fill", "baddbmm", "in_place", "fused"])
    parser.add_argument("--hook", default="none", choices=["none", "fp16"], help="how DDP sends gradients")
    a = parser.parse_args()
    if a.hidden % a.heads:
        refuse(f"--hidden {a.hidden} is not a multiple of --heads {a.heads}")
    a.rank, a.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return a


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    kept = keep_freed_memory()
    torch.ones(64, 64) @ torch.ones(64, 64)
    core = openblas_core()
    if core.lower() not in (name.lower() for name in FAST_CORES.get(platform.machine(), ())):
        refuse(f"OpenBLAS runs its kernels for {core}, which are slow; set OPENBLAS_CORETYPE to what this processor has")
    if a.world > 1:
        dist.init_process_group("gloo")
    form, optimizer = fastest(a)
    trainer = Trainer(a, form, optimizer)
    for _ in range(a.warmup):
        trainer.step()
    seconds, cpu_seconds, losses = zip(*(trainer.step() for _ in range(a.steps)))
    median = statistics.median(seconds)
    if a.rank == 0:
        print(json.dumps({
            "peer": "pytorch", "torch": torch.__version__, "openblas_core": core, "attention": form, "adamw": optimizer, "hook": a.hook,
            "parameters": trainer.parameters, "world": a.world, "threads": a.threads, "batch": a.batch,
            "sequence": a.sequence, "steps": a.steps, "median_step_ms": round(1e3 * median, 2),
            "median_step_cpu_ms": round(1e3 * statistics.median(cpu_seconds), 2), "keeps_freed_memory": kept,
            "best_step_ms": round(1e3 * min(seconds), 2),
            "tokens_per_s": round(a.world * a.batch * a.sequence / median, 1),
            "best_tokens_per_s": round(a.world * a.batch * a.sequence / min(seconds), 1),
            "loss": round(losses[-1], 4)}))
    if a.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
