"""Rounding to 8 bits of mantissa."""

from mjp.privacy.defence import Defence

DEFENCE = Defence(
    name="bf16",
    help="rounded to bfloat16",
    order=50,
    perturb=lambda tensors, _, __: {name: t.bfloat16().to(t.dtype) for name, t in tensors.items()},
)
