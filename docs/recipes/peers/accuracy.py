"""Errors of the attention kernel against double precision, beside PyTorch's own bf16 path and beside the same quantisation in
double precision.

    python3 accuracy.py DIR [KIND ...] # DIR holds attention-MODE-WHAT.cubin, see README.md; KIND: of the inputs, such as masked

Exit 1 if a mode is worse than it may be: bf16 than 1.05 times PyTorch in the relative root mean square and the mean, the others than
their quantisation in double precision (rounded to bf16) plus PyTorch's error; in the maximum and the worst row, single draws, 1.25 times that. Where the package fa3-fwd is there, the last column is the relative root mean
square of FlashAttention-3's fp8, with Q, K and V scaled to e4m3 by head."""

import os
import sys
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from inputs import attention, make
from kbt_attention import Attention, cubins, prepare_v
from peer_bench import flash_attention_3

CASES = [(kind, 2, 1000, 4, 2, causal) for kind in ("random", "peaked", "one-hot", "uniform", "v-one", "large", "masked") for causal in (False, True)]
CASES += [("random", 1, 16384, 2, 2, False), ("peaked", 1, 16384, 2, 1, True)]


def errors(o, exact):
    """Relative root mean square, that of the worst row, greatest and mean error."""
    e = o.double() - exact
    row = (e.square().mean(-1) / exact.square().mean(-1).clamp_min(1e-12)).sqrt()
    rms = (e.square().mean() / exact.square().mean()).sqrt()
    return [float(x) for x in (rms, row.max(), e.abs().max(), e.abs().mean())]


def pytorch(q, k, v, causal):
    g = q.shape[2] // k.shape[2]
    q, k, v = (t.transpose(1, 2) for t in (q, k.repeat_interleave(g, 2), v.repeat_interleave(g, 2)))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


def flash_attention_3_fp8(fa3, q, k, v, causal):
    scaled, factors = [], []
    for t in (q, k, v):
        # One factor a batch and key head, for Q too.
        grouped = t.float().unflatten(2, (k.shape[2], -1))
        factor = grouped.abs().amax(dim=(1, 3, 4)).clamp_min(1e-12) / 448
        scaled.append((grouped / factor[:, None, :, None, None]).flatten(2, 3).to(torch.float8_e4m3fn))
        factors.append(factor)
    o = fa3.flash_attn_func(*scaled, causal=causal, q_descale=factors[0], k_descale=factors[1], v_descale=factors[2])
    return o[0] if isinstance(o, tuple) else o


def main():
    folder, kinds = sys.argv[1], sys.argv[2:]
    fa3 = flash_attention_3()
    bad = 0
    print("kernel                   case                 rel rms   worst row  max       mean      allowed rms")
    unknown = set(kinds) - {c[0] for c in CASES}
    if unknown:
        sys.exit(f"no such inputs: {', '.join(sorted(unknown))}; there are {', '.join(dict.fromkeys(c[0] for c in CASES))}")
    for name in cubins(folder):
        kernel = Attention(os.path.join(folder, name))
        d = kernel.config["head_dim"]
        mode = name.split("-")[1]
        short = name[len("attention-") : -len(".cubin")]
        for kind, b, s, h, kv, causal in (c for c in CASES if not kinds or c[0] in kinds):
            q, k, v = make(kind, b, s, h, d, kv)
            exact = attention(q, k, v, causal)
            own = errors(kernel(q, k, *prepare_v(v, mode), causal=causal)[0], exact)
            peer = errors(pytorch(q, k, v, causal), exact)
            if mode == "bf16":
                # max and worst row are single draws: they may pass by chance, by a quarter
                allowed = [1.05 * peer[0], 1.25 * peer[1], 1.25 * peer[2], 1.05 * peer[3]]
            else:
                ideal = errors(attention(q, k, v, causal, mode).to(torch.bfloat16), exact)
                allowed = [a + p for a, p in zip(ideal, peer)]
                allowed[1:3] = [1.25 * x for x in allowed[1:3]]
            worse = [n for n, x, a in zip(("rms", "row", "max", "mean"), own, allowed) if not x <= a + 1e-7]
            beside = ""
            if fa3 and mode == "fp8":
                theirs = errors(flash_attention_3_fp8(fa3, q, k, v, causal), exact)[0]
                beside = f" FA3 fp8 {theirs:9.2e}{' (smaller)' if theirs < own[0] else ''}"
            bad += bool(worse)
            print(
                f"{short:24} {kind + (' causal' if causal else ''):16} {s:5}" + "".join(f" {x:9.2e}" for x in own)
                + f" {allowed[0]:9.2e} {'worse in ' + ', '.join(worse) if worse else ''}{beside}", flush=True,
            )
    print("all within what is allowed" if not bad else f"{bad} cases beyond what is allowed")
    sys.exit(bool(bad))


main()
