"""What an attack may need: how to see whether it is there, and what to say when it is not."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from mjp.privacy.server.first_block import WEIGHT, has_plain_mlp
from mjp.privacy.server.view import Refused, View


class Need(NamedTuple):
    present: Callable[[View], bool]
    missing: str  # {batch}: pictures in the update
    reason: str  # why an attack cannot do without


def require(view: View, *needs: str) -> None:
    """Refuse, with all the reasons at once, when something is missing."""
    missing = [NEEDS[name] for name in needs if not NEEDS[name].present(view)]
    if missing:
        reasons = "; ".join(f"{need.missing}, but {need.reason}" for need in missing)
        raise Refused(reasons.format(batch=view.info.batch))


def _informative(name: str) -> Callable[[View], bool]:
    """Whether a gradient is in the update and not all zero."""
    return lambda view: name in view.gradients and bool(view.gradients[name].any())


def _has_norm(view: View) -> bool:
    norm_first = isinstance(view.vit.blocks[0].norm1, torch.nn.LayerNorm)
    return norm_first and isinstance(view.vit.norm_pre, torch.nn.Identity)


NEEDS = {
    "one": Need(
        lambda view: view.info.batch == 1,
        "the update is of {batch} pictures",
        "it takes the gradient of one picture apart",
    ),
    "several": Need(
        lambda view: view.info.batch > 1,
        "the update is of one picture",
        "it takes several pictures apart",
    ),
    "step": Need(
        lambda view: view.info.steps == 1,
        "the update is of several local steps with a jigsaw each",
        "it takes the mask of one step apart",
    ),
    "projection": Need(
        _informative("patch_embed.proj.weight"),
        "the update lacks the gradient of patch_embed.proj.weight, or it is zero",
        "the gradient of the patch projection holds the pixels",
    ),
    "positions": Need(
        _informative("pos_embed"),
        "the update lacks the gradient of pos_embed (frozen, withheld, zero, or the model has none)",
        "the gradient of the position table says how the patches are mixed",
    ),
    "values": Need(
        lambda view: view.vit.pos_embed is not None and bool(view.table.any()),
        "the model has no position embeddings",
        "the public values of the position table tell the patches apart",
    ),
    "qkv": Need(
        _informative("blocks.0.attn.qkv.weight"),
        "the update lacks the gradient of blocks.0.attn.qkv.weight, or it is zero",
        "the gradient of the first attention layer spans the tokens",
    ),
    "rounds": Need(
        lambda view: bool(view.others),
        "there is only one update of this picture",
        "it compares updates of several rounds",
    ),
    "mlp": Need(
        lambda view: has_plain_mlp(view) and _informative(WEIGHT)(view),
        "the update lacks the gradient of blocks.0.mlp.fc2.weight, or it is zero, or that block is not a plain one",
        "the gradient of the first MLP spans its activations",
    ),
    "unknown": Need(
        lambda view: view.model.unknown is not None,
        "the model has no E_unk",
        "it is made for masked position embeddings (E_unk)",
    ),
    "norm": Need(
        _has_norm,
        "the first block of this model has no LayerNorm",
        "it is for a first block with LayerNorm, as timm builds it",
    ),
    "no_norm": Need(
        lambda view: isinstance(view.vit.blocks[0].norm1, torch.nn.Identity),
        "the first block of this model has a LayerNorm",
        "it is for a first block without LayerNorm and residual connection",
    ),
}
