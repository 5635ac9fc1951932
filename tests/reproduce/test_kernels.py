"""The kernels of a cell's process: changed in a process of its own, never less precise than float32."""

import subprocess
import sys

PROGRAM = """
import torch
from mjp.reproduce import kernels
from timm.layers import use_fused_attn

{change}
kernels.use_fast_kernels()
generator = torch.Generator().manual_seed(1)
a, b = torch.randn(2, 300, 300, generator=generator)
exact = a.double() @ b.double()
error = ((a @ b).double() - exact).abs().max() / exact.abs().max()
print(bool(error < 1e-5), bool(use_fused_attn()), torch.backends.mkldnn.matmul.fp32_precision)
"""


def run(change: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM.format(change=change)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_products_stay_precise() -> None:
    precise, fused, _ = run("")
    assert (precise, fused) == ("True", "False")


def test_lower_precision_is_taken_back_where_it_is_real() -> None:
    assert run("kernels._is_precise = lambda: False")[2] != "bf16"
