"""A GPT trained by the newest PyTorch on CPUs, as its users would: what the engine's speed is compared with, beside ddp_gpt.py.

The model and the ranks are those of gpt.py, with scaled_dot_product_attention and fused AdamW, by PyTorch's own MKL and oneDNN.
--precision fp32 is float32 at its highest precision; bf16 is autocast to bfloat16. --compile best tries both with and without
torch.compile on the whole model and takes the faster; ranks of several processes do not compile. Prints one JSON line like
ddp_gpt.py's. make_pytorch_venv makes a folder for it:

    tests/bench/peers/make_pytorch_venv DIR
    TORCH_USE_RTLD_GLOBAL=1 DIR/bin/python tests/bench/peers/newest_gpt.py --precision bf16
"""
import json
import os
import re
import sys

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # of Debian's PyTorch
    os.environ.pop(name, None)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from gpt import Trainer, argument_parser, keep_freed_memory, parse, product_gflops, refuse  # noqa: E402


def kernels():
    """The libraries in this PyTorch and the instructions that it uses, by its own word."""
    libraries = re.findall(r"(oneAPI Math Kernel|MKL-DNN|OpenBLAS)\D*?v?(\d[\d.]*)", torch.__config__.show())
    names = {"oneAPI Math Kernel": "MKL", "MKL-DNN": "oneDNN"}
    return ", ".join([f"{names.get(name, name)} {version}" for name, version in libraries] + [torch.backends.cpu.get_cpu_capability()])


def trainer_of(a, compile_mode):
    def prepare(model):
        return model if compile_mode == "no" else torch.compile(model, mode=compile_mode)
    return Trainer(a, "fused", {"fused": True}, prepare, a.precision == "bf16")


def fastest(a):
    if a.world > 1:
        return "no"
    if a.compile != "best":
        return a.compile
    seconds = {}
    for mode in ("no", "default"):
        trainer = trainer_of(a, mode)
        trainer.step()  # compiles
        seconds[mode] = trainer.best_of(a.tries)
        print(f"newest_gpt.py: {a.precision}, compile {mode}: {1e3 * seconds[mode]:.1f} ms of the processor", file=sys.stderr)
    return min(seconds, key=seconds.get)


def main():
    parser = argument_parser(__doc__.splitlines()[0])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--compile", default="best", choices=["best", "no", "default", "max-autotune"])
    a = parse(parser)
    if int(torch.__version__.split(".")[0]) < 2:
        refuse(f"PyTorch {torch.__version__} is not a new one; make_pytorch_venv makes a folder with the newest")
    torch.set_num_threads(a.threads)
    torch.set_float32_matmul_precision("highest")
    torch.set_flush_denormal(True)
    kept = keep_freed_memory()
    gflops = product_gflops()
    if a.world > 1:
        dist.init_process_group("gloo")
    mode = fastest(a)
    figures = trainer_of(a, mode).measure()
    if a.rank == 0:
        print(json.dumps({"peer": "pytorch", "torch": torch.__version__, "kernels": kernels(), "product_gflops": gflops,
                          "precision": a.precision, "compile": mode, "attention": "fused", "adamw": "fused",
                          "keeps_freed_memory": kept, **figures}))
    if a.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
