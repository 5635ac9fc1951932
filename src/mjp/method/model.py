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
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mjp.common.errors import InputError
from mjp.common.weights import EXTRA_STATE
from mjp.method.adapter import Adapter, TokenParts, resample_table
from mjp.method.backbones import adapter_for, fit_config
from mjp.method.config import MJPConfig, preset
from mjp.method.drawing import PlanDrawing
from mjp.method.hub import HubModel
from mjp.method.localization import Localizer, grid_targets, localization_loss
from mjp.method.plan import Plan, check_plan, identity_plan
from mjp.method.positions import Positions, initial_unknown, pooled_mask, token_mask
from mjp.method.timm_surface import TimmSurface, size_setter
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


class MJP(HubModel, TimmSurface, PlanDrawing):
    """Masked Jigsaw Puzzle position embeddings for a timm model.

    In eval mode `model(images)` is timm's own result. `model(images, plan)` shuffles by the plan, gives masked slots
    E_unk, and returns an MJPOutput; in train mode `model(images)` does so with a plan that it draws itself.

    Variant B (position="none") sets timm's position table to zero and keeps it there; no other variant touches the
    model.

    Args:
        model: An image classifier created by timm. It is wrapped, not copied.
        config: An MJPConfig, or the name of a preset; "paper" by default. A preset loses what means nothing
            to the model, and a warning says so: without position embeddings only the jigsaw is left, without a table
            of them the localization loss is off. An MJPConfig that the model cannot carry is refused with all the
            reasons.
    """

    def __init__(self, model: nn.Module, config: MJPConfig | str | None = None) -> None:
        if config is None or isinstance(config, str):
            config = fit_config(preset("paper" if config is None else config), model)
        elif not isinstance(config, MJPConfig):
            raise InputError(f"config must be an MJPConfig or the name of a preset, not a {type(config).__name__}")
        super().__init__(config.seed)
        self.config = config
        self.adapter = adapter_for(model, config)
        self.model = model
        self.classes: list[str] | None = None  # names of the classes, if known; saved with the model
        self.preprocessing: Preprocessing | None = None  # how pictures enter it, if known; saved with the model
        self.pos_embed = nn.Parameter(self.adapter.new_table(model)) if config.ape else None  # a ViT has its own
        self.index: nn.Parameter | None = None
        self.unknown: nn.Parameter | None = None
        self.rotation: nn.Parameter | None = None
        self.biases: nn.Parameter | None = None
        self.localizer: Localizer | None = None
        self.table_grid = self.adapter.token_grid(model)  # of the tables that belong to the wrapper
        self._erasing: RemovableHandle | None = None
        self._add_parameters()
        if self.table_grid is not None:
            rows, columns = self.adapter.tokens_per_cell
            self._warn_if_nothing_moves((self.table_grid[0] // rows, self.table_grid[1] // columns))

    def _add_parameters(self) -> None:
        """What the configuration adds to a model: angles, biases, and more for an absolute table."""
        weight = next(self.model.parameters())
        if self.config.unknown_rotation == "learned":  # zero: the identity
            self.rotation = nn.Parameter(weight.new_zeros(self.adapter.rotation_angles(self.model)))
        biases = self.adapter.new_biases(self.model, mean=self.config.unknown_init == "mean")
        if biases is not None and self.config.position == "unknown":
            self.biases = nn.Parameter(biases)
        table = self.adapter.position_table(self.model, None, self.pos_embed)
        if table is None:
            return
        config = self.config
        if config.position == "none":
            erase = partial(_erase_positions, self.adapter)
            erase(self.model)
            # weights that are loaded later have positions again
            self._erasing = self.model.register_load_state_dict_post_hook(erase)
        if config.position == "index":
            self.index = nn.Parameter(torch.zeros_like(table))
        if config.position == "unknown":
            self.unknown = nn.Parameter(initial_unknown(table, config.unknown_init, self.generator))
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
            Summary (B, D), prefix (B, K, D), patches (B, N, D), and hidden (B, N): True where the position was
            hidden. A token that covers several jigsaw pieces is hidden if any of them is.
        """
        if plan is None and self.training:
            plan = self.sample_plan(images)
        parts = self.adapter.split_tokens(self.model, self.forward_features(images, plan))
        if plan is None or not self.hides_positions:
            return parts
        return parts._replace(hidden=pooled_mask(plan, parts.patches.shape[1]))

    def grid(self, images: Tensor) -> tuple[int, int]:
        """Rows and columns of jigsaw pieces in (B, C, H, W) images; refuses a size that the model cannot take."""
        return self.adapter.grid(self.model, images)

    @property
    def hides_positions(self) -> bool:
        """Whether a plan hides the positions of masked patches."""
        return self.config.position == "unknown"

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
        absolute position embedding has no place in timm's Swin and stays behind, with a warning. A table that variant B
        set to zero stays zero, and frozen, until other weights are loaded.
        """
        if self._erasing is not None:
            self._erasing.remove()
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

    def set_input_size(self, *arguments: Any, **options: Any) -> None:
        """Change the size of the images: timm's `set_input_size`, which all position tables follow."""
        size_setter(self.model)(*arguments, **options)
        tables = self._resampled_tables()
        for name, table in tables.items():
            setattr(self, name, nn.Parameter(table.detach().clone()))
        self.table_grid = self.adapter.token_grid(self.model)
        self.adapter = adapter_for(self.model, self.config)

    def forward_intermediates(self, images: Tensor, *arguments: Any, **options: Any) -> Any:
        """timm's `forward_intermediates`: features of several layers, of images that no plan shuffles.

        Args:
            images: (B, C, H, W).
            arguments: As timm's model takes them: indices, return_prefix_tokens, norm, output_fmt, ...
            options: The same by name.
        """
        timm_model = cast(Any, self.model)
        table = self._additional_table()
        if table is None:
            return timm_model.forward_intermediates(images, *arguments, **options)
        rows, columns = self.adapter.tokens_per_cell
        grid = self.grid(images)
        old = cast(tuple[int, int], self.adapter.token_grid(self.model))
        table = resample_table(table, (grid[0] * rows, grid[1] * columns), old)
        hook = timm_model.patch_embed.register_forward_hook(
            lambda _module, _inputs, tokens: tokens + table.view(1, *tokens.shape[1:])
        )
        try:
            return timm_model.forward_intermediates(images, *arguments, **options)
        finally:
            hook.remove()

    def weights(self) -> dict[str, Tensor]:
        """All weights by name, as `save_pretrained` writes them; tables follow a changed input size.

        This is the state dict without the state of the generator, which would tell others the plans that were drawn:
        share these weights, not `state_dict()`.
        """
        weights = {name: tensor for name, tensor in self.state_dict().items() if name != EXTRA_STATE}
        return {**weights, **self._resampled_tables()}

    def _plan_for(self, images: Tensor, plan: Plan | None) -> Plan:
        """The plan itself once it is checked; without one, what the mode asks for."""
        grid = self.grid(images)
        if plan is None:
            return self.sample_plan(images) if self.training else identity_plan(len(images), grid, device=images.device)
        check_plan(plan, len(images), grid, images.device)
        return plan

    def _positions(self, plan: Plan) -> Positions:
        mask = token_mask(plan, self.adapter.tokens_per_cell) if self.hides_positions else None
        return Positions(self.position_table(plan.grid), self.unknown, mask, self.rotation, self.biases)

    def _localization(self, table: Tensor | None, plan: Plan) -> Tensor | None:
        if self.localizer is None or table is None:
            return None
        rows, columns = self.adapter.tokens_per_cell
        grid = (plan.grid[0] * rows, plan.grid[1] * columns)
        targets = grid_targets(grid, unit=self.config.localize_targets == "unit", device=table.device)
        mask = token_mask(plan, self.adapter.tokens_per_cell)
        # coordinates of 13 and more need their precision: bfloat16 would round them to sixteenths
        with torch.autocast(table.device.type, enabled=False):
            predictions = self.localizer(table[0], targets)
            return localization_loss(predictions, targets, mask, reduction=self.config.localize_reduction)

    def _additional_table(self) -> Tensor | None:
        """The position embeddings that belong to the wrapper, (1, N, D): index embedding and a Swin's absolute ones."""
        tables = list(self._resampled_tables().values())
        return sum(tables[1:], tables[0]) if tables else None

    def _resampled_tables(self) -> dict[str, Tensor]:
        """They follow when the timm model's input size is set anew, as timm's own table does."""
        tables = {"index": self.index, "pos_embed": self.pos_embed}
        if self.table_grid is None:
            return {}
        grid = self.adapter.token_grid(self.model)
        return {n: resample_table(t, grid, self.table_grid) for n, t in tables.items() if t is not None}


def _erase_positions(adapter: Adapter, model: nn.Module, _: Any = None) -> None:
    cast(Tensor, adapter.stored_table(model)).requires_grad_(False).zero_()
