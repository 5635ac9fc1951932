"""A plan is everything random about one jigsaw: which patches are masked and where each of them goes.

Plans are drawn outside the network, from one torch.Generator. So a plan can be replayed, sent along, or kept secret,
and the network that uses it is a pure function.

    plan = sample_plan(batch, grid, ratio, generator=generator)   →   shuffle_tokens(tokens, plan)   →   model(x, plan)
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.validate import aspect_range, number, pair, whole
from mjp.method.samplers import SAMPLERS, Law


class Plan(NamedTuple):
    """The jigsaws of a batch of images on one grid. Cells are numbered in reading order.

    Attributes:
        mask: (B, N) bool, True = masked.
        permutation: (B, N) int64: slot i receives the patch of slot permutation[i]; unmasked slots keep theirs.
        inverse: (B, N) int64, undoes the permutation.
        grid: Rows and columns (h, w), N = h·w.
        budget: No image has more masked cells than this; 0 means that nothing moves.
        pixels: (B, P·P) int64, for variant C (SPP) only: one order of pixels, shared by the patches of an image.
    """

    mask: Tensor
    permutation: Tensor
    inverse: Tensor
    grid: tuple[int, int]
    budget: int
    pixels: Tensor | None = None

    def inverted(self) -> "Plan":
        """The plan that puts every patch back in its place."""
        pixels = None if self.pixels is None else self.pixels.argsort(1)
        return self._replace(permutation=self.inverse, inverse=self.permutation, pixels=pixels)

    def to(self, device: torch.device | str) -> "Plan":
        """The same plan on another device."""
        mask, permutation, inverse = (t.to(device, non_blocking=True) for t in self[:3])
        pixels = None if self.pixels is None else self.pixels.to(device, non_blocking=True)
        return Plan(mask, permutation, inverse, self.grid, self.budget, pixels)


def sample_plan(
    batch: int,
    grid: tuple[int, int],
    ratio: float,
    *,
    generator: torch.Generator,
    device: torch.device | str | None = None,
    sampler: str = "blockwise",
    shared: bool = False,
    min_block: int = 8,
    aspect: tuple[float, float] = (0.3, 1 / 0.3),
    derangement: bool = False,
    probability: float = 1.0,
) -> Plan:
    """Draw a jigsaw for every image of a batch (Algorithm 1): mask ⌊ratio·N⌋ cells, permute the masked ones.

    The draw happens on the generator's device without a host synchronisation.

    Args:
        batch: Number of images B.
        grid: Rows and columns of cells (h, w), N = h·w.
        ratio: Share of the cells that is masked, γ.
        generator: The only source of randomness.
        device: Where the plan goes; by default it stays on the generator's device.
        sampler: "blockwise" (rectangles, exact budget), "reference" (the authors' law) or "uniform" (no blocks).
        shared: Give all images the same jigsaw.
        min_block: Smallest rectangle in cells, while the budget allows it.
        aspect: Smallest and largest height/width of a rectangle.
        derangement: Let no masked patch stay in place: they move along one random cycle. A single masked patch stays.
        probability: Chance that the batch is shuffled at all.

    Returns:
        A Plan with mask, permutation and inverse of shape (B, N).
    """
    batch, grid = whole("batch", batch, least=1), pair("grid", grid)
    probability = number("probability", probability, least=0, most=1)
    if sampler not in SAMPLERS:
        raise InputError(f"sampler {sampler!r} is unknown: choose one of {', '.join(SAMPLERS)}")
    check_generator(generator)
    law = Law(generator, whole("min_block", min_block, least=1), aspect_range(aspect))
    target = generator.device if device is None else _device(device)
    budget = mask_budget(number("ratio", ratio, least=0, most=1), grid[0] * grid[1])
    if budget == 0:
        return identity_plan(batch, grid, device=target)
    mask = SAMPLERS[sampler](1 if shared else batch, grid, budget, law)
    if probability < 1:
        mask = mask & (torch.rand((), generator=generator, device=generator.device) < probability)
    plan = _expanded(_permuted(mask, grid, budget, generator, derangement), batch)
    return plan if target == generator.device else plan.to(target)


def mask_budget(ratio: float, cells: int) -> int:
    """⌊ratio·cells⌋: how many cells a plan masks."""
    # the small term makes 0.29 of 100 cells 29: the product in floating point falls just short of it
    return math.floor(ratio * cells + 1e-9)


def plan_from_mask(
    mask: Tensor,
    grid: tuple[int, int],
    *,
    generator: torch.Generator,
    derangement: bool = False,
) -> Plan:
    """Permute the masked cells of a mask uniformly among themselves.

    Args:
        mask: (B, N) bool, True = masked, on the generator's device.
        grid: Rows and columns of cells (h, w), N = h·w.
        generator: The only source of randomness.
        derangement: Let no masked patch stay in place.
    """
    grid = pair("grid", grid)
    check_generator(generator)
    cells = grid[0] * grid[1]
    if mask.dtype != torch.bool or mask.ndim != 2 or mask.shape[1] != cells:
        raise InputError(f"mask must be bool of shape (batch, {cells}) for grid {tuple(grid)}, not {_describe(mask)}")
    return _permuted(mask, grid, cells, generator, derangement)


def _permuted(mask: Tensor, grid: tuple[int, int], budget: int, generator: torch.Generator, derangement: bool) -> Plan:
    """A plan for a mask of which no row has more than `budget` cells."""
    cells = mask.shape[1]
    index = torch.arange(cells, device=mask.device).expand_as(mask)
    # slots (B, budget): the masked cells in reading order; what an image does not use points at cell N, a spare column
    rank = mask.cumsum(1) - 1
    spare = torch.full((len(mask), budget + 1), cells, device=mask.device)
    slots = spare.scatter_(1, torch.where(mask, rank, budget), torch.where(mask, index, cells))[:, :budget]
    noise = torch.rand(slots.shape, generator=generator, device=mask.device)
    order = noise.masked_fill_(slots == cells, 2.0).argsort(1)  # used slots first, in random order
    shuffled = slots.gather(1, order)
    if derangement:  # each masked cell receives its successor on a random cycle through all of them
        slots, shuffled = shuffled, _successors(shuffled, cells)
    padded = torch.arange(cells + 1, device=mask.device).expand(len(mask), -1)
    permutation = padded.scatter(1, slots, shuffled)[:, :cells]
    inverse = padded.scatter(1, shuffled, slots)[:, :cells]
    return Plan(mask, permutation, inverse, (grid[0], grid[1]), budget)


def _expanded(plan: Plan, batch: int) -> Plan:
    """A shared plan as one for every image; others as they are."""
    mask, permutation, inverse = (tensor.expand(batch, -1) for tensor in plan[:3])
    return Plan(mask, permutation, inverse, plan.grid, plan.budget)


def identity_plan(batch: int, grid: tuple[int, int], *, device: torch.device | str = "cpu") -> Plan:
    """The plan that masks and moves nothing.

    Args:
        batch: Number of images B.
        grid: Rows and columns of cells (h, w).
        device: Where the plan goes.
    """
    batch, grid = whole("batch", batch), pair("grid", grid)
    cells = grid[0] * grid[1]
    index = torch.arange(cells, device=device).expand(batch, -1)
    mask = torch.zeros((), dtype=torch.bool, device=device).expand(batch, cells)
    return Plan(mask, index, index, (grid[0], grid[1]), 0)


def check_plan(plan: Plan, batch: int, grid: tuple[int, int] | None, device: torch.device) -> None:
    """Refuse what is not a plan, or a plan for another batch, device or (if one is given) grid."""
    if not isinstance(plan, Plan):
        raise InputError(f"plan must be a Plan as sample_plan draws it, not a {type(plan).__name__}")
    if grid is not None and tuple(plan.grid) != tuple(grid):
        raise InputError(f"the plan is for a grid of {plan.grid}, the input has {tuple(grid)}: draw one for this input")
    if len(plan.mask) != batch:
        raise InputError(f"the plan is for a batch of {len(plan.mask)}, the input has {batch}: draw one for this input")
    if plan.permutation.device != device:
        raise InputError(f"the plan is on {plan.permutation.device}, the input on {device}: plan.to(device) moves it")


def check_generator(generator: torch.Generator) -> None:
    if not isinstance(generator, torch.Generator):
        raise InputError(f"generator must be a torch.Generator, not {generator!r}: all randomness comes from one")


def _successors(cycle: Tensor, cells: int) -> Tensor:
    """Each entry's right neighbour; the last used one gets the first. Unused entries (== cells) stay as they are."""
    following = cycle.roll(-1, 1)
    wraps = (following == cells) | (torch.arange(cycle.shape[1], device=cycle.device) == cycle.shape[1] - 1)
    return torch.where(cycle == cells, cells, torch.where(wraps, cycle[:, :1], following))


def _device(name: torch.device | str) -> torch.device:
    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"device must name a torch device such as cpu or cuda, not {name!r}") from error


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
