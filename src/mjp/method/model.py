"""MJP around an unmodified timm model.

model = MJP(timm.create_model("deit_small_patch16_224"), "paper")
out = model.train()(images)                                    # draws its own plan
loss = cross_entropy(out.logits, labels) + model.config.localize_weight * out.dal
logits = model.eval()(images)                                  # timm's own result, bit for bit
model.unwrap()                                                 # the timm model
"""

import warnings
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.method.backbones import adapter_for
from mjp.method.config import PRESETS, MJPConfig, as_carried, preset
from mjp.method.hub import HubModel
from mjp.method.localization import Localizer, grid_targets, localization_loss
from mjp.method.plan import Plan, check_plan, identity_plan, sample_plan
from mjp.method.positions import hide_positions, token_mask
from mjp.method.shuffle import sample_spp_plan
from mjp.pictures.patches import image_grid


class MJPOutput(NamedTuple):
    """What a forward pass under a plan gives."""

    logits: Tensor  # (B, classes)
    features: Tensor  # (B, F): what a ViT's or Swin's classifier sees; for other models the pooled feature map
    dal: Tensor  # scalar: the localization loss, not yet multiplied by λ; zero without a localization head
    plan: Plan  # the plan that was used


class MJP(HubModel, nn.Module):
    """Masked Jigsaw Puzzle position embeddings for a timm model.

    In eval mode `model(x)` is timm's own result. `model(x, plan)` shuffles by the plan, gives masked slots E_unk, and
    returns an MJPOutput; in train mode `model(x)` does so with a plan it draws itself. `config` is an MJPConfig, the
    name of a preset, or nothing for "paper". On a model without absolute position embeddings a preset leaves only the
    jigsaw, and says so in a warning; any other obstacle is refused.

    Variant B (position="none") sets timm's position table to zero and keeps it there; no other variant touches the
    model.
    """

    def __init__(self, model: nn.Module, config: MJPConfig | str | None = None) -> None:
        super().__init__()
        if config is None:
            config = as_carried(PRESETS["paper"], model)
        elif isinstance(config, str):
            config = preset(config, model)
        elif not isinstance(config, MJPConfig):
            raise InputError(f"config must be an MJPConfig or the name of a preset, not a {type(config).__name__}")
        self.config = config
        self.adapter = adapter_for(model, config)
        self.model = model
        self.classes: list[str] | None = None  # names of the classes, if known; saved with the model
        self.epoch = 0  # the trainer keeps it current; the jigsaw starts at config.start_epoch
        self.generator = torch.Generator().manual_seed(config.seed)
        self.draws_for = 0  # the process that the generator was seeded for
        self.pos_embed = _zero_table(model) if config.ape else None  # a Swin's; a ViT has its own
        self.index: nn.Parameter | None = None
        self.unknown: nn.Parameter | None = None
        self.localizer: Localizer | None = None
        table = self.adapter.table(model, None, self.pos_embed)
        if table is None:
            return  # nothing but a jigsaw on pixels
        self.own_grid = cast(Any, model).patch_embed.grid_size  # of the tables that belong to the wrapper
        if config.position == "none":
            _erase_positions(model)
            model.register_load_state_dict_post_hook(_erase_positions)  # whatever is loaded later has them again
        if config.position == "index":
            self.index = nn.Parameter(torch.zeros_like(table))
        if config.position == "unknown":
            self.unknown = nn.Parameter(_first_unknown(table, config.unknown_init, self.generator))
        if config.localize != "none":
            self.localizer = Localizer(table.shape[-1], config.localize, generator=self.generator)
            self.localizer.to(device=table.device, dtype=table.dtype)

    def forward(self, images: Tensor, plan: Plan | None = None) -> Any:
        if plan is None and not self.training:
            return self._plain(images)
        self.adapter.check(self.model, images)
        plan = self.sample_plan(images) if plan is None else plan
        check_plan(plan, len(images), image_grid(images, self.adapter.cell), images.device)
        mask = token_mask(plan, self.adapter.tokens_per_cell)  # (B, N)
        table = self.adapter.table(self.model, plan.grid, self._own_table())  # (1, N, D)
        positions = table if self.unknown is None or table is None else hide_positions(table, self.unknown, mask)
        logits, features = self.adapter.run(self.model, images, plan, positions)
        dal = self._localize(table, mask, plan.grid)
        return MJPOutput(logits, features, images.new_zeros(()) if dal is None else dal, plan)

    def sample_plan(self, images: Tensor, generator: torch.Generator | None = None) -> Plan:
        """Draw the plan that training would use for these images.

        Without a generator from the model's own, which in distributed training differs from process to process.
        """
        config, grid = self.config, image_grid(images, self.adapter.cell)
        if config.shuffle == "none" or self.epoch < config.start_epoch:
            return identity_plan(len(images), grid, device=images.device)
        drawn: dict[str, Any] = {
            "generator": self._own_generator(images.device) if generator is None else generator,
            "shared": config.shared,
            "derangement": config.derangement,
            "probability": config.probability,
        }
        if config.shuffle == "spp":
            return sample_spp_plan(len(images), grid, self.adapter.cell, **drawn)
        blocks: dict[str, Any] = {"sampler": config.sampler, "min_block": config.min_block, "aspect": config.aspect}
        return sample_plan(len(images), grid, config.ratio, **drawn, **blocks)

    def unwrap(self) -> nn.Module:
        """The timm model itself, with all it has learned (not a copy).

        An index embedding (variant F) is folded into the position table, since only their sum is ever used. A Swin's
        absolute position embedding has no place in timm's Swin and stays behind.
        """
        if self.pos_embed is not None:
            warnings.warn(
                "a timm Swin has no absolute position embedding: what ape=True added stays behind", stacklevel=2
            )
        elif self.index is not None:
            with torch.no_grad():
                folded = cast(Tensor, self._own_table())
                cast(Tensor, self.model.pos_embed)[:, -folded.shape[1] :] += folded
                self.index.zero_()
        return self.model

    def no_weight_decay(self) -> set[str]:
        """What timm's optimizers must not decay: the model's own list, and E_unk treated as the position table is."""
        own = cast(Any, getattr(self.model, "no_weight_decay", set))()
        names = {f"model.{name}" for name in own}
        if "pos_embed" in own or self.pos_embed is not None:
            names |= {"unknown", "index", "pos_embed"}
        return names & {name for name, _ in self.named_parameters()}

    def _own_generator(self, device: torch.device) -> torch.Generator:
        """The model's generator: on the device of the images, where drawing needs no transfer, and of this process."""
        process = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        if self.generator.device != device or process != self.draws_for:
            seed = self.generator.initial_seed() - self.draws_for + process
            self.generator, self.draws_for = torch.Generator(device).manual_seed(seed), process
        return self.generator

    def _plain(self, images: Tensor) -> Any:
        """Inference without a plan: timm's own, unless there are positions that timm does not know."""
        if self._own_table() is None:
            return self.model(images)
        grid = image_grid(images, self.adapter.cell)
        return self.forward(images, identity_plan(len(images), grid, device=images.device)).logits

    def _own_table(self) -> Tensor | None:
        """The position embeddings that belong to the wrapper, (1, N, D): index embedding and a Swin's absolute ones."""
        tables = [table for table in (self.index, self.pos_embed) if table is not None]
        if not tables:
            return None
        # timm resamples its own table when the input size is set anew; these follow
        grid = cast(Any, self.model).patch_embed.grid_size
        return resample_abs_pos_embed(sum(tables[1:], tables[0]), list(grid), list(self.own_grid), num_prefix_tokens=0)

    def _localize(self, table: Tensor | None, mask: Tensor, grid: tuple[int, int]) -> Tensor | None:
        if self.localizer is None or table is None:
            return None
        rows, columns = self.adapter.tokens_per_cell
        unit = self.config.localize_targets == "unit"
        targets = grid_targets((grid[0] * rows, grid[1] * columns), unit=unit, device=table.device)
        # coordinates of 13 and more need their precision: bfloat16 would round them to sixteenths
        with torch.autocast(table.device.type, enabled=False):
            return localization_loss(self.localizer(table[0], targets), targets, mask)


def _zero_table(model: Any) -> nn.Parameter:
    """An absolute position embedding for a Swin: zero, so that wrapping changes nothing."""
    weight = model.patch_embed.proj.weight
    return nn.Parameter(weight.new_zeros(1, model.patch_embed.num_patches, weight.shape[0]))


def _first_unknown(table: Tensor, how: str, generator: torch.Generator) -> Tensor:
    if how == "mean":
        return table.detach().mean((0, 1))
    unknown = torch.zeros(table.shape[-1])
    if how == "normal":  # the law by which timm draws the table itself
        nn.init.trunc_normal_(unknown, std=0.02, generator=generator)
    return unknown.to(table)


def _erase_positions(model: nn.Module, _: Any = None) -> None:
    table = cast(Tensor, model.pos_embed)
    table.requires_grad_(False).zero_()
