"""Where the guarantee ends: how much of the order of masked patches a gradient holds outside of its conditions.

The order is not in the gradient of one step in float32 while nothing random happens to single tokens. Rounding to
bfloat16 depends on the order in which numbers are added; token dropout drops other patches after another jigsaw.
"""

from typing import Any

import timm
import torch
from torch import Tensor

from mjp.evaluation.guarantees import Guarantee, gradient_change
from mjp.method.config import MJPConfig
from mjp.method.model import MJP
from mjp.method.plan import plan_from_mask

RATE = 0.1  # of whatever is dropped
LIMITS: dict[str, tuple[dict[str, float], bool, str]] = {  # arguments of timm, autocast to bfloat16, meaning
    "drop_path": ({"drop_path_rate": RATE}, False, f"stochastic depth {RATE:g}, which drops no single tokens"),
    "bf16": ({}, True, "bfloat16 autocast"),
    "proj_drop": ({"proj_drop_rate": RATE}, False, f"dropout {RATE:g} inside the blocks (proj_drop)"),
    "pos_drop": ({"pos_drop_rate": RATE}, False, f"dropout {RATE:g} on the tokens (pos_drop)"),
}


def measure_limits(name: str, config: MJPConfig, picture: Tensor, *, seed: int) -> dict[str, Guarantee]:
    """The relative change of the gradient when masked patches change order, for every entry of LIMITS.

    Empty for models that take none of these arguments.
    """
    figures = {}
    for limit, (arguments, autocast, meaning) in LIMITS.items():
        model = _training_model(name, config, arguments, seed)
        if model is None:
            return {}
        plan = model.sample_plan(picture, torch.Generator().manual_seed(seed))
        reordered = plan_from_mask(plan.mask, plan.grid, generator=torch.Generator().manual_seed(seed + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast), torch.random.fork_rng(devices=[]):
            change = gradient_change(model, picture, plan, reordered, seed=seed)
        figures[f"order_in_gradient_{limit}"] = Guarantee(change, f"the same with {meaning}")
    return figures


def _training_model(name: str, config: MJPConfig, arguments: dict[str, Any], seed: int) -> MJP | None:
    """A randomly initialised model in training mode; None if timm has no such argument for it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return MJP(timm.create_model(name, **arguments), config).train()
        except TypeError:
            return None
