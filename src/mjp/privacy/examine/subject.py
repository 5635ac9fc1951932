"""The public model of an audit."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mjp.models import Subject, find_model
from mjp.privacy.arrays import class_count, plain_tensors


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
    counts = [class_count(source) for source in (named or {}, plain_tensors(update or {}))]
    classes = next((count for count in counts if count), None)
    build: dict[str, Any] = {} if classes is None else {"num_classes": classes}
    if size is not None:
        build["img_size"] = size
    return find_model(text, random_weights=seed, weights=named, **build)
