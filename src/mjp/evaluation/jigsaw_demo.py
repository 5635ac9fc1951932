"""`mjp jigsaw`: the poster and the guarantees on a randomly initialised timm ViT."""

from pathlib import Path
from typing import Any, cast

import timm
import torch
from PIL import Image
from torch import Tensor

from mjp.common.errors import InputError
from mjp.evaluation.guarantee_limits import measure_limits
from mjp.evaluation.guarantees import Guarantee, measure_guarantees
from mjp.evaluation.jigsaw_poster import draw_poster, original_side, tile_side
from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.pictures.crop import open_square
from mjp.pictures.landscape import landscape


def demonstrate(
    picture: Path | None, model_name: str, ratio: float, seed: int
) -> tuple[Image.Image, dict[str, Guarantee]]:
    """The poster of a picture (default: the synthetic landscape), and what was measured on the model."""
    if not timm.is_model(model_name):
        raise InputError(f"timm has no model {model_name!r}: timm.list_models() names them")
    config = variant("G", ratio=ratio, seed=seed)  # as J, on models without a table to localise too
    with torch.random.fork_rng(devices=[]):  # timm draws weights from torch's global generator
        torch.manual_seed(seed)
        model = MJP(timm.create_model(model_name), config).eval()
    image = _square(picture, cast(Any, model.unwrap()).patch_embed.img_size[0])
    side = tile_side(model.grid(image))
    tile, original = _square(picture, side), _square(picture, original_side(side))
    poster = draw_poster(tile, original, model.grid(image), seed=seed)
    limits = measure_limits(model_name, config, image, seed=seed)
    return poster, {**measure_guarantees(model, image, seed=seed), **limits}


def _square(path: Path | None, side: int) -> Tensor:
    return landscape(side) if path is None else open_square(path, side)
