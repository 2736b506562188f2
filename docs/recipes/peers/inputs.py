"""Inputs that stress attention in different ways, and attention in double precision."""

import math
import torch

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def make(kind, b, s, h, d, heads_kv=None, seed=0):
    """q, k, v in bf16, [batch, seqlen, heads, head dim], and a word on what is particular about them."""
    g = torch.Generator(device="cuda").manual_seed(seed)
    heads_kv = heads_kv or h

    def normal(heads):
        return torch.randn(b, s, heads, d, generator=g, device="cuda", dtype=torch.float32)

    q, k, v = normal(h), normal(heads_kv), normal(heads_kv)
    if kind == "peaked":  # scores of deviation 8: few keys carry a row
        q = q * 8
    elif kind == "one-hot":  # every query is a key, made long: one key carries its row, another for each row
        k = torch.nn.functional.normalize(k, dim=-1) * math.sqrt(d)
        q = torch.roll(k, 1, dims=1).repeat_interleave(h // heads_kv, dim=2) * 8
    elif kind == "uniform":  # P is the same for every key
        q = torch.zeros_like(q)
    elif kind == "v-one":  # every output is one, whatever P is
        v = torch.ones_like(v)
    elif kind == "large":  # outliers in V's columns
        v[..., 0] *= 64
    elif kind == "masked":
        # One channel masks: every other query sees the first three keys alone, in half of the heads the last three (and where
        # it is causal too, the rows before them see masked keys only).
        q[..., 0], k[..., 0] = 0, 0
        k[:, :, : heads_kv // 2, 0], k[:, :, heads_kv // 2 :, 0] = -200, -200
        k[:, :3, : heads_kv // 2, 0], k[:, -3:, heads_kv // 2 :, 0] = 0, 0
        q[:, ::2, :, 0] = 200
    elif kind != "random":
        raise ValueError(kind)
    if kind == "random":
        q = q * 2
    return [t.to(torch.bfloat16) for t in (q, k, v)]


def blocks(q, k, causal, rows=1024):
    """Scores in double, [heads, rows, keys], by batch and block of rows, and where they belong."""
    b, s, h, d = q.shape
    groups = h // k.shape[2]
    for i in range(b):
        kk = k[i].double().permute(1, 2, 0).repeat_interleave(groups, 0)
        for first in range(0, s, rows):
            score = q[i, first : first + rows].double().permute(1, 0, 2) @ kk / math.sqrt(d)
            if causal:
                last = torch.arange(first, min(first + rows, s), device="cuda")[:, None]
                score.masked_fill_(torch.arange(s, device="cuda")[None, :] > last, -math.inf)
            yield i, slice(first, first + rows), score


def e4m3(x):
    return x.float().clamp(-448, 448).to(torch.float8_e4m3fn).double()


def e2m1(x):
    """To the nearest code, ties to the even one (codes 0, 1, 2 ... of E2M1)."""
    grid = E2M1.to(x.device, torch.double)
    upper = torch.searchsorted(grid, x.abs().contiguous()).clamp(1, 7)
    low, high = grid[upper - 1], grid[upper]
    middle = (low + high) / 2
    odd = (upper - 1) % 2 == 1
    up = (x.abs() > middle) | ((x.abs() == middle) & odd)
    return torch.where(up, high, low) * x.sign()


def quantised_p(p, mode):
    """P, at most 1, as a mode's format holds it; the row sum is taken before."""
    if mode == "bf16":
        return p
    if mode == "fp8":
        return e4m3(p * 256) / 256
    full = 2688.0
    groups = torch.nn.functional.pad(p, (0, -p.shape[-1] % 16)).unflatten(-1, (-1, 16)) * full
    scale = groups.amax(-1, keepdim=True) / 6
    codes = torch.where(scale > 0, e2m1(groups / scale.clamp_min(1e-300)), 0.0)
    return (codes * e4m3(scale)).flatten(-2)[..., : p.shape[-1]] / full


def quantised_v(v, mode):
    """V [batch, seqlen, heads, head dim] as a mode's format holds it, in double."""
    v = v.double()
    if mode == "bf16":
        return v
    top = v.abs().amax(dim=(1, 3), keepdim=True).clamp_min(1e-30)
    if mode == "fp8":
        scale = (top / 448).float().double()
        return e4m3(v / scale) * scale
    scale = (top / (6 * 448)).float().double()
    s = v.shape[1]
    t = torch.nn.functional.pad((v / scale).permute(0, 2, 3, 1), (0, -s % 16)).unflatten(-1, (-1, 16))
    step = e4m3(t.abs().amax(-1, keepdim=True) / 6)
    codes = torch.where(step > 0, e2m1(t / step.clamp_min(1e-300)), 0.0)
    return (codes * step).flatten(-2)[..., :s].permute(0, 3, 1, 2) * scale


def attention(q, k, v, causal=False, mode="bf16"):
    """Attention in double precision, P and V rounded to a mode's format ("bf16": not at all)."""
    out = torch.empty(q.shape, dtype=torch.double, device="cuda")
    groups = q.shape[2] // k.shape[2]
    vv = quantised_v(v, mode)
    for i, rows, score in blocks(q, k, causal):
        p = (score - score.amax(-1, keepdim=True)).exp()
        total = p.sum(-1, keepdim=True)
        o = quantised_p(p, mode) @ vv[i].permute(1, 0, 2).repeat_interleave(groups, 0) / total
        out[i, rows] = o.permute(1, 0, 2)
    return out
