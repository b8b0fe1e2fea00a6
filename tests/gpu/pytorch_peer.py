"""The same operations as device_bench's, by the PyTorch that is installed, in bf16."""

import torch
import torch.nn.functional as F

ROUNDS = 9


def seconds(call):
    times = []
    for _ in range(ROUNDS + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return sorted(times[1:])[ROUNDS // 2]


def operation(name, flops, call):
    s = seconds(call)
    print(f"{name:<28} {1e3 * s:>10.3f} ms {1e-12 * flops / s:>9.2f} TFLOP/s")


print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
count, rows, hidden, heads, sequence = 100_000_000, 8192, 768, 12, 1024
a = torch.randn(count, device="cuda")
b = torch.empty_like(a)
s = seconds(lambda: b.copy_(a))
print(f"{'copy':<28} {1e3 * s:>10.3f} ms {8e-9 * count / s:>9.1f} GB/s")
weights = torch.nn.Parameter(a)
weights.grad = torch.randn_like(a)
adamw = torch.optim.AdamW([weights], lr=1e-4, fused=True)
s = seconds(adamw.step)
print(f"{'AdamW, fused, fp32':<28} {1e3 * s:>10.3f} ms {28e-9 * count / s:>9.1f} GB/s")
for columns, out in ((hidden, 3 * hidden), (hidden, 4 * hidden), (4 * hidden, hidden)):
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(out, columns, device="cuda", dtype=torch.bfloat16)
    operation(f"{columns} to {out}", 2 * rows * columns * out, lambda: x @ w.T)
shape = (rows // sequence, heads, sequence, hidden // heads)
q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
flops = 2 * rows * hidden * sequence
operation("Attention", flops, lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
output = F.scaled_dot_product_attention(q, k, v, is_causal=True)
gradient = torch.randn_like(output)
operation("AttentionBackward", 2.5 * flops, lambda: output.backward(gradient, retain_graph=True))
