#!/usr/bin/env python3
"""FlashAttention-4 (the PyPI package flash-attn-4) as a kbt target: `build`, `run`, `reference`; and `plain`, `lint`.

build      compiles the forward kernel for KBT_ARCH with no GPU: PTX and cubin into KBT_DUMP
run        one process of the ladder: makes or reads the inputs, times launches, writes KBT_OUT
reference  the framework's own attention in f64 on the inputs in KBT_INPUTS
plain      times the package's public function without kbt, as a user would, for comparison
lint       looks through the package's source for arguments that the DSL silently discards

The package is used as it is installed. Its knobs are set by configuration, from the environment: see flash-attention-4.yaml.
"""

import os
import sys
from pathlib import Path

# Shape of the problem; a copy of the target file may set others in `run.env` and `build.env`.
BATCH, SEQLEN, HEADS, HEADDIM = (
    int(os.environ.get(f"FA4_{name}", value))
    for name, value in [("BATCH", 2), ("SEQLEN", 4096), ("HEADS", 16), ("HEADDIM", 128)]
)
CAUSAL = os.environ.get("FA4_CAUSAL", "0") == "1"
# SMs of the part that a compile target stands for; they shape the grid, not the kernel.
SMS = {"sm_90a": 132, "sm_100a": 148, "sm_103a": 160}
LAUNCHES, WARMUP = 20, 20


def refuse(why):
    print(why, file=sys.stderr)
    sys.exit(3)


def knob(name):
    """The value of a knob as an integer, or None where it is `package`: what the package would choose."""
    value = os.environ.get(name, "package")
    return None if value == "package" else int(value)


def keep_machine_code():
    """Tells the DSL to leave its PTX and cubin in KBT_DUMP; it reads its environment when it is imported."""
    if dump := os.environ.get("KBT_DUMP"):
        os.environ.update(CUTE_DSL_KEEP="ptx,cubin", CUTE_DSL_DUMP_DIR=dump, CUTE_DSL_LINEINFO="1")
    # A kernel that a cache served would leave no PTX, and might be another setting's.
    os.environ.update(CUTE_DSL_NO_CACHE="1", CUTE_DSL_DISABLE_FILE_CACHING="1")
    os.environ["FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"] = "0"


def short_names():
    """The DSL names files by a function name of 200 letters, cut off; one kernel a process needs no more than this."""
    for path in Path(os.environ.get("KBT_DUMP") or os.devnull).glob("cutlass_*"):
        path.rename(path.with_name("flash_attention_4" + path.suffix))


def configure():
    """Sets the knobs in the package's own tables; returns the arguments of the forward call."""
    arguments = {}
    tile = knob("FA4_TILE_M"), knob("FA4_TILE_N")
    if any(tile):
        if not all(tile):
            refuse("FA4_TILE_M and FA4_TILE_N are set together")
        arguments["tile_mn"] = tile
    for name, argument in [("FA4_PV_RS", "mma_pv_is_rs"), ("FA4_OVERLAP", "intra_wg_overlap")]:
        if (value := knob(name)) is not None:
            arguments[argument] = bool(value)
    tuned = {
        "ex2_emu_freq": knob("FA4_EX2_EMU_FREQ"),
        "num_regs_softmax": knob("FA4_REGS_SOFTMAX"),
        "num_regs_correction": knob("FA4_REGS_CORRECTION"),
    }
    tuned = {name: value for name, value in tuned.items() if value is not None}
    if tuned:
        from flash_attn.cute import flash_fwd_sm100

        for entry in flash_fwd_sm100._TUNING_CONFIG.values():
            entry.update(tuned)
    return arguments


def forward():
    """The package's forward function with the knobs applied: (q, k, v) to (o, lse)."""
    arguments = configure()
    from flash_attn.cute.interface import _flash_attn_fwd

    def call(q, k, v):
        return _flash_attn_fwd(q, k, v, causal=CAUSAL, return_lse=True, **arguments)[:2]

    return call


def shape():
    return BATCH, SEQLEN, HEADS, HEADDIM


def build():
    arch = os.environ.get("KBT_ARCH") or refuse("KBT_ARCH is not set: which compile target?")
    if arch not in SMS:
        refuse(f"no compile target {arch} here; there are {', '.join(SMS)}")
    os.environ.update(FLASH_ATTENTION_ARCH=arch, CUTE_DSL_ARCH=arch, FLASH_ATTENTION_NUM_SMS=str(SMS[arch]))
    os.environ["FLASH_ATTENTION_FAKE_TENSOR"] = "1"
    keep_machine_code()
    import cutlass.utils
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Hardware:
        """What the scheduler asks a driver that is not there: how many SMs the grid may fill."""

        def get_device_multiprocessor_count(self):
            return SMS[arch]

    cutlass.utils.HardwareInfo = Hardware
    call = forward()
    with FakeTensorMode():
        call(*(torch.empty(shape(), dtype=torch.bfloat16, device="cuda") for _ in range(3)))
    short_names()


def inputs(torch):
    """The tensors of this input set: from KBT_INPUTS, or made from its number and saved there."""
    from safetensors.torch import load_file, save_file

    folder = os.environ.get("KBT_INPUTS")
    file = Path(folder) / "inputs.safetensors" if folder else None
    if file and file.exists():
        return load_file(file)
    generator = torch.Generator().manual_seed(1 + int(os.environ.get("KBT_INPUT_SET", 0)))
    tensors = {name: torch.randn(shape(), generator=generator).to(torch.bfloat16) for name in "qkv"}
    if file:
        save_file(tensors, file)
    return tensors


def describe(torch):
    import subprocess

    print("kbt-device", torch.cuda.get_device_name())
    found = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version,clocks.sm", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=False,
    )
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
    if os.environ.get("KBT_TRACE", "off") != "off":
        refuse("the package has no tracer of its own")
    import torch

    if not torch.cuda.is_available():
        refuse("no GPU is visible")
    keep_machine_code()
    from safetensors.torch import save_file

    call = forward()
    q, k, v = (inputs(torch)[name].cuda() for name in "qkv")
    o, lse = call(q, k, v)
    torch.cuda.synchronize()
    short_names()
    if out := os.environ.get("KBT_OUT"):
        save_file({"o": o.cpu().contiguous(), "lse": lse.cpu().contiguous()}, out)
    done = take_turn()
    for _ in range(WARMUP):
        call(q, k, v)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(LAUNCHES)]
    for start, stop in events:
        start.record()
        call(q, k, v)
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

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = load_file(Path(os.environ["KBT_INPUTS"]) / "inputs.safetensors")
    q, k, v = (tensors[name].to(device).transpose(1, 2).double() for name in "qkv")
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float64, device=device)
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=device).triu(1) if CAUSAL else None
    # Head by head: the scores of all heads in f64 would take gigabytes.
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            scores = q[b, h] @ k[b, h].T / q.shape[3] ** 0.5
            if mask is not None:
                scores.masked_fill_(mask, float("-inf"))
            lse[b, h] = scores.logsumexp(-1)
            o[b, h] = (scores - lse[b, h, :, None]).exp() @ v[b, h]
    right = {"o": o.transpose(1, 2).contiguous().cpu(), "lse": lse.cpu()}
    save_file(right, os.environ["KBT_OUT"])


def plain():
    import statistics

    import torch
    from flash_attn.cute import flash_attn_func

    q, k, v = (inputs(torch)[name].cuda() for name in "qkv")
    for _ in range(WARMUP):
        flash_attn_func(q, k, v, causal=CAUSAL)
    # Many calls between two events: one alone would wait for Python to launch it.
    times = []
    for _ in range(7):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(LAUNCHES):
            flash_attn_func(q, k, v, causal=CAUSAL)
        stop.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(stop) / LAUNCHES)
    print(f"plain timing: {statistics.median(times):.2f} us, {min(times):.2f} to {max(times):.2f}, 7 times {LAUNCHES} calls")


def lint():
    """Arguments that the DSL takes and drops: `unroll` and its kin on range_constexpr, which is unrolled anyway."""
    import ast
    import importlib.util

    package = importlib.util.find_spec("flash_attn.cute") or refuse("flash-attn-4 is not installed")
    found = looked = 0
    for file in sorted(Path(package.submodule_search_locations[0]).glob("*.py")):
        looked += 1
        for node in ast.walk(ast.parse(file.read_text())):
            name = isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name != "range_constexpr":
                continue
            for keyword in node.keywords:
                found += 1
                print(f"{file.name}:{node.lineno}: range_constexpr discards `{keyword.arg}=`: the loop is unrolled whole")
    print(f"{looked} files, {found} discarded arguments")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    commands = {"build": build, "run": run, "reference": reference, "plain": plain, "lint": lint}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        print(f"usage: fa4.py {{{'|'.join(commands)}}}", file=sys.stderr)
        sys.exit(2)
    commands[sys.argv[1]]()
