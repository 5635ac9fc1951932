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
from timm.models import Eva, VisionTransformer
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.parameter_names import plain_name
from mjp.method.model import MJP
from mjp.method.plan import identity_plan
from mjp.pictures.patches import patchify, unpatchify
from mjp.pictures.tensors import denormalise, normalise
from mjp.privacy.combination import parse
from mjp.privacy.server.prior import Prior
from mjp.privacy.update import Update, gradients_of

MIN_DEVIATIONS = 5  # by which a clipping factor must be better than 1 to be believed


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
    details: dict[str, Any]  # condition number, residual, dimensions left open, ...: numbers and short texts


class View:
    """Everything an attack may use. The client's pictures, labels and plan are not in here and cannot be reached."""

    def __init__(self, update: Update, model: MJP, prior: Prior, effort: Effort | None = None) -> None:
        if not isinstance(model.model, VisionTransformer | Eva):
            raise Refused(f"the attacks know timm's ViT, DeiT and Eva, not {type(model.model).__name__}")
        parse(update.info.defence)  # a meaningless text is refused here, not by some attack
        self.model = model
        self.info = update.info
        self.prior = prior
        self.effort = effort or Effort()
        self.others: tuple[View, ...] = ()  # what the server has received besides, perhaps of other pictures
        self.gradients = {name: g.double() for name, g in gradients_of(update, model).items()}
        self.resolution = self._resolution(update)
        self.vit: Any = model.model
        rows, columns = (s // c for s, c in zip(self.info.size, self.patch, strict=True))
        if (rows, columns) != tuple(self.vit.patch_embed.grid_size):
            raise Refused(
                f"pictures of {self.info.size} give a grid of {(rows, columns)}, the model was built for "
                f"{tuple(self.vit.patch_embed.grid_size)}: state the size that the client used"
            )
        self.grid = (rows, columns)

    def _resolution(self, update: Update) -> float:
        """Relative error of the gradients that the number format alone explains; in weights they are small changes."""
        rounding = _rounding(list(update.tensors.values()))
        if self.info.kind == "gradient":
            return rounding
        weights = torch.stack([weight.detach().double().norm() for weight in self.model.parameters()]).norm()
        moved = torch.stack([gradient.norm() for gradient in self.gradients.values()]).norm()
        return min(1.0, rounding * float(weights / (moved * self.info.scale)))

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
        """∂L/∂E (N, D) without the localization loss, whose part is public: it depends on the mask alone."""
        gradient = self.gradients["pos_embed"][0, -len(self.table) :]
        if self.model.localizer is None or not self.info.localize_weight:
            return gradient
        dal = self._dal_gradients(self.mask)
        return gradient - self._clipping(dal) * dal["pos_embed"]

    @cached_property
    def mask(self) -> Tensor:
        """(N,) the patches that share E_unk: their rows of ∂L/∂E are zero, the mask of a single picture is public.

        Where ∂L/∂E_unk is zero, short rows belong to patches that the network hardly looks at: nobody used E_unk.
        """
        if self.model.unknown is None:
            return torch.zeros(len(self.table), dtype=torch.bool)
        gradient = self.gradients["pos_embed"][0, -len(self.table) :]
        return _dead_rows(gradient) if bool(self.unknown.any()) else (gradient == 0).all(1)

    @cached_property
    def unknown(self) -> Tensor:
        """∂L/∂E_unk (D,) = sum of the masked rows of G."""
        return self.gradients.get("unknown", self.table.new_zeros(self.table.shape[1]))

    def _dal_gradients(self, mask: Tensor) -> dict[str, Tensor]:
        """λ ∂DAL/∂E (N, D), as pos_embed, and of the localization head, from public weights and the public mask.

        FedAvg: the mean over the local steps, taken as equally long and straight.
        """
        model = copy.deepcopy(self.model) if self.info.steps > 1 else self.model  # a single step moves nothing
        parameters = {plain_name(name): p for name, p in model.named_parameters()}
        trained = {n: p for n, p in parameters.items() if n == "pos_embed" or n.startswith("localizer.")}
        totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in trained.items()}
        plan = identity_plan(1, self.grid)._replace(mask=mask.unsqueeze(0), budget=len(mask))
        for step in range(1, self.info.steps + 1):
            dal = model.localization(plan)
            if dal is None:
                break
            gradients = torch.autograd.grad(dal, list(trained.values()), materialize_grads=True)
            for name, gradient in zip(trained, gradients, strict=True):
                totals[name] += self.info.localize_weight * gradient.double() / self.info.steps
            if step == self.info.steps:
                break
            with torch.no_grad():
                for name, mean in self.gradients.items():
                    parameters[name].sub_(self.info.lr * mean.to(parameters[name]))
        return {**totals, "pos_embed": totals["pos_embed"][0, -len(self.table) :]}

    def _clipping(self, dal: dict[str, Tensor]) -> float:
        """The factor c by which clipping, or the scale of the loss, changed the update, and DAL's part with it.

        The localization head has a gradient from DAL alone, which is public: c is the slope of a line through the
        origin. It is 1 if the head has no parameters, or if no other factor is better beyond chance. After several
        local steps a smaller c also removes errors of the straight-line approximation.
        """
        heads = [name for name in dal if name in self.gradients and name != "pos_embed"]
        if not heads:
            return 1.0
        received, expected = (torch.cat([part[name].flatten() for name in heads]) for part in (self.gradients, dal))
        expected = expected * (received != 0)  # pruned numbers say nothing about the others
        energy = expected.square().sum()
        if not energy > 0:
            return 1.0
        factor = received @ expected / energy
        if self.info.kind == "delta":  # of any scale, and of either sign
            return float(factor)
        if self.info.kind == "gradient":  # both signs of a gradient are tried; weights may be swapped
            factor = factor.clamp(min=0)  # above 1: a summed loss, or the loss scale of mixed precision
        error = (received - factor * expected)[expected != 0].square().mean() / energy  # of the factor, squared
        return float(factor) if (1 - factor).square() > MIN_DEVIATIONS**2 * error else 1.0

    def picture(self, patches: Tensor) -> Tensor:
        """(N, P) normalised patches → (3, H, W) in [0, 1] pixels, not clipped."""
        return denormalise(unpatchify(patches, self.grid, self.patch), self.info.mean, self.info.std)

    def patches(self, picture: Tensor) -> Tensor:
        """(3, H, W) in [0, 1] → (N, P) normalised patches."""
        return patchify(normalise(picture, self.info.mean, self.info.std), self.patch)

    def reconstruction(self, patches: Tensor, **details: Any) -> Reconstruction:
        """Clip to the range of a picture; refuse numbers that are not finite."""
        picture = self.picture(patches)
        if not bool(torch.isfinite(picture).all()):
            raise Refused("the equations have no finite solution")
        spread = (float(picture.min()), float(picture.max()))  # far from [0, 1] after another normalisation than stated
        return Reconstruction(picture.clamp(0, 1).unsqueeze(0), {**details, "range": spread})


def _rounding(tensors: list[Tensor]) -> float:
    """The relative step between numbers, also of those that were rounded to a short format and are kept in a longer."""
    for dtype in (torch.bfloat16, torch.float16):
        if all(torch.equal(tensor.to(dtype).to(tensor.dtype), tensor) for tensor in tensors):
            return torch.finfo(dtype).eps
    return max(torch.finfo(tensor.dtype).eps for tensor in tensors)


def _dead_rows(gradient: Tensor) -> Tensor:
    """Rows that are zero, or, under noise, so much shorter than the others that they hold only noise.

    The two groups are split where the sorted norms jump most; a jump by less than a factor of 3 does not count.
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
