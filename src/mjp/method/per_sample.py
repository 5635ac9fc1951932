"""One gradient per image: what differentially private training clips, and what a privacy audit looks at.

With Opacus, create the engine's module in mode "no_op" and hand the gradients over:

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
    """Gradient of loss + λ·DAL for every image on its own: {parameter name: (B, *shape)}.

    `loss` takes (1, classes) logits and (1,) labels. Without a plan the model draws one, as in training. `chunk_size`
    bounds the memory: that many images at a time.
    """
    drawn = model.sample_plan(images) if plan is None else plan
    check_plan(drawn, len(images), model.grid(images), images.device)
    if len(labels) != len(images):
        raise InputError(f"there are {len(labels)} labels for {len(images)} images")
    if any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise InputError("batch normalisation mixes the images of a batch: no gradient belongs to one image alone")
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def objective(parameters: dict[str, Tensor], image: Tensor, label: Tensor, *rows: Tensor) -> Tensor:
        mask, permutation, inverse, *pixels = (row.unsqueeze(0) for row in rows)
        own = Plan(mask, permutation, inverse, drawn.grid, drawn.budget, pixels[0] if pixels else None)
        out = functional_call(model, parameters, (image.unsqueeze(0), own))
        return loss(out.logits, label.unsqueeze(0)) + model.config.localize_weight * out.dal

    rows = (*drawn[:3], *(() if drawn.pixels is None else (drawn.pixels,)))
    axes = (None, 0, 0, *(0 for _ in rows))
    each = vmap(grad(objective), in_dims=axes, randomness="different", chunk_size=chunk_size)
    with sdpa_kernel(SDPBackend.MATH):  # the fused CPU attention has no batching rule
        return each(trained, images, labels, *rows)
