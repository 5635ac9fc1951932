"""One dataclass that says what MJP does: it is the API, the command line, and what a checkpoint stores.

    variant("J")                the ten rows A–J of the paper's ablation table
    preset("paper")             when and how often the jigsaw is active: paper, reference, paper-privacy

No torch in here: the command line reads this file to print its help.
"""

import warnings
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from mjp.common.errors import InputError, shorten
from mjp.common.validate import aspect_range, number, whole

Shuffle = Literal["none", "jigsaw", "spp"]
Position = Literal["keep", "none", "index", "unknown"]
Localize = Literal["none", "ln", "nln", "pca"]
Targets = Literal["grid", "unit"]
Reduction = Literal["sum", "mean"]
SamplerName = Literal["blockwise", "reference", "uniform"]
UnknownInit = Literal["normal", "mean", "zeros"]
UnknownRotation = Literal["identity", "learned"]


@dataclass(frozen=True, kw_only=True)
class MJPConfig:
    """Masked Jigsaw Puzzle: what is shuffled, what happens to the positions, what is localised, and when."""

    shuffle: Shuffle = "jigsaw"
    """What training does to its input: nothing, a block-wise jigsaw, or SPP (all patches and their pixels)."""
    ratio: float = 0.03
    """Mask ratio γ: the share of patches that is masked and shuffled."""
    position: Position = "unknown"
    """Position embedding of a masked slot: keep its own; none (no position embeddings at all); index (a second learned
    table added to every slot); unknown (one vector E_unk, one rotation in rotary models, shared by all masked
    slots)."""
    localize: Localize = "nln"
    """Head of the dense absolute localization loss: none, ln (linear), nln (one hidden layer), pca (no parameters)."""
    localize_weight: float = 0.01
    """λ: total loss = cross entropy + λ · DAL."""
    localize_targets: Targets = "grid"
    """Scale of the (row, column) targets: grid (0, 1, 2, ... as published) or unit (between 0 and 1)."""
    localize_reduction: Reduction = "sum"
    """Error of a position over its two coordinates: their sum (the paper's L1 norm) or their mean (the authors' code,
    from which λ = 0.01 comes; with the sum, the same loss has λ = 0.005)."""
    sampler: SamplerName = "blockwise"
    """Which patches are masked: blockwise (exact budget), reference (the authors' law) or uniform (no blocks)."""
    shared: bool = False
    """One jigsaw for the whole batch instead of one per image."""
    min_block: int = 8
    """Smallest block, in patches, while the budget allows it."""
    aspect: tuple[float, float] = (0.3, 1 / 0.3)
    """Smallest and largest height/width of a block."""
    derangement: bool = False
    """Let no masked patch stay in place."""
    probability: float = 1.0
    """Share of training batches in which the jigsaw is active."""
    start_epoch: int = 0
    """First epoch with the jigsaw (tell the model with `model.epoch = n`)."""
    cell: int | None = None
    """Side of a jigsaw piece in pixels; by default a ViT's patch, 16 for other models."""
    ape: bool = False
    """Give a Swin a learned absolute position embedding (zero at first), without which it has nothing to hide."""
    unknown_init: UnknownInit = "normal"
    """How E_unk starts: normal (σ .02, as timm starts its table), mean (of the table) or zeros."""
    unknown_rotation: UnknownRotation = "identity"
    """How models with rotary positions turn masked patches: not at all (identity), or by angles that all of them share
    and that are learned, from zero on."""
    seed: int = 0
    """Seed of the generator for E_unk, the localization head and the plans."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        for name in ("shared", "derangement", "ape"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be True or False, not {getattr(self, name)!r}")
        number("ratio", self.ratio, least=0, most=1)
        number("probability", self.probability, least=0, most=1)
        number("localize_weight", self.localize_weight, least=0)
        whole("min_block", self.min_block, least=1)
        whole("start_epoch", self.start_epoch)
        if self.cell is not None:
            whole("cell", self.cell, least=1)
        if whole("seed", self.seed) >= 2**63:
            raise InputError(f"seed must be below 2**63, not {self.seed}")
        aspect_range(self.aspect)
        if self.unknown_rotation == "learned" and self.position != "unknown":
            raise InputError("unknown_rotation='learned' is the rotation of hidden patches: set position='unknown'")
        if self.ape and self.position == "none":
            raise InputError("ape adds position embeddings, position='none' removes them: choose one")

    @property
    def needs_positions(self) -> bool:
        """Whether this configuration makes sense only on a model with position embeddings."""
        return self.position in ("index", "unknown") or self.localize != "none"

    @property
    def touches_positions(self) -> bool:
        """Whether this configuration hides, changes or erases positions: how the model uses them must be known."""
        return self.needs_positions or self.position == "none"

    @property
    def always_shuffles(self) -> bool:
        """Whether every picture has a jigsaw of its own in every training step."""
        return (self.shuffle, self.shared, self.probability, self.start_epoch) == ("jigsaw", False, 1, 0)

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as config.json stores them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "MJPConfig":
        """The configuration with these fields, as `to_dict` gives them; missing ones have their default."""
        if not isinstance(values, dict):
            raise InputError(f"MJP settings must be names with values, not {shorten(values)}")
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise InputError(f"unknown MJP setting {shorten(', '.join(unknown))}: was it saved by a newer version?")
        if isinstance(values.get("aspect"), list):  # json has no tuples
            values = {**values, "aspect": tuple(values["aspect"])}
        return cls(**values)


_CHOICES: dict[str, tuple[str, ...]] = {
    "shuffle": get_args(Shuffle),
    "position": get_args(Position),
    "localize": get_args(Localize),
    "localize_targets": get_args(Targets),
    "localize_reduction": get_args(Reduction),
    "sampler": get_args(SamplerName),
    "unknown_init": get_args(UnknownInit),
    "unknown_rotation": get_args(UnknownRotation),
}

_PLAIN = MJPConfig(shuffle="none", position="keep", localize="none")
_JIGSAW = replace(_PLAIN, shuffle="jigsaw")
_MASKED = replace(_JIGSAW, position="unknown")

VARIANTS: dict[str, MJPConfig] = {
    "A": _PLAIN,
    "B": replace(_PLAIN, position="none"),
    "C": replace(_PLAIN, shuffle="spp"),
    "D": replace(_PLAIN, localize="nln"),
    "E": _JIGSAW,
    "F": replace(_JIGSAW, position="index"),
    "G": _MASKED,
    "H": replace(_MASKED, localize="pca"),
    "I": replace(_MASKED, localize="ln"),
    "J": replace(_MASKED, localize="nln"),
}

PRESETS: dict[str, MJPConfig] = {
    # as the paper describes it: per image, every step, exact budget, the L1 norm (a sum) in DAL with λ = 0.01
    "paper": VARIANTS["J"],
    # as the authors' code does it: one jigsaw per batch, on half the batches, after the learning-rate warm-up; DAL is
    # a mean over coordinates
    "reference": replace(
        VARIANTS["J"], sampler="reference", shared=True, probability=0.5, start_epoch=20, localize_reduction="mean"
    ),
    # the ratio of the paper's privacy experiment, in every step; what it does not protect: docs/privacy.md
    "paper-privacy": replace(VARIANTS["J"], ratio=0.27),
}
PRESETS["private"] = PRESETS["paper-privacy"]
OLD_NAMES = {
    "private": "the preset private is now called paper-privacy: the attacks of `mjp audit` recover pictures from "
    "updates made with it. What to do instead: docs/privacy.md"
}
PRESET_NAMES = tuple(name for name in PRESETS if name not in OLD_NAMES)


def variant(name: str, **changes: Any) -> MJPConfig:
    """A row of the paper's ablation table.

    Args:
        name: A letter from A (the plain model) to J (the full method).
        changes: Fields of MJPConfig that get another value, as in `variant("G", ratio=0.15)`.
    """
    if name not in VARIANTS:
        raise InputError(f"unknown variant {name!r}: choose one of {', '.join(VARIANTS)}")
    return _changed(VARIANTS[name], changes)


def preset(name: str, **changes: Any) -> MJPConfig:
    """A named configuration: when and how often the jigsaw is active.

    Args:
        name: "paper" (per image, every step), "reference" (the authors' code: one jigsaw per batch, half of the
            batches, from epoch 20) or "paper-privacy" (every step, with the ratio of the paper's privacy experiment).
            "private" is an old name of the last one.
        changes: Fields of MJPConfig that get another value, as in `preset("paper-privacy", ratio=0.9)`.
    """
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}: choose one of {', '.join(PRESET_NAMES)}")
    if name in OLD_NAMES:
        warnings.warn(OLD_NAMES[name], FutureWarning, stacklevel=2)
    return _changed(PRESETS[name], changes)


def _changed(config: MJPConfig, changes: dict[str, Any]) -> MJPConfig:
    names = [field.name for field in fields(config)]
    unknown = sorted(set(changes) - set(names))
    if unknown:
        raise InputError(f"unknown MJP setting {shorten(', '.join(unknown))}: choose from {', '.join(names)}")
    return replace(config, **changes)
