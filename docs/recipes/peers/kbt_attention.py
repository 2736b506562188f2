"""The attention kernel of kbt as a function on PyTorch tensors: one cubin, launched through the CUDA driver.

    kernel = Attention("attention-bf16.cubin")          # written by `kbt kernel compile attention`
    o, lse = kernel(q, k, v, causal=True)               # q [batch, seqlen, heads, head dim], k and v with fewer heads if they like

Tensors keep their strides; the head dimension is innermost. fp8 and fp4 take V through prepare_v once, which is not part of
a launch: fp8 wants V in e4m3, transposed and permuted, fp4 wants it on the NVFP4 grid.
"""

import ctypes
import math
import os
import struct
import torch

_cuda = ctypes.CDLL("libcuda.so.1")
_BF16, _U8 = 9, 0  # CUtensorMapDataType


def _check(status):
    if status:
        text = ctypes.c_char_p()
        _cuda.cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError((text.value or b"unknown error").decode())


def cubins(folder):
    """The kernels of a folder; none is an error, not a table without rows."""
    names = sorted(f for f in os.listdir(folder) if f.startswith("attention-") and f.endswith(".cubin"))
    if not names:
        raise SystemExit(f"{folder} holds no attention-MODE-WHAT.cubin; cubins.sh writes them")
    return names


class _Params(ctypes.Structure):
    _fields_ = (
        [(n, ctypes.c_uint64) for n in ("o",)]
        + [(n, ctypes.c_int64) for n in ("o_stride_batch", "o_stride_head", "o_stride_row")]
        + [(n, ctypes.c_uint64) for n in ("lse", "v_scale", "counters")]
        + [(n, ctypes.c_int32) for n in ("batch", "heads", "heads_per_kv", "seqlen", "causal", "heads_at_a_time")]
        + [("scale_log2", ctypes.c_float)]
    )


class _Trace(ctypes.Structure):
    _fields_ = [("base", ctypes.c_uint64)] + [(n, ctypes.c_uint32) for n in ("roles", "ring_mask", "cta_stride", "cta_limit")]


def _map(data_type, address, dims, strides, box):
    """A CUtensorMap with 128-byte swizzle; it must lie at a multiple of 64 bytes."""
    raw = ctypes.create_string_buffer(128 + 64)
    at = (ctypes.addressof(raw) + 63) // 64 * 64
    u64, u32 = ctypes.c_uint64 * len(dims), ctypes.c_uint32 * len(dims)
    _check(
        _cuda.cuTensorMapEncodeTiled(
            ctypes.c_void_p(at), data_type, len(dims), ctypes.c_void_p(address), u64(*dims), (ctypes.c_uint64 * (len(dims) - 1))(*strides),
            u32(*box), u32(*[1] * len(dims)), 0, 3, 2, 0,
        )
    )
    return raw, at


class Attention:
    """One variant of the kernel, on the current device. Its launches share the counters that hand out tiles: one stream at a time."""

    def __init__(self, cubin):
        torch.cuda.current_stream().synchronize()  # creates the context
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        data = open(cubin, "rb").read() if isinstance(cubin, str) else cubin
        _check(_cuda.cuModuleLoadData(ctypes.byref(self.module), data))
        _check(_cuda.cuModuleGetFunction(ctypes.byref(self.function), self.module, b"attention_forward"))
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        _check(_cuda.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), self.module, b"attention_config"))
        raw = ctypes.create_string_buffer(32)
        _check(_cuda.cuMemcpyDtoH_v2(raw, address, 32))
        names = "threads shared_bytes head_dim tile_m tile_n q_box_rows v_box roles".split()
        self.config = dict(zip(names, struct.unpack("8I", raw.raw)))
        _check(_cuda.cuFuncSetAttribute(self.function, 8, self.config["shared_bytes"]))
        self.fp8 = self.config["v_box"] == 128
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.counters = torch.zeros(2, dtype=torch.int32, device="cuda")

    def prepare(self, q, k, v, v_scale=None, causal=False, out=None, lse=True, static=False):
        """Returns a function that launches and returns (o, lse), and nothing else happens in it. v: [batch, seqlen, heads,
        head dim] in bf16, or what prepare_v_fp8 returns."""
        b, s, h, d = q.shape
        h_kv = k.shape[2]
        c = self.config
        assert d == c["head_dim"] and h % h_kv == 0 and k.shape == (b, s, h_kv, d), (q.shape, k.shape, c)
        for t in (q, k):
            assert t.dtype == torch.bfloat16 and t.stride(-1) == 1 and all(x % 8 == 0 for x in t.stride()[:-1]), (t.dtype, t.stride())
        o = torch.full((b, s, h, d), float("nan"), dtype=torch.bfloat16, device="cuda") if out is None else out
        lse = torch.full((b, h, s), float("nan"), device="cuda") if lse else None

        def rows(t, box_rows):
            st = t.stride()
            return _map(_BF16, t.data_ptr(), (d, s, t.shape[2], b), (2 * st[1], 2 * st[2], 2 * st[0]), (64, box_rows, 1, 1))

        if self.fp8:
            n = v.shape[-1]
            v_map = _map(_U8, v.data_ptr(), (n, d, h_kv, b), (n, n * d, n * d * h_kv), (128, d, 1, 1))
        else:
            v_map = rows(v, c["tile_n"])
        maps = [rows(q, c["q_box_rows"]), rows(k, c["tile_n"]), v_map]
        kv_bytes = 4 * s * d
        params = _Params(
            o.data_ptr(), o.stride(0), o.stride(2), o.stride(1), lse.data_ptr() if lse is not None else 0,
            v_scale.data_ptr() if v_scale is not None else 0, 0 if static else self.counters.data_ptr(), b, h, h // h_kv, s, int(causal),
            max(1, min(b * h, (32 << 20) // kv_bytes * (h // h_kv))), math.log2(math.e) / math.sqrt(d),
        )
        trace = _Trace(0, 0, 0, 1, 0)
        args = (ctypes.c_void_p * 5)(maps[0][1], maps[1][1], maps[2][1], ctypes.addressof(params), ctypes.addressof(trace))
        tiles = -(-s // c["tile_m"]) * h * b
        grid = min(tiles, self.sms)
        keep = (maps, params, trace, q, k, v, v_scale, args)

        def launch(keep=keep):
            _check(
                _cuda.cuLaunchKernel(
                    self.function, grid, 1, 1, c["threads"], 1, 1, c["shared_bytes"],
                    ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), args, None,
                )
            )
            return o, lse

        return launch

    def __call__(self, q, k, v, v_scale=None, **more):
        return self.prepare(q, k, v, v_scale, **more)()


def prepare_v_fp8(v):
    """[batch, seqlen, heads, head dim] to e4m3 [batch, heads, head dim, padded seqlen], keys permuted within groups of 16,
    and one factor a (batch, head)."""
    b, s, h, d = v.shape
    scale = v.float().abs().amax(dim=(1, 3)).clamp_min(1e-30) / 448.0
    t = (v.float() / scale[:, None, :, None]).permute(0, 2, 3, 1)
    t = torch.nn.functional.pad(t, (0, -s % 16))
    position = torch.arange(16)
    key = 2 * (position // 4) + (position % 4 & 1) + 8 * (position % 4 >> 1)
    t = t.reshape(b, h, d, -1, 16)[..., key.to(t.device)].reshape(b, h, d, -1)
    return t.to(torch.float8_e4m3fn).contiguous(), scale.contiguous()


def prepare_v_fp4(v):
    """[batch, seqlen, heads, head dim] on the NVFP4 grid (16 keys a group) in bf16, and one factor a (batch, head)."""
    from inputs import e2m1, e4m3

    s = v.shape[1]
    scale = v.float().abs().amax(dim=(1, 3)).clamp_min(1e-30) / (6 * 448)
    t = (v.float() / scale[:, None, :, None]).double().permute(0, 2, 3, 1)
    t = torch.nn.functional.pad(t, (0, -s % 16)).unflatten(-1, (-1, 16))
    step = e4m3(t.abs().amax(-1, keepdim=True) / 6)
    codes = torch.where(step > 0, e2m1(t / step.clamp_min(1e-300)), 0.0)
    grid = (codes * step).flatten(-2)[..., :s].permute(0, 3, 1, 2)
    return grid.to(torch.bfloat16).contiguous(), scale.contiguous()


def prepare_v(v, mode):
    """What a mode takes for V, and its factors: the arguments `v, v_scale` of a call."""
    return {"bf16": lambda v: (v, None), "fp8": prepare_v_fp8, "fp4": prepare_v_fp4}[mode](v)
