"""GPT-2 124M as `run` trains it, by the PyTorch that is installed: pytorch_gpt2.py [--compile] [--layers N --heads N --hidden N ...].

What its users switch on: bf16 autocast, scaled_dot_product_attention, a fused AdamW, a vocabulary padded to 64, and --compile. The loss is
read once at the end, so that the host never waits. The last line has tokens/s, the median of the steps after the warm-up.
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

arguments = argparse.ArgumentParser()
arguments.add_argument("--compile", action="store_true")
for name, default in dict(layers=12, heads=12, hidden=768, vocab=50304, sequence=1024, micro_batch=16, batch=32, steps=30, warmup=8).items():
    arguments.add_argument("--" + name, type=int, default=default)
a = arguments.parse_args()
torch.set_float32_matmul_precision("high")


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attn, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc, self.out = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.attn(self.ln_1(x)).split(hidden, dim=2))
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attention.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(a.vocab, a.hidden), nn.Embedding(a.sequence, a.hidden)
        self.blocks = nn.ModuleList(Block(a.hidden, a.heads) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, a.vocab), targets.view(-1))


def main():
    model = Gpt2().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model) if a.compile else model
    data = torch.randint(a.vocab, (a.batch, a.sequence + 1)).pin_memory()
    seconds = []
    for _ in range(a.warmup + a.steps):
        start = time.perf_counter()
        for first in range(0, a.batch, a.micro_batch):
            part = data[first:first + a.micro_batch].cuda(non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = run(part[:, :-1].contiguous(), part[:, 1:].contiguous())
            (loss * (a.micro_batch / a.batch)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    median = sorted(seconds[a.warmup:])[a.steps // 2]
    print(f"PyTorch {torch.__version__}, {'compiled' if a.compile else 'eager'}: {1e3 * median:.1f} ms a step, "
          f"{a.batch * a.sequence / median:,.0f} tokens/s, loss {loss.item():.3f}")


main()
