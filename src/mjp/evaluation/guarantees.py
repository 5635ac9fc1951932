"""What MJP promises, measured on a network and a picture. None of it depends on training."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.method.plan import Plan, plan_from_mask
from mjp.method.shuffle import shuffle_image, shuffle_tokens


class Guarantee(NamedTuple):
    value: float
    meaning: str


def measure_guarantees(model: MJP, picture: Tensor, *, seed: int) -> dict[str, Guarantee]:
    """Six guarantees of a model in eval mode on a (1, 3, H, W) picture; of a variant that hides positions."""
    plan = model.sample_plan(picture)
    reordered = plan_from_mask(plan.mask, plan.grid, generator=torch.Generator().manual_seed(seed + 1))
    keeping = MJP(model.unwrap(), variant("E", ratio=model.config.ratio)).eval()
    off, inverse, paths = _differences(model, picture, plan)
    return {
        "masked_patches": Guarantee(
            float(plan.mask.sum()), f"patches masked, of ⌊{model.config.ratio:g} · {plan.mask.shape[1]}⌋"
        ),
        "off_difference": Guarantee(off, "largest difference to timm's own logits without a plan (0 = bit for bit)"),
        "inverse_difference": Guarantee(inverse, "largest difference after shuffle and inverse"),
        "path_difference": Guarantee(paths, "relative difference, shuffled tokens to embedded shuffled pixels"),
        "order_in_gradient": Guarantee(
            gradient_change(model, picture, plan, reordered),
            "relative change of the gradient when masked patches change order, with E_unk",
        ),
        "order_in_gradient_without_unknown": Guarantee(
            gradient_change(keeping, picture, plan, reordered),
            "the same without E_unk (positions kept): the order is in the gradient",
        ),
    }


@torch.no_grad()
def _differences(model: MJP, picture: Tensor, plan: Plan) -> tuple[float, float, float]:
    """To timm without a plan; after shuffle and inverse; between shuffling tokens and shuffling pixels."""
    backbone: Any = model.unwrap()
    cell = model.adapter.cell
    shuffled = shuffle_image(picture, plan, cell)
    restored = shuffle_image(shuffled, plan.inverted(), cell)
    tokens = shuffle_tokens(backbone.patch_embed(picture).flatten(1, -2), plan)
    pixels = backbone.patch_embed(shuffled).flatten(1, -2)
    off = (model(picture) - backbone(picture)).abs().max().item()
    return off, (restored - picture).abs().max().item(), _relative(tokens, pixels)


def gradient_change(model: nn.Module, picture: Tensor, plan: Plan, reordered: Plan, *, seed: int = 0) -> float:
    """The relative change of the gradient between two plans; whatever else is random is the same for both."""
    return _relative(_gradient(model, picture, plan, seed), _gradient(model, picture, reordered, seed))


def _gradient(model: nn.Module, picture: Tensor, plan: Plan, seed: int) -> Tensor:
    """The gradient of one training step, all parameters in one vector."""
    torch.manual_seed(seed)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = cross_entropy(model(picture, plan).logits, torch.tensor([0]))
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])


def _relative(a: Tensor, b: Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()
