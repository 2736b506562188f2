#!/usr/bin/env python3
"""A Triton matrix product as a kbt target: `build`, `run`, `reference`.

build      compiles the kernel for KBT_ARCH ahead of time, with no GPU: PTX and cubin into KBT_DUMP
run        one process of the ladder: makes or reads the inputs, times launches, writes KBT_OUT
reference  the product in f64 on the inputs in KBT_INPUTS

The kernel is the usual one: a program makes a tile of C, walks along K with a software pipeline of loads, and tiles that
share rows of A run near each other so that L2 serves them.
"""

import os
import subprocess
import sys
from pathlib import Path

import triton
import triton.language as tl

M = N = K = int(os.environ.get("MATMUL_SIZE", 4096))
BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, WARPS, STAGES = (
    int(os.environ.get(name, value))
    for name, value in [
        ("BLOCK_M", 128), ("BLOCK_N", 128), ("BLOCK_K", 64), ("GROUP_M", 8), ("WARPS", 4), ("STAGES", 3),
    ]
)
LAUNCHES, WARMUP = 30, 20


@triton.jit
def matmul(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    # Tiles go down GROUP_M rows of tiles before they go right.
    tile = tl.program_id(0)
    down, right = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    group = tile // (GROUP_M * right)
    first = group * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    row = first + (tile % (GROUP_M * right)) % height
    column = (tile % (GROUP_M * right)) // height
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    from_a = a + rows[:, None] * k + depth[None, :]
    from_b = b + depth[:, None] * n + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, k, BLOCK_K):
        sums = tl.dot(tl.load(from_a), tl.load(from_b), sums)
        from_a += BLOCK_K
        from_b += BLOCK_K * n
    tl.store(c + rows[:, None] * n + columns[None, :], sums.to(tl.bfloat16))


CONSTANTS = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "GROUP_M": GROUP_M}


def refuse(why):
    print(why, file=sys.stderr)
    sys.exit(3)


def dump(compiled):
    """Leaves a compiled kernel's PTX and cubin where kbt looks for them."""
    if folder := os.environ.get("KBT_DUMP"):
        (Path(folder) / "matmul.ptx").write_text(compiled.asm["ptx"])
        (Path(folder) / "matmul.cubin").write_bytes(compiled.asm["cubin"])


def build():
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    arch = os.environ.get("KBT_ARCH") or refuse("KBT_ARCH is not set: which compile target?")
    number = "".join(c for c in arch if c.isdigit())
    pointers = dict.fromkeys("abc", "*bf16")
    source = ASTSource(
        fn=matmul,
        signature={**pointers, "m": "i32", "n": "i32", "k": "i32", **dict.fromkeys(CONSTANTS, "constexpr")},
        constexprs=CONSTANTS,
        # What a launch would see of its arguments: addresses and sizes that are multiples of 16.
        attrs={(i,): [["tt.divisibility", 16]] for i in range(6)},
    )
    options = {"num_warps": WARPS, "num_stages": STAGES}
    dump(triton.compile(source, target=GPUTarget("cuda", int(number), 32), options=options))


def inputs(torch):
    from safetensors.torch import load_file, save_file

    folder = os.environ.get("KBT_INPUTS")
    file = Path(folder) / "inputs.safetensors" if folder else None
    if file and file.exists():
        return load_file(file)
    generator = torch.Generator().manual_seed(1 + int(os.environ.get("KBT_INPUT_SET", 0)))
    tensors = {
        "a": torch.randn((M, K), generator=generator).to(torch.bfloat16),
        "b": torch.randn((K, N), generator=generator).to(torch.bfloat16),
    }
    if file:
        save_file(tensors, file)
    return tensors


def describe(torch):
    print("kbt-device", torch.cuda.get_device_name())
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm", "--format=csv,noheader,nounits"]
    found = subprocess.run(query, capture_output=True, text=True, check=False)
    if found.returncode == 0 and ", " in found.stdout:
        driver, clock = found.stdout.splitlines()[0].split(", ")
        print("kbt-driver", driver)
        print("kbt-clock-mhz", clock)


def take_turn():
    """Where kbt sets up several processes together, waits until this one is to be timed. What it returns is called behind the
    times, and waits until nobody is timed any more."""
    if "KBT_TURN" not in os.environ:
        return lambda: None
    print("kbt-ready", flush=True)
    sys.stdin.readline()

    def done():
        print("kbt-done", flush=True)
        sys.stdin.read()

    return done


def run():
    import torch

    if not torch.cuda.is_available():
        refuse("no GPU is visible")
    if M % BLOCK_M or N % BLOCK_N or K % BLOCK_K:
        refuse("the tiles do not divide the matrix")
    from safetensors.torch import save_file

    tensors = inputs(torch)
    a, b = tensors["a"].cuda(), tensors["b"].cuda()
    c = torch.empty((M, N), dtype=torch.bfloat16, device="cuda")
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)

    def launch():
        return matmul[grid](a, b, c, M, N, K, **CONSTANTS, num_warps=WARPS, num_stages=STAGES)

    try:
        dump(launch())
    except triton.runtime.errors.OutOfResources as error:
        refuse(str(error))
    torch.cuda.synchronize()
    if out := os.environ.get("KBT_OUT"):
        save_file({"c": c.cpu()}, out)
    done = take_turn()
    for _ in range(WARMUP):
        launch()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(LAUNCHES)]
    for start, stop in events:
        start.record()
        launch()
        stop.record()
    # While the last launches still run the clock is theirs.
    describe(torch)
    torch.cuda.synchronize()
    for start, stop in events:
        print(f"kbt-time-us {1e3 * start.elapsed_time(stop):.3f}")
    done()


def reference():
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(Path(os.environ["KBT_INPUTS"]) / "inputs.safetensors")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = (tensors[name].to(device).double() for name in "ab")
    save_file({"c": (a @ b).cpu()}, os.environ["KBT_OUT"])


if __name__ == "__main__":
    commands = {"build": build, "run": run, "reference": reference}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        print(f"usage: matmul.py {{{'|'.join(commands)}}}", file=sys.stderr)
        sys.exit(2)
    commands[sys.argv[1]]()
