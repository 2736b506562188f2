"""The attention kernel beside cuDNN (through PyTorch) and FlashAttention-3 (the package fa3-fwd), in one process.

    python3 peer_bench.py DIR [--rounds 20] [--shapes full|d128|d64|4k] [--json OUT.json]

DIR holds attention-MODE-WHAT.cubin (see README.md). Every round times each candidate once, in turn and then in reverse
(ABBA), two launches between two events after one that is not counted, with a pause before each. Printed: TFLOP/s at the median
time, counted as 4 B H S^2 D and half of that when causal; the spread is the distance of the quartiles over the median. Clock
and power are sampled meanwhile."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from kbt_attention import Attention, cubins, prepare_v

SHAPES = {
    "d128": [(4, 4096, 16, 128, c) for c in (False, True)]
    + [(2, 8192, 16, 128, c) for c in (False, True)]
    + [(1, 16384, 16, 128, c) for c in (False, True)],
    "d64": [(2, 8192, 32, 64, c) for c in (False, True)],
}
SHAPES["4k"] = SHAPES["d128"][:1]
SHAPES["full"] = SHAPES["d128"] + SHAPES["d64"]


def flash_attention_3():
    """The package, or None; it looks for its configuration under another name than it ships it."""
    try:
        import fa3_fwd_config

        sys.modules["flash_attn_config"] = fa3_fwd_config
        import fa3_fwd_interface

        return fa3_fwd_interface
    except ImportError as e:
        print(f"FlashAttention-3 is left out: {e}", file=sys.stderr)
        return None


def candidates(kernels, fa3, b, s, h, d, causal):
    q, k, v = (torch.randn(b, s, h, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    made = {}
    for name, mode, kernel in kernels:
        if kernel.config["head_dim"] == d:
            made[name] = kernel.prepare(q, k, *prepare_v(v, mode), causal=causal, lse=False)
    qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))

    def cudnn():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(qt, kt, vt, is_causal=causal)

    made["cuDNN bf16"] = cudnn
    if fa3:
        made["FA3 bf16"] = lambda: fa3.flash_attn_func(q, k, v, causal=causal)
        q8, k8, v8 = (t.to(torch.float8_e4m3fn) for t in (q, k, v))
        one = torch.ones(b, h, device="cuda")
        made["FA3 fp8"] = lambda: fa3.flash_attn_func(
            q8, k8, v8, causal=causal, q_descale=one, k_descale=one, v_descale=one
        )
    return made


def once(call):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    start.record()
    call()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--shapes", choices=SHAPES, default="full")
    parser.add_argument("--cooldown-ms", type=float, default=5.0)
    parser.add_argument("--json")
    args = parser.parse_args()
    names = cubins(args.folder)
    kernels = [(f[len("attention-") : -len(".cubin")], f.split("-")[1], Attention(os.path.join(args.folder, f))) for f in names]
    fa3 = flash_attention_3()
    # A file, not a pipe: nobody reads it before the end.
    sampled = tempfile.TemporaryFile("w+")
    sampler = subprocess.Popen(
        ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant,clocks_event_reasons.active", "--format=csv,noheader,nounits", "-lms", "50"],
        stdout=sampled,
    )
    results = []
    for b, s, h, d, causal in SHAPES[args.shapes]:
        made = candidates(kernels, fa3, b, s, h, d, causal)
        for call in made.values():
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        times = {name: [] for name in made}
        for r in range(args.rounds):
            for name in list(made) if r % 2 == 0 else reversed(list(made)):
                time.sleep(args.cooldown_ms / 1e3)
                times[name].append(once(made[name]))
        flop = 4.0 * b * h * s * s * d / (2 if causal else 1)
        peer = max(flop / statistics.median(times[n]) / 1e9 for n in times if n in ("cuDNN bf16", "FA3 bf16"))
        print(f"batch {b}, seqlen {s}, heads {h}, head dim {d}{', causal' if causal else ''}")
        for name, t in times.items():
            low, median, high = statistics.quantiles(t, n=4)
            tflops = flop / median / 1e9
            beside = ""
            if "fp8" in name and name != "FA3 fp8" and "FA3 fp8" in times:
                beside = f"  {statistics.median(times['FA3 fp8']) / median:5.3f} of FA3 fp8"
            print(
                f"    {name:28} {tflops:6.0f} TFLOP/s  {tflops / peer:5.3f} of the faster bf16 peer  "
                f"spread {100 * (high - low) / median:4.1f} %{beside}"
            )
            results.append(dict(batch=b, seqlen=s, heads=h, head_dim=d, causal=causal, candidate=name, tflops=tflops, ratio=tflops / peer,
                                median_ms=median, quartiles_ms=[low, high], times_ms=t))
        sys.stdout.flush()
    sampler.terminate()
    sampler.wait()
    sampled.seek(0)
    lines = [line.split(", ") for line in sampled.read().splitlines()]
    busy = [x for x in lines if len(x) == 3 and x[1].replace(".", "").isdigit() and float(x[1]) > 200]
    if busy:
        clocks, watts = (sorted(float(x[i]) for x in busy) for i in (0, 1))
        capped = sum(int(x[2].strip(), 16) & 0x4 != 0 for x in busy)
        print(
            f"clock {clocks[0]:.0f} to {clocks[-1]:.0f} MHz, median {statistics.median(clocks):.0f}; power up to {watts[-1]:.0f} W; "
            f"capped by power in {capped} of {len(busy)} samples under load"
        )
    print(f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
