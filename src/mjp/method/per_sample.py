"""One gradient per image: what differentially private training clips, and what a privacy audit examines.

With Opacus, create the module in grad_sample_mode "no_op" and hand the gradients over:

    for name, gradient in per_sample_gradients(model, images, labels).items():
        model.get_parameter(name).grad_sample = gradient
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from mjp.common.errors import InputError
from mjp.method.plan import Plan, check_plan

if TYPE_CHECKING:
    from mjp.method.model import MJP


def per_sample_gradients(
    model: "MJP",
    images: Tensor,
    labels: Tensor,
    plan: Plan | None = None,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    chunk_size: int | None = None,
) -> dict[str, Tensor]:
    """The gradient of loss + λ·DAL for every image on its own.

    Args:
        model: A wrapped model without batch normalisation.
        images: (B, C, H, W).
        labels: (B,).
        plan: The jigsaw of the batch; by default the model draws one, as in training.
        loss: Takes (1, classes) logits and (1,) labels.
        chunk_size: How many images are computed at a time, which bounds the memory; all of them by default.

    Returns:
        Gradients of shape (B, *parameter.shape) by parameter name, for the parameters that require one.
    """
    plan = model.sample_plan(images) if plan is None else plan
    check_plan(plan, len(images), model.grid(images), images.device)
    if len(labels) != len(images):
        raise InputError(f"there are {len(labels)} labels for {len(images)} images")
    if any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise InputError("batch normalisation mixes the images of a batch: use a model with layer or group norm")
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def objective(parameters: dict[str, Tensor], image: Tensor, label: Tensor, *rows: Tensor) -> Tensor:
        mask, permutation, inverse, *pixels = (row.unsqueeze(0) for row in rows)
        single = Plan(mask, permutation, inverse, plan.grid, plan.budget, pixels[0] if pixels else None)
        out = functional_call(model, parameters, (image.unsqueeze(0), single))
        return loss(out.logits, label.unsqueeze(0)) + model.config.localize_weight * out.dal

    rows = (*plan[:3], *(() if plan.pixels is None else (plan.pixels,)))
    axes = (None, 0, 0, *(0 for _ in rows))
    gradients = vmap(grad(objective), in_dims=axes, randomness="different", chunk_size=chunk_size)
    with sdpa_kernel(SDPBackend.MATH):  # the fused CPU attention has no batching rule
        return gradients(parameters, images, labels, *rows)
