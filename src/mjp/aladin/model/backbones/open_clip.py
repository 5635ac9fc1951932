"""The image tower of a pretrained pair of open_clip (mjp[clip]); its text tower is the text encoder open_clip."""

from mjp.aladin.model.clip_pair import ImageTower, load_pair
from mjp.aladin.model.vision import Vision
from mjp.common.errors import InputError


def load(variant: str, size: int | None) -> Vision:
    pair = load_pair(variant)
    if size is not None and (size, size) != pair.size:
        raise InputError(f"open_clip:{variant} takes pictures of {pair.size}: leave the image size unset")
    return Vision(f"open_clip:{variant}", ImageTower(pair.model.visual), pair.size, pair.mean, pair.std)
