#!/usr/bin/python3
"""A GPT trained by PyTorch on CPUs, as fast as Debian's python3-torch can: what the engine's speed is compared with.

The model and the ranks are those of gpt.py. Prints one JSON line: the median step's milliseconds, tokens/s of the median
step, and how it was tuned. With one thread the processor time of the median step is told too: it is what the step would take
on a core of its own where others are busy.

    OPENBLAS_CORETYPE=SKYLAKEX /usr/bin/python3 tests/bench/peers/ddp_gpt.py
    OPENBLAS_CORETYPE=SKYLAKEX /usr/bin/python3 tests/bench/peers/ddp_gpt.py --layers 12 --hidden 768 --heads 12 \
        --vocab 50257 --threads 2 --steps 5

OPENBLAS_CORETYPE is required: Debian's OpenBLAS does not know processors younger than itself and takes them for a Prescott,
several times slower; a comparison with that would flatter us. What OpenBLAS then runs is asked of the library itself.
"""
import argparse
import ctypes
import json
import os
import platform
import sys

FAST_CORES = {
    "x86_64": ("Haswell", "Zen", "SkylakeX", "Cooperlake", "Sapphirerapids"),
    "aarch64": ("NEOVERSEN1", "NEOVERSEV1", "NEOVERSEN2", "CORTEXA72", "CORTEXA73", "THUNDERX2T99", "TSV110", "A64FX"),
}

if not os.environ.get("OPENBLAS_CORETYPE"):
    sys.exit("ddp_gpt.py: set OPENBLAS_CORETYPE (SKYLAKEX with AVX-512, HASWELL or ZEN with AVX2); an untuned peer is no peer")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from gpt import Trainer, argument_parser, keep_freed_memory, parse, product_gflops, refuse  # noqa: E402


def openblas_core():
    """The kernels that OpenBLAS runs in this process, by its own word."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        paths = {line.split()[-1] for line in maps if "openblas" in line and ".so" in line}
    for path in sorted(paths):
        name = ctypes.CDLL(path).openblas_get_corename
        name.restype = ctypes.c_char_p
        return name().decode()
    return refuse("PyTorch here does not use OpenBLAS; install Debian's python3-torch and libopenblas0-pthread")


def trainer_of(a, form, optimizer):
    return Trainer(a, form, {"foreach": optimizer == "foreach"})


def works(a, form):
    try:
        trainer_of(a, form, "foreach").step()
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
            seconds[form] = trainer_of(small, form, "foreach").best_of(a.tries)
    if not seconds:
        refuse(f"attention {a.attention} does not work in PyTorch {torch.__version__}")
    form = min(seconds, key=seconds.get)
    times = {name: trainer_of(small, form, name).best_of(a.tries) for name in ("foreach", "loop")}
    choice = [form, min(times, key=times.get)]
    if a.world > 1:
        dist.broadcast_object_list(choice, src=0)
    return choice


def main():
    parser = argument_parser(__doc__.splitlines()[0])
    parser.add_argument("--attention", default="best", choices=["best", "masked_fill", "baddbmm", "in_place", "fused"])
    a = parse(parser)
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    kept = keep_freed_memory()
    gflops = product_gflops()
    core = openblas_core()
    if core.lower() not in (name.lower() for name in FAST_CORES.get(platform.machine(), ())):
        refuse(f"OpenBLAS runs its kernels for {core}, which are slow; set OPENBLAS_CORETYPE to what this processor has")
    if a.world > 1:
        dist.init_process_group("gloo")
    form, optimizer = fastest(a)
    figures = trainer_of(a, form, optimizer).measure()
    if a.rank == 0:
        print(json.dumps({"peer": "pytorch", "torch": torch.__version__, "kernels": f"OpenBLAS for {core}", "product_gflops": gflops,
                          "attention": form, "adamw": optimizer, "keeps_freed_memory": kept, **figures}))
    if a.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
