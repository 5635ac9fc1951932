"""What an attacker can look at: the public model, an update, and a prior. Gradients are found by parameter name.

Notation, for one picture and a ViT: X (N, P) its patches as rows of P = 3·p·p normalised pixels; W (D, P) the patch
projection; E (N, D) the position table; G (N, D) = ∂L/∂(tokens of the patches), whose unmasked rows are ∂L/∂E.
"""

import copy
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from timm.models import VisionTransformer
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.model import MJP
from mjp.method.plan import identity_plan
from mjp.pictures.patches import patchify, unpatchify
from mjp.pictures.tensors import denormalise, normalise
from mjp.privacy.client.defences import parse
from mjp.privacy.server.prior import Prior
from mjp.privacy.update import Update, gradients_of, plain_name

# what an attack may need → why it cannot do without
NEEDS = {
    "one": "it takes the gradient of one picture apart",
    "step": "it takes the mask of one step apart",
    "projection": "the gradient of the patch projection holds the pixels",
    "positions": "the gradient of the position table says how the patches are mixed",
    "values": "the public values of the position table tell the patches apart",
    "qkv": "the gradient of the first attention layer spans the tokens",
    "unknown": "it is made for masked position embeddings (E_unk)",
    "norm": "it is for a first block with LayerNorm, as timm builds it",
    "no_norm": "it is for a first block without LayerNorm and residual connection",
}


SURE = 5  # standard deviations


class Refused(InputError):
    """An attack that cannot run on what it was given, and why."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much an attack that searches may spend, and what it searches for."""

    steps: int = 200
    restarts: int = 1
    lr: float = 0.02
    objective: Literal["cosine", "l2"] = "cosine"
    tv: float = 1.0
    edges: float = 1.0
    seed: int = 0


def server_seed(seed: int) -> int:
    """The attacker's seed in a run with this one: not the client's own, from which its jigsaw could be drawn again."""
    return int.from_bytes(hashlib.sha256(f"server {seed}".encode()).digest()[:7], "big")


@dataclass(frozen=True)
class Reconstruction:
    """What an attack believes the pictures to be, and what it can tell about its own certainty."""

    pictures: Tensor  # (B, 3, H, W) in [0, 1]
    facts: dict[str, Any]  # condition number, residual, dimensions left open, ...: numbers and short texts


class View:
    """Everything an attack may use. Pictures, labels and plan of the client are not in here, nor can they be."""

    def __init__(self, update: Update, model: MJP, prior: Prior, effort: Effort | None = None) -> None:
        if not isinstance(model.model, VisionTransformer):
            raise Refused(f"the attacks know timm's ViT and DeiT, not {type(model.model).__name__}")
        parse(update.facts.defence)  # a text that means nothing is refused here, not by some attack
        self.model, self.facts, self.prior = model, update.facts, prior
        self.effort = effort or Effort()
        self.gradients = {name: g.double() for name, g in gradients_of(update, model).items()}
        self.resolution = self._resolution(update)
        self.vit: Any = model.model
        rows, columns = (s // c for s, c in zip(self.facts.size, self.patch, strict=True))
        if (rows, columns) != tuple(self.vit.patch_embed.grid_size):
            raise Refused(
                f"pictures of {self.facts.size} give a grid of {(rows, columns)}, the model was built for "
                f"{tuple(self.vit.patch_embed.grid_size)}: state the size that the client used"
            )
        self.grid = (rows, columns)

    def require(self, *needs: str) -> None:
        """Refuse, with all the reasons at once, when something is not there."""
        absent = [need for need in needs if not self._has(need)]
        if absent:
            reasons = "; ".join(f"{_ABSENT[need]}, but {NEEDS[need]}" for need in absent)
            raise Refused(reasons.format(batch=self.facts.batch))

    def _has(self, need: str) -> bool:
        block = self.vit.blocks[0]
        return {
            "one": lambda: self.facts.batch == 1,
            "step": lambda: self.facts.steps == 1,
            "projection": lambda: self._tells("patch_embed.proj.weight"),
            "positions": lambda: self._tells("pos_embed"),
            "values": lambda: self.vit.pos_embed is not None and bool(self.table.any()),
            "qkv": lambda: self._tells("blocks.0.attn.qkv.weight"),
            "unknown": lambda: self.model.unknown is not None,
            "norm": lambda: (
                isinstance(block.norm1, torch.nn.LayerNorm) and isinstance(self.vit.norm_pre, torch.nn.Identity)
            ),
            "no_norm": lambda: isinstance(block.norm1, torch.nn.Identity),
        }[need]()

    def _tells(self, name: str) -> bool:
        return name in self.gradients and bool(self.gradients[name].any())

    def _resolution(self, update: Update) -> float:
        """Relative error of the gradients that the number format alone explains; in weights they are small changes."""
        format_ = max(torch.finfo(tensor.dtype).eps for tensor in update.tensors.values())
        if self.facts.kind == "gradient":
            return format_
        weights = torch.stack([tensor.double().norm() for tensor in update.tensors.values()]).norm()
        moved = torch.stack([gradient.norm() for gradient in self.gradients.values()]).norm()
        return min(1.0, format_ * float(weights / (moved * self.facts.steps * self.facts.lr)))

    @property
    def patch(self) -> tuple[int, int]:
        height, width = self.vit.patch_embed.patch_size
        return height, width

    @cached_property
    def weight(self) -> Tensor:
        """W (D, P)."""
        return self.vit.patch_embed.proj.weight.detach().double().flatten(1)

    @cached_property
    def bias(self) -> Tensor:
        bias = self.vit.patch_embed.proj.bias
        return self.weight.new_zeros(len(self.weight)) if bias is None else bias.detach().double()

    @cached_property
    def table(self) -> Tensor:
        """E (N, D), the position embeddings of the patches."""
        table = self.model.position_table()
        if table is None:
            return self.weight.new_zeros(self.grid[0] * self.grid[1], len(self.weight))
        return table[0].detach().double()

    @cached_property
    def projection(self) -> Tensor:
        """∂L/∂W (D, P) = Gᵀ X."""
        return self.gradients["patch_embed.proj.weight"].flatten(1)

    @cached_property
    def positions(self) -> Tensor:
        """∂L/∂E (N, D) without the part of the localization loss, which is known: it depends on the mask alone."""
        gradient = self.gradients["pos_embed"][0, -len(self.table) :]
        if self.model.localizer is None or not self.facts.localize_weight:
            return gradient
        dal = self._dal_gradients(_dead_rows(gradient))
        return gradient - self._clipping(dal) * dal["pos_embed"]

    @cached_property
    def mask(self) -> Tensor:
        """(N,) the patches that share E_unk: their rows of ∂L/∂E are zero, the mask of a single picture is public."""
        if self.model.unknown is None:
            return torch.zeros(len(self.table), dtype=torch.bool)
        return _dead_rows(self.gradients["pos_embed"][0, -len(self.table) :])

    @cached_property
    def unknown(self) -> Tensor:
        """∂L/∂E_unk (D,) = sum of the masked rows of G."""
        return self.gradients.get("unknown", self.table.new_zeros(self.table.shape[1]))

    def _dal_gradients(self, mask: Tensor) -> dict[str, Tensor]:
        """λ ∂DAL/∂E (N, D), as pos_embed, and of the localization head, from public weights and the public mask.

        FedAvg: the mean over the local steps, taken as equally long and straight.
        """
        model = copy.deepcopy(self.model)
        parameters = {plain_name(name): p for name, p in model.named_parameters()}
        wanted = {n: p for n, p in parameters.items() if n == "pos_embed" or n.startswith("localizer.")}
        totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in wanted.items()}
        plan = identity_plan(1, self.grid)._replace(mask=mask.unsqueeze(0), budget=len(mask))
        for _ in range(self.facts.steps):
            dal = model.localization(plan)
            if dal is None:
                break
            found = torch.autograd.grad(dal, list(wanted.values()), materialize_grads=True)
            for name, gradient in zip(wanted, found, strict=True):
                totals[name] += self.facts.localize_weight * gradient.double() / self.facts.steps
            with torch.no_grad():
                for name, mean in self.gradients.items():
                    parameters[name].sub_(self.facts.lr * mean.to(parameters[name]))
        return {**totals, "pos_embed": totals["pos_embed"][0, -len(self.table) :]}

    def _clipping(self, dal: dict[str, Tensor]) -> float:
        """The factor c ≤ 1 by which clipping shortened the update, and DAL's part with it.

        The localization head has a gradient from DAL alone, which is known: c is the slope of a line through the
        origin. 1 if the head has no parameters, and unless another factor is better beyond chance. After several local
        steps a smaller c also drops what their straight line gets wrong.
        """
        heads = [name for name in dal if name in self.gradients and name != "pos_embed"]
        if not heads:
            return 1.0
        seen, known = (torch.cat([of[name].flatten() for name in heads]) for of in (self.gradients, dal))
        known = known * (seen != 0)  # pruned numbers say nothing about the others
        energy = known.square().sum()
        if not energy > 0:
            return 1.0
        factor = (seen @ known / energy).clamp(0, 1)
        error = (seen - factor * known)[known != 0].square().mean() / energy  # of the factor, squared
        return float(factor) if (1 - factor).square() > SURE**2 * error else 1.0

    def picture(self, patches: Tensor) -> Tensor:
        """(N, P) normalised patches → (3, H, W) in [0, 1] pixels, not clipped."""
        return denormalise(unpatchify(patches, self.grid, self.patch), self.facts.mean, self.facts.std)

    def patches(self, picture: Tensor) -> Tensor:
        """(3, H, W) in [0, 1] → (N, P) normalised patches."""
        return patchify(normalise(picture, self.facts.mean, self.facts.std), self.patch)

    def reconstruction(self, patches: Tensor, **facts: Any) -> Reconstruction:
        """Clip to what a picture can be, and refuse to present numbers that are none."""
        picture = self.picture(patches)
        if not bool(torch.isfinite(picture).all()):
            raise Refused("the equations have no finite solution")
        spread = (float(picture.min()), float(picture.max()))  # far from [0, 1] after another normalisation than stated
        return Reconstruction(picture.clamp(0, 1).unsqueeze(0), {**facts, "range": spread})


_ABSENT = {
    "one": "the update is of {batch} pictures",
    "step": "the update is of several local steps with a jigsaw each",
    "projection": "the update lacks the gradient of patch_embed.proj.weight, or it is zero",
    "positions": "the update lacks the gradient of pos_embed (frozen, withheld, zero, or the model has none)",
    "values": "the model has no position embeddings",
    "qkv": "the update lacks the gradient of blocks.0.attn.qkv.weight, or it is zero",
    "unknown": "the model has no E_unk",
    "norm": "the first block of this model has no LayerNorm",
    "no_norm": "the first block of this model has a LayerNorm",
}


def _dead_rows(gradient: Tensor) -> Tensor:
    """Rows that are zero, or, under noise, so much shorter than the others that they hold nothing else.

    The two groups are split where the sorted norms jump most; a jump below a factor of 3 is no split.
    """
    norms = gradient.norm(dim=1)
    if bool((norms == 0).any()):
        return norms == 0
    ordered = norms.sort().values
    jumps = ordered[1:] / ordered[:-1]
    largest = int(jumps.argmax())
    if jumps[largest] < 3:
        return torch.zeros_like(norms, dtype=torch.bool)
    return norms <= ordered[largest]
