"""MJP around an unmodified timm model.

model = MJP(timm.create_model("deit_small_patch16_224"), "paper")
out = model.train()(images)                                    # draws its own plan
loss = cross_entropy(out.logits, labels) + model.config.localize_weight * out.dal
logits = model.eval()(images)                                  # timm's own result, bit for bit
model.unwrap()                                                 # the timm model
"""

import warnings
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool2d

from mjp.common.errors import InputError
from mjp.method.adapter import Adapter, TokenParts, resample_table
from mjp.method.backbones import adapter_for, fit_config
from mjp.method.config import MJPConfig, preset
from mjp.method.hub import HubModel
from mjp.method.localization import Localizer, grid_targets, localization_loss
from mjp.method.plan import Plan, check_plan, identity_plan, sample_plan
from mjp.method.positions import Positions, token_mask
from mjp.method.shuffle import sample_spp_plan
from mjp.pictures.preprocessing import Preprocessing


class MJPOutput(NamedTuple):
    """What a forward pass under a plan returns.

    Attributes:
        logits: (B, classes).
        features: (B, F), what a ViT's or Swin's classifier sees; for other models the pooled feature map.
        dal: Scalar, the localization loss before it is multiplied by λ; zero without a localization head.
        plan: The plan that was carried out.
    """

    logits: Tensor
    features: Tensor
    dal: Tensor
    plan: Plan


class MJP(HubModel):
    """Masked Jigsaw Puzzle position embeddings for a timm model.

    In eval mode `model(images)` is timm's own result. `model(images, plan)` shuffles by the plan, gives masked slots
    E_unk, and returns an MJPOutput; in train mode `model(images)` does so with a plan that it draws itself.

    Variant B (position="none") sets timm's position table to zero and keeps it there; no other variant touches the
    model.

    Args:
        model: An image classifier created by timm. It is wrapped, not copied.
        config: An MJPConfig, or the name of a preset; "paper" by default. On a model without absolute position
            embeddings only the jigsaw is left of a preset, and a warning says so; an MJPConfig that the model cannot
            carry is refused with all the reasons.
    """

    def __init__(self, model: nn.Module, config: MJPConfig | str | None = None) -> None:
        super().__init__()
        if config is None or isinstance(config, str):
            config = fit_config(preset(config or "paper"), model)
        elif not isinstance(config, MJPConfig):
            raise InputError(f"config must be an MJPConfig or the name of a preset, not a {type(config).__name__}")
        self.config = config
        self.adapter = adapter_for(model, config)
        self.model = model
        self.classes: list[str] | None = None  # names of the classes, if known; saved with the model
        self.preprocessing: Preprocessing | None = None  # how pictures enter it, if known; saved with the model
        self.epoch = 0  # the trainer keeps it current; the jigsaw starts at config.start_epoch
        self.generator = torch.Generator().manual_seed(config.seed)
        self.generator_rank = 0  # the process that the generator was seeded for
        self.pos_embed = nn.Parameter(self.adapter.new_table(model)) if config.ape else None  # a ViT has its own
        self.index: nn.Parameter | None = None
        self.unknown: nn.Parameter | None = None
        self.localizer: Localizer | None = None
        self.table_grid = self.adapter.token_grid(model)  # of the tables that belong to the wrapper
        self._add_parameters()

    def _add_parameters(self) -> None:
        """What the configuration adds to a model with an absolute position table."""
        table = self.adapter.position_table(self.model, None, self.pos_embed)
        if table is None:
            return
        config = self.config
        if config.position == "none":
            erase = partial(_erase_positions, self.adapter)
            erase(self.model)
            self.model.register_load_state_dict_post_hook(erase)  # weights that are loaded later have positions again
        if config.position == "index":
            self.index = nn.Parameter(torch.zeros_like(table))
        if config.position == "unknown":
            self.unknown = nn.Parameter(_initial_unknown(table, config.unknown_init, self.generator))
        if config.localize != "none":
            self.localizer = Localizer(table.shape[-1], config.localize, generator=self.generator)
            self.localizer.to(device=table.device, dtype=table.dtype)

    def forward(self, images: Tensor, plan: Plan | None = None) -> Any:
        """Classify images.

        Args:
            images: (B, C, H, W), normalised as the timm model expects it.
            plan: The jigsaw to carry out. Without one, train mode draws one and eval mode leaves the images alone.

        Returns:
            The (B, classes) logits in eval mode without a plan, otherwise an MJPOutput.
        """
        if plan is None and not self.training and self._additional_table() is None:
            return self.model(images)
        used = self._plan_for(images, plan)
        positions = self._positions(used)
        features = self.adapter.forward_features(self.model, images, used, positions)
        logits, pooled = self.adapter.forward_head(self.model, features)
        if plan is None and not self.training:
            return logits
        dal = self._localization(positions.table, used)
        return MJPOutput(logits, pooled, images.new_zeros(()) if dal is None else dal, used)

    def forward_features(self, images: Tensor, plan: Plan | None = None) -> Tensor:
        """What timm's `forward_features` returns, under a plan if there is one.

        Args:
            images: (B, C, H, W).
            plan: The jigsaw to carry out. Without one, train mode draws one and eval mode leaves the images alone.

        Returns:
            Features in the layout of the timm model, (B, K + N, D) for a ViT; `forward_head` turns them into logits.
        """
        if plan is None and not self.training and self._additional_table() is None:
            return cast(Tensor, cast(Any, self.model).forward_features(images))
        plan = self._plan_for(images, plan)
        return self.adapter.forward_features(self.model, images, plan, self._positions(plan))

    def tokens(self, images: Tensor, plan: Plan | None = None) -> TokenParts:
        """The tokens behind the final norm, by role.

        Args:
            images: (B, C, H, W).
            plan: The jigsaw to carry out. Without one, train mode draws one and eval mode leaves the images alone.

        Returns:
            Summary (B, D), prefix (B, K, D), patches (B, N, D), and hidden (B, N): True where E_unk took the place of
            the position. A token that covers several jigsaw pieces is hidden if any of them is.
        """
        if plan is None and self.training:
            plan = self.sample_plan(images)
        parts = self.adapter.split_tokens(self.model, self.forward_features(images, plan))
        if plan is None or self.config.position != "unknown":
            return parts
        return parts._replace(hidden=_pooled_mask(plan, parts.patches.shape[1]))

    def grid(self, images: Tensor) -> tuple[int, int]:
        """Rows and columns of jigsaw pieces in (B, C, H, W) images; refuses a size that the model cannot take."""
        return self.adapter.grid(self.model, images)

    def sample_plan(self, images: Tensor, generator: torch.Generator | None = None) -> Plan:
        """Draw the plan that training would use for these images.

        Args:
            images: (B, C, H, W).
            generator: Where the randomness comes from; by default the model's own generator, which in distributed
                training differs from process to process.

        Returns:
            A plan on the device of the images (of the generator, if one is passed).
        """
        config, grid = self.config, self.grid(images)
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
        return sample_plan(len(images), grid, config.ratio, **draw, **blocks)

    def position_table(self, grid: tuple[int, int] | None = None) -> Tensor | None:
        """The absolute position embeddings of the patches, everything that MJP adds included.

        Args:
            grid: Rows and columns of jigsaw pieces to resample the table to; the model's own by default.

        Returns:
            (1, N, D), differentiable; None if the model has no absolute position embeddings.
        """
        return self.adapter.position_table(self.model, grid, self._additional_table())

    def localization(self, plan: Plan) -> Tensor | None:
        """The localization loss (DAL) of the position table under a plan.

        Args:
            plan: Positions that it masks do not count in the images that mask them.

        Returns:
            A scalar, differentiable, not yet multiplied by λ; None without a localization head.
        """
        return self._localization(self.position_table(plan.grid), plan)

    def unwrap(self) -> nn.Module:
        """The timm model itself, with all it has learned (not a copy).

        An index embedding (variant F) is folded into the position table, since only their sum is ever used. A Swin's
        absolute position embedding has no place in timm's Swin and stays behind, with a warning.
        """
        if self.pos_embed is not None:
            warnings.warn(
                "a timm Swin has no absolute position embedding: what ape=True added stays behind", stacklevel=2
            )
        elif self.index is not None:
            with torch.no_grad():
                index = cast(Tensor, self._additional_table())
                cast(Tensor, self.adapter.stored_table(self.model))[:, -index.shape[1] :] += index
                self.index.zero_()
        return self.model

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay: the timm model's list, and E_unk treated as its table is."""
        timm_names = cast(Any, getattr(self.model, "no_weight_decay", set))()
        names = {f"model.{name}" for name in timm_names}
        if "pos_embed" in timm_names or self.pos_embed is not None:
            names |= {"unknown", "index", "pos_embed"}
        return names & {name for name, _ in self.named_parameters()}

    def _plan_for(self, images: Tensor, plan: Plan | None) -> Plan:
        """The plan itself once it is checked; without one, what the mode asks for."""
        grid = self.grid(images)
        if plan is None:
            return self.sample_plan(images) if self.training else identity_plan(len(images), grid, device=images.device)
        check_plan(plan, len(images), grid, images.device)
        return plan

    def _positions(self, plan: Plan) -> Positions:
        hides = self.config.position == "unknown"
        mask = token_mask(plan, self.adapter.tokens_per_cell) if hides else None
        return Positions(self.position_table(plan.grid), self.unknown, mask)

    def _localization(self, table: Tensor | None, plan: Plan) -> Tensor | None:
        if self.localizer is None or table is None:
            return None
        rows, columns = self.adapter.tokens_per_cell
        grid = (plan.grid[0] * rows, plan.grid[1] * columns)
        targets = grid_targets(grid, unit=self.config.localize_targets == "unit", device=table.device)
        mask = token_mask(plan, self.adapter.tokens_per_cell)
        # coordinates of 13 and more need their precision: bfloat16 would round them to sixteenths
        with torch.autocast(table.device.type, enabled=False):
            return localization_loss(self.localizer(table[0], targets), targets, mask)

    def _local_generator(self, device: torch.device) -> torch.Generator:
        """The model's generator: on the device of the images, where drawing needs no transfer, and of this process."""
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        if self.generator.device != device or rank != self.generator_rank:
            seed = self.generator.initial_seed() - self.generator_rank + rank
            self.generator = torch.Generator(device).manual_seed(seed)
            self.generator_rank = rank
        return self.generator

    def _additional_table(self) -> Tensor | None:
        """The position embeddings that belong to the wrapper, (1, N, D): index embedding and a Swin's absolute ones."""
        tables = [table for table in (self.index, self.pos_embed) if table is not None]
        if not tables:
            return None
        # timm resamples its own table when the input size is set anew; these follow
        old = cast(tuple[int, int], self.table_grid)
        return resample_table(sum(tables[1:], tables[0]), self.adapter.token_grid(self.model), old)


def _initial_unknown(table: Tensor, how: str, generator: torch.Generator) -> Tensor:
    if how == "mean":
        return table.detach().mean((0, 1))
    unknown = torch.zeros(table.shape[-1])
    if how == "normal":  # the law by which timm draws the table itself
        nn.init.trunc_normal_(unknown, std=0.02, generator=generator)
    return unknown.to(table)


def _erase_positions(adapter: Adapter, model: nn.Module, _: Any = None) -> None:
    cast(Tensor, adapter.stored_table(model)).requires_grad_(False).zero_()


def _pooled_mask(plan: Plan, tokens: int) -> Tensor:
    """The plan's mask, (B, tokens): tokens in reading order, each masked if any piece that it covers is."""
    rows, columns = plan.grid
    if tokens == rows * columns:
        return plan.mask
    height = max(round((tokens * rows / columns) ** 0.5), 1)
    pieces = plan.mask.view(-1, 1, rows, columns).float()
    return adaptive_max_pool2d(pieces, (height, tokens // height)).flatten(1).bool()
