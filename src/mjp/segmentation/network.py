"""From a backbone to segmentation_models_pytorch's UPerNet around it.

Only weights carry over from a backbone that was trained with MJP: its jigsaw is off and E_unk is left behind, since in
segmentation every patch is where it belongs. The absolute positions that `ape` gave a Swin belong to what it has
learned: they are added behind its patch embedding, resampled to the size of the pictures.
"""

import re
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
from timm.layers import resample_abs_pos_embed
from timm.models import SwinTransformer, SwinTransformerV2
from torch import Tensor, nn

from mjp.common.errors import InputError, first_line
from mjp.common.fingerprint import fingerprint
from mjp.method.hub import saved_recipe
from mjp.method.model import MJP
from mjp.models import Subject, find_model, model_place, read_weights
from mjp.segmentation.config import DEFAULT_MODEL, STRIDE, SegmentConfig
from mjp.training.build import model_argument

# arguments of the classifier that an encoder does not have, or that are set here
NOT_FOR_ENCODERS = {"num_classes", "global_pool", "drop_path_rate", "drop_rate", "img_size", "features_only"}


@dataclass(frozen=True)
class Backbone:
    """A classifier whose features are to be used."""

    architecture: str  # its name in timm
    arguments: dict[str, Any]  # those that timm created it with
    wrapped: MJP
    origin: str
    fingerprint: str  # of the weights as they were loaded
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def describe(self) -> dict[str, Any]:
        """What results.json says about it."""
        return {
            "architecture": self.architecture,
            "arguments": self.arguments,
            "weights": self.origin,
            "fingerprint": self.fingerprint,
            "mjp": self.wrapped.config.to_dict(),
        }


def load_backbone(config: SegmentConfig) -> Backbone:
    """The backbone that --model and --checkpoint name."""
    if config.checkpoint is not None and config.checkpoint.expanduser().is_dir():
        return _from_folder(config, config.checkpoint.expanduser())
    name = config.model or DEFAULT_MODEL
    arguments = dict(model_argument(text) for text in config.model_kwargs)
    if config.checkpoint is not None:
        weights = read_weights(config.checkpoint.expanduser())
        subject = find_model(f"timm:{name}", weights=weights, num_classes=_classes(name, weights), **arguments)
        return _backbone(name, arguments, subject, str(config.checkpoint))
    random_weights = None if config.pretrained else config.seed
    subject = find_model(f"timm:{name}", random_weights=random_weights, **arguments)
    return _backbone(name, arguments, subject, "timm" if config.pretrained else f"random, seed {config.seed}")


def build_network(backbone: Backbone, *, classes: int, crop: int, decoder_channels: int, drop_path: float) -> Any:
    """UPerNet with the backbone's weights in its encoder; the decoder is drawn from torch's global generator."""
    smp = segmentation_models()
    model: Any = backbone.wrapped.model
    positions = _absolute_positions(backbone.wrapped)
    arguments = {name: value for name, value in backbone.arguments.items() if name not in NOT_FOR_ENCODERS}
    if isinstance(model, SwinTransformer | SwinTransformerV2):
        arguments |= _any_size(model, crop)
    create = partial(
        smp.UPerNet,
        encoder_name=f"tu-{backbone.architecture}",
        encoder_weights=None,
        classes=classes,
        decoder_channels=decoder_channels,
        upsampling=_first_reduction(model),
        **arguments,
    )
    try:
        try:
            network = create(drop_path_rate=drop_path)
        except TypeError:  # a backbone without stochastic depth
            network = create()
        _copy_weights(model, network.encoder.model, backbone.architecture)
        if positions is not None:
            network.encoder.model["patch_embed"] = PositionedEmbedding(network.encoder.model["patch_embed"], positions)
        _try(network, crop)
    except InputError:
        raise
    except (ValueError, TypeError, RuntimeError, AssertionError, IndexError) as error:
        raise InputError(
            f"UPerNet cannot use {backbone.architecture} ({first_line(error)}): it needs feature maps of several "
            "scales and any size, as those of a Swin, ConvNeXt or ResNet"
        ) from error
    return network


class PositionedEmbedding(nn.Module):
    """A Swin's patch embedding with the absolute positions that MJP's `ape` adds behind it."""

    def __init__(self, embedding: nn.Module, positions: Tensor) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = nn.Parameter(positions)  # (1, rows, columns, D)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embedding(images)  # (B, h, w, D)
        _, rows, columns, width = self.positions.shape
        grid = [tokens.shape[1], tokens.shape[2]]
        table = self.positions.view(1, rows * columns, width)
        table = resample_abs_pos_embed(table, grid, [rows, columns], num_prefix_tokens=0)
        return tokens + table.view(1, *grid, width)


def _from_folder(config: SegmentConfig, folder: Path) -> Backbone:
    name, arguments = saved_recipe(model_place(str(folder)))
    if config.model not in (None, name):
        raise InputError(f"{folder} holds a {name}, not a {config.model}: leave --model out")
    if config.model_kwargs:
        raise InputError(f"{folder} knows the arguments of its model: leave --model-kwargs out")
    return _backbone(name, arguments, find_model(str(folder)), str(folder))


def _backbone(name: str, arguments: dict[str, Any], subject: Subject, origin: str) -> Backbone:
    hashed = fingerprint(subject.model.state_dict())
    return Backbone(name, arguments, subject.model, origin, hashed, subject.mean, subject.std)


def _classes(name: str, weights: dict[str, Tensor]) -> int:
    """How many classes the classifier in a file has; 0 without one."""
    config = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    bias = weights.get(f"{config.classifier}.bias") if config is not None else None
    return 0 if bias is None else bias.numel()


def _absolute_positions(wrapped: MJP) -> Tensor | None:
    """What `ape` added to a Swin, (1, rows, columns, D); None without it."""
    table = wrapped.position_table() if wrapped.config.ape else None
    if table is None:
        return None
    rows, columns = wrapped.model.patch_embed.grid_size  # type: ignore[union-attr, misc]
    return table.detach().clone().view(1, rows, columns, -1)


def _any_size(model: Any, crop: int) -> dict[str, Any]:
    """Free a Swin from the size it was trained at; the arguments that give an encoder of the same shape.

    Windows keep their size in every stage and pictures are padded to whole ones. Where training had smaller windows,
    because its pictures were small, timm resamples the table of relative positions.
    """
    window = max(block.window_size for stage in model.layers for block in stage.blocks)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="timm.layers.interpolate")  # about its own use of torch
        model.set_input_size(img_size=(crop, crop), window_size=window, always_partition=True)
    return {"img_size": crop, "window_size": window, "always_partition": True, "strict_img_size": False}


def _first_reduction(model: Any) -> int:
    """Pixels per step of the finest of the four feature maps that UPerNet uses, and with which its output comes."""
    features = model.feature_info if isinstance(getattr(model, "feature_info", None), list) else []
    return int(features[-4]["reduction"]) if len(features) >= 4 else 4


def _copy_weights(model: nn.Module, encoder: nn.Module, name: str) -> None:
    """Load a classifier's weights into timm's feature extractor of the same model, which renames some modules."""
    weights = model.state_dict()
    taken = {}
    for parameter in encoder.state_dict():
        # layers.0 is layers_0 in a flattened extractor, and everything is below `model` in a wrapping one
        origins = (parameter, parameter.removeprefix("model."), re.sub(r"^([a-z_]+)_(\d+)\.", r"\1.\2.", parameter))
        origin = next((origin for origin in origins if origin in weights), None)
        if origin is None:
            raise InputError(f"the encoder of {name} has {parameter}, which the classifier does not have")
        taken[parameter] = weights[origin]
    encoder.load_state_dict(taken)


@torch.no_grad()
def _try(network: nn.Module, crop: int) -> None:
    """Raise here, before training, what a forward pass raises."""
    network.eval()
    output = network(torch.zeros(1, 3, crop, crop + STRIDE))
    network.train()
    if output.shape[-2:] != (crop, crop + STRIDE):
        raise ValueError(f"its output for {crop} pixels has {output.shape[-2]}")


def segmentation_models() -> Any:
    try:
        import segmentation_models_pytorch as smp
    except ImportError as error:
        raise InputError("mjp segment needs a package: pip install 'mjp[segment]'") from error
    return smp
