"""What the method asks of a model family. Each family answers in one file of `backbones/`.

An adapter holds no weights and changes nothing in the model: it calls the model's own modules in the model's own order,
so that a plan which moves nothing gives timm's result bit for bit.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan
from mjp.method.positions import Positions
from mjp.pictures.patches import image_grid

DEFAULT_CELL = 16  # pixels: side of a jigsaw piece where the model has no patch of its own
NO_POSITIONS = "it has no position embeddings to hide or localise"
JIGSAW_ONLY = "position='keep' and localize='none' give the jigsaw alone"


class Remedy(NamedTuple):
    """Settings that a preset gives up on a model to which they mean nothing."""

    changes: dict[str, Any]
    advice: str  # for a configuration that a person wrote, and that is refused
    remains: str  # for the warning when a preset is changed


JIGSAW_ALONE = Remedy({"position": "keep", "localize": "none"}, JIGSAW_ONLY, "only the jigsaw is left")
NO_LOCALIZATION = Remedy({"localize": "none"}, "set localize='none'", "the localization loss (DAL) is off")


class Obstacle(NamedTuple):
    """Why a model cannot carry a configuration."""

    reason: str
    remedy: Remedy | None = None  # None: giving something up is for the caller to decide

    def __str__(self) -> str:
        return self.reason if self.remedy is None else f"{self.reason}: {self.remedy.advice}"


class TokenParts(NamedTuple):
    """The tokens of a batch of images behind the final norm, by their role."""

    summary: Tensor  # (B, D): the class token; the mean over the patches if there is none
    prefix: Tensor  # (B, K, D): class, distillation and register tokens; K may be 0
    patches: Tensor  # (B, N, D) in reading order
    hidden: Tensor  # (B, N) bool: True where the position was hidden


class View:
    """A module with some of its attributes replaced, as `self` of one call of its class's forward.

    So timm's own code runs without a part of the model, and the model stays as it is.
    """

    def __init__(self, module: nn.Module, **replaced: Any) -> None:
        self.__dict__.update(replaced, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@dataclass(frozen=True)
class Adapter(ABC):
    """A model family. Positions of any kind go through `forward_features`, which sees which slots are hidden.

    A family with a learned absolute table returns it from `stored_table` and `position_table`; localization and the
    study of positions read it there. Positions of other kinds (rotary, relative) are hidden in the blocks, by
    `positions.mask`. What is not answered here means a model without a table, rotations and relative biases.
    """

    handles: ClassVar[tuple[type[nn.Module], ...]]
    """Classes of models; for a given model, the adapter of the nearest class among its bases is asked first."""

    exchangeable: ClassVar[bool]
    """Whether nothing else in the model depends on the order of patches, once their positions are hidden."""

    cell: tuple[int, int]
    """Height and width of a jigsaw piece in pixels."""

    tokens_per_cell: tuple[int, int] = (1, 1)
    """Rows and columns of tokens of the position table in a jigsaw piece."""

    @classmethod
    @abstractmethod
    def obstacles(cls, model: Any, config: MJPConfig) -> list[Obstacle]:
        """All the reasons why this model cannot carry this configuration; none if it can."""

    @classmethod
    @abstractmethod
    def build(cls, model: Any, config: MJPConfig) -> "Adapter":
        """The adapter for a model without obstacles."""

    @classmethod
    def rotation_angles(cls, model: Any) -> int:
        """How many angles a rotation of a patch has, the same in every head and block; 0 without rotary positions."""
        return 0

    @classmethod
    def new_biases(cls, model: Any, *, mean: bool) -> Tensor | None:
        """What hidden patches start with in place of relative biases, (tables, 3, H): zeros, or the mean of a table.

        The three are those of `positions.hide_biases`. None without relative positions.
        """
        return None

    def grid(self, model: Any, images: Tensor) -> tuple[int, int]:
        """Rows and columns of jigsaw pieces in (B, C, H, W) images; refuses sizes that the model cannot take."""
        return image_grid(images, self.cell)

    def stored_table(self, model: Any) -> Tensor | None:
        """The model's own learned absolute table, (1, K + N, D) with the rows of prefix tokens first."""
        return None

    def new_table(self, model: Any) -> Tensor:
        """What `ape=True` adds: an absolute table of zeros, (1, N, D), so that wrapping changes nothing."""
        raise InputError(f"{type(model).__name__} takes no additional position embeddings: leave `ape` unset")

    def token_grid(self, model: Any) -> tuple[int, int] | None:
        """Rows and columns of the absolute position table at the model's own input size; None without a table."""
        return None

    def position_table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None:
        """The absolute positions of the patches plus `extra`, (1, N, D), at a grid of pieces or the model's own."""
        return None

    @abstractmethod
    def forward_features(self, model: Any, images: Tensor, plan: Plan, positions: Positions) -> Tensor:
        """What timm's `forward_features` gives, with the plan carried out and its positions hidden."""

    @abstractmethod
    def forward_head(self, model: Any, features: Tensor) -> tuple[Any, Tensor]:
        """Logits, and the pooled (B, F) features that the classifier sees."""

    @classmethod
    @abstractmethod
    def split_tokens(cls, model: Any, features: Tensor) -> TokenParts:
        """The result of `forward_features` by role; the adapter alone knows which tokens are patches."""


def token_parts(patches: Tensor, prefix: Tensor | None = None, *, class_token: bool = False) -> TokenParts:
    """Tokens of which no position is hidden. With `class_token` the first of the prefix is the summary."""
    prefix = patches[:, :0] if prefix is None else prefix
    summary = prefix[:, 0] if class_token else patches.mean(1)
    return TokenParts(summary, prefix, patches, torch.zeros(patches.shape[:2], dtype=torch.bool, device=patches.device))


def map_tokens(features: Tensor) -> TokenParts:
    """The cells of a (B, D, h, w) feature map as patches, their mean as summary."""
    return token_parts(features.flatten(2).transpose(1, 2))


def channels_first(model: Any, feature_map: Tensor) -> Tensor:
    """(B, D, h, w) from a feature map in the model's own layout."""
    return feature_map.permute(0, 3, 1, 2) if getattr(model, "output_fmt", "NCHW") == "NHWC" else feature_map


def resample_table(table: Tensor, new: tuple[int, int] | None, old: tuple[int, int]) -> Tensor:
    """timm's interpolation of a (1, N, D) table from one grid to another; the table itself if the grid stays."""
    return table if new is None else resample_abs_pos_embed(table, list(new), list(old), num_prefix_tokens=0)
