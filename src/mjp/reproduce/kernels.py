"""Arithmetic for a process that computes one cell on one core of a CPU.

Small networks spend their time in small products. On processors that are not Intel's, MKL leaves half of the vector
width idle. oneDNN's kernels do not, but torch asks for them only where lower precision is allowed. So it is allowed,
and taken back if the products are in fact less precise than float32. Fused attention is slower than plain products for
a few dozen tokens.
"""

import torch
from timm.layers import set_fused_attn

TOLERANCE = 1e-5  # of the largest entry; products of bfloat16 numbers are a hundred times worse


def use_fast_kernels() -> None:
    """Change this process for good: for a process of its own."""
    set_fused_attn(False)
    settings = getattr(torch.backends.mkldnn, "matmul", None)  # torch 2.9 or newer
    if settings is None:
        return
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    if not _is_precise():
        settings.fp32_precision = before


def _is_precise() -> bool:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 256, 256, generator=generator)
    exact = a.double() @ b.double()
    return ((a @ b).double() - exact).abs().max() <= TOLERANCE * exact.abs().max()
