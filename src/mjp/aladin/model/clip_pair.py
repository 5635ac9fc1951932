"""A pretrained pair of open_clip (mjp[clip]): its image tower, its text tower, and the tokens of both.

    open_clip:NAME/TAG     as open_clip:ViT-B-32/laion2b_s34b_b79k; open_clip.list_pretrained() lists them. The weights
                           are downloaded once.

The class token of a picture is the pair's own embedding of it, and so is that of a text: without training they are the
vectors to search by. Only pairs of the class CLIP give the tokens of both towers (SigLIP and CoCa do not).
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mjp.common.errors import InputError, first_line

PREFIX = "open_clip:"


class Pair(NamedTuple):
    """Both towers in eval mode, and how their input is made."""

    model: Any
    tokenizer: Any
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]


class ImageTower(nn.Module):
    """The image tower: images (B, 3, H, W) into the pair's embedding and its patches (B, R, D), equally wide."""

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual: Any = visual

    def summary_and_patches(self, images: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.visual.forward_intermediates(images, indices=1, normalize_intermediates=True)
        return same_width(outputs["image_features"], outputs["image_intermediates"][-1].flatten(2).transpose(1, 2))

    @property
    def embedding(self) -> int:
        """E, the width of the pair's embedding."""
        return self.visual.output_dim


@lru_cache(maxsize=1)
def load_pair(variant: str) -> Pair:
    """The pair NAME/TAG."""
    name, _, tag = variant.partition("/")
    if not name or not tag:
        raise InputError(f"{PREFIX}{variant} is not complete: write open_clip:NAME/TAG, as open_clip:ViT-B-32/openai")
    try:
        import open_clip
    except ImportError as error:
        raise InputError("a pretrained pair needs open_clip: pip install 'mjp[clip]'") from error
    if name not in open_clip.list_models():
        raise InputError(f"open_clip has no model {name}: open_clip.list_models() lists them")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        raise InputError(f"open_clip has no weights {tag} of {name}: choose from {', '.join(tags) or 'another model'}")
    try:
        model: Any = open_clip.create_model(name, pretrained=tag, require_pretrained=True)
        tokenizer = open_clip.get_tokenizer(name)
    except Exception as error:  # requests, hub and file errors of all kinds
        raise InputError(
            f"the weights {tag} of {name} could not be downloaded: connect to the network once, they stay in the hub's "
            f"cache ({first_line(error)})"
        ) from error
    return make_pair(model, tokenizer)


def make_pair(model: Any, tokenizer: Any) -> Pair:
    """A pair from a model of open_clip; refused if a tower does not give its tokens."""
    import open_clip

    if type(model) is not open_clip.CLIP or not hasattr(model.visual, "forward_intermediates"):
        raise InputError(
            f"a {type(model).__name__} does not give the tokens of both towers: choose a ViT of class CLIP"
        )
    size = model.visual.image_size
    height, width = size if isinstance(size, tuple) else (size, size)
    config = getattr(model.visual, "preprocess_cfg", {})
    mean, std = (config.get("mean", open_clip.OPENAI_DATASET_MEAN), config.get("std", open_clip.OPENAI_DATASET_STD))
    return Pair(model.eval(), tokenizer, (height, width), tuple(mean), tuple(std))


def same_width(embedding: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Both as wide as the wider one: zeros are added, which change neither lengths nor products."""
    width = max(embedding.shape[-1], tokens.shape[-1])
    return pad(embedding, (0, width - embedding.shape[-1])), pad(tokens, (0, width - tokens.shape[-1]))


@torch.no_grad()
def text_tokens(pair: Pair, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The pair's embedding (C, E) of texts, and the tokens (C, L, D) of their pieces."""
    outputs = pair.model.forward_intermediates(
        text=numbers, text_indices=1, normalize=False, normalize_intermediates=True
    )
    return outputs["text_features"], outputs["text_intermediates"][-1]
