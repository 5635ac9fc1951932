"""The public model of an audit."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mjp.common.parameter_names import plain_name
from mjp.models import Subject, find_model


def public_model(
    text: str,
    *,
    weights: Mapping[str, Tensor] | None = None,
    update: Mapping[str, Tensor] | None = None,
    size: tuple[int, int] | None = None,
    seed: int | None = None,
) -> Subject:
    """The model that `text` names (see find_model), with `weights` if there are any.

    A model that is built for the occasion gets as many classes as the weights, or else the update, have, and the size
    of the client's pictures. `seed`: of random weights for timm:NAME; None loads its pretrained ones.
    """
    named = None if weights is None else plain_tensors(weights)
    sources = (named or {}, plain_tensors(update or {}))
    bias = next((source["head.bias"] for source in sources if "head.bias" in source), None)
    build: dict[str, Any] = {} if bias is None else {"num_classes": bias.numel()}
    if size is not None:
        build["img_size"] = size
    return find_model(text, random_weights=seed, weights=named, **build)


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by their names in timm."""
    return {plain_name(name): tensor for name, tensor in tensors.items()}
