"""The plans that a model draws for itself while it trains, and where it stands in drawing them.

Epoch and generator are part of the model's `state_dict()`, under torch's `_extra_state`: a training loop that saves and
loads state dicts resumes with the plan that would have come next. It is a tensor of bytes, so that EMA, safetensors and
weights-only files take it, and neither a parameter nor a buffer, so that DDP does not copy it to the other processes.
"""

import hashlib
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.common.weights import EXTRA_STATE
from mjp.method.adapter import Adapter
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan, identity_plan, mask_budget, sample_plan
from mjp.method.shuffle import sample_spp_plan

HEADER_BYTES = 16  # epoch and rank, two int64


class PlanDrawing(nn.Module):
    """`sample_plan`, and its place in `state_dict()`, for a model with an MJPConfig and an adapter."""

    model: nn.Module
    config: MJPConfig
    adapter: Adapter

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.epoch = 0  # the trainer keeps it current; the jigsaw starts at config.start_epoch
        self.generator = torch.Generator().manual_seed(seed)
        self.generator_rank = 0  # the process that the generator was seeded for
        self._loaded_state: Tensor | None = None  # of a generator; taken up by the next draw, which knows its device

    def sample_plan(
        self, images: Tensor, generator: torch.Generator | None = None, *, ratio: float | None = None
    ) -> Plan:
        """Draw the plan that training would use for these images.

        Args:
            images: (B, C, H, W).
            generator: Where the randomness comes from; by default the model's own generator, which in distributed
                training differs from process to process.
            ratio: Mask ratio γ of this plan, for schedules; by default the configuration's.

        Returns:
            A plan on the device of the images (of the generator, if one is passed).
        """
        config = self.config
        grid = self.adapter.grid(self.model, images)
        if config.shuffle == "none" or self.epoch < config.start_epoch:
            return identity_plan(len(images), grid, device=images.device)
        draw: dict[str, Any] = {
            "generator": self._local_generator(images.device) if generator is None else generator,
            "shared": config.shared,
            "derangement": config.derangement,
            "probability": config.probability,
        }
        if config.shuffle == "spp":
            return sample_spp_plan(len(images), grid, self.adapter.cell, **draw)
        blocks: dict[str, Any] = {"sampler": config.sampler, "min_block": config.min_block, "aspect": config.aspect}
        return sample_plan(len(images), grid, config.ratio if ratio is None else ratio, **draw, **blocks)

    def get_extra_state(self) -> Tensor:
        """Epoch, rank and state of the generator as bytes; torch calls this for `state_dict()`."""
        header = torch.tensor([self.epoch, self.generator_rank]).view(torch.uint8)
        state = self.generator.get_state() if self._loaded_state is None else self._loaded_state
        return torch.cat([header, state])

    def set_extra_state(self, state: Any) -> None:
        """Continue where the model stood whose `state_dict()` this comes from; torch calls this on loading."""
        if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.numel() <= HEADER_BYTES:
            raise InputError(
                f"{EXTRA_STATE} of these weights is not the state of an MJP model: remove it and load again"
            )
        content = state.detach().cpu().flatten().clone()
        self.epoch, self.generator_rank = content[:HEADER_BYTES].view(torch.int64).tolist()
        self._loaded_state = content[HEADER_BYTES:].clone()  # generators read from the start of a tensor's storage

    def _local_generator(self, device: torch.device) -> torch.Generator:
        """The model's generator: on the device of the images, where drawing needs no transfer, and of this process."""
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        if self._loaded_state is not None:
            self.generator = _restored(self._loaded_state, device, self.generator_rank, rank)
            self._loaded_state = None
        elif self.generator.device != device or rank != self.generator_rank:
            seed = self.generator.initial_seed() - self.generator_rank + rank
            self.generator = torch.Generator(device).manual_seed(seed)
        self.generator_rank = rank
        return self.generator

    def _warn_if_nothing_moves(self, grid: tuple[int, int]) -> None:
        """A ratio that looks reasonable may leave a small grid as it is: say so, with the smallest that does not."""
        cells = grid[0] * grid[1]
        budget = mask_budget(self.config.ratio, cells)
        if self.config.shuffle != "jigsaw" or self.config.ratio == 0 or budget > 1 or cells < 2:
            return
        effect = "masks one patch, which has nowhere to go" if budget else "masks nothing"
        warnings.warn(
            f"ratio={self.config.ratio:g} {effect}, on a grid of {grid[0]}x{grid[1]}: no patch ever moves. The "
            f"smallest ratio that moves patches here is {smallest_ratio(cells):g}",
            stacklevel=3,
        )


def _restored(state: Tensor, device: torch.device, saved_rank: int, rank: int) -> torch.Generator:
    """The generator of that state. In another process, or on another kind of device, one that is seeded by it.

    Usually one process saves for all: the others must neither repeat its plans nor those of the run so far.
    """
    generator = torch.Generator(device)
    if rank == saved_rank and len(state) == len(generator.get_state()):
        generator.set_state(state)
        return generator
    digest = hashlib.sha256(state.numpy().tobytes()).digest()
    return generator.manual_seed(int.from_bytes(digest[:7], "little") + rank)


def smallest_ratio(cells: int) -> float:
    """The smallest ratio, to four digits, of which the budget is two."""
    return next(ratio for n in range(1, 10001) if mask_budget(ratio := n / 10000, cells) >= 2)
