"""Text encoders: how a caption or a query becomes word tokens. One encoder is one file in this folder, selected by its
file name (`--model.text NAME`), with three functions:

frozen_width(config)            width of its tokens if it is frozen, None if it is trained with the model
create(config, captions)        the encoder of a new model
restore(config, description)    the encoder of a saved model, from what `description` said; weights are loaded later

A trained encoder is a TrainedTextEncoder, a frozen one a FrozenTextEncoder (model/text.py).
"""

from importlib import import_module
from typing import Protocol, cast

from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.text import FrozenTextEncoder, TrainedTextEncoder


class TextEncoderModule(Protocol):
    """A file of this folder."""

    def frozen_width(self, config: AladinConfig) -> int | None: ...
    def create(self, config: AladinConfig, captions: list[str]) -> TrainedTextEncoder | FrozenTextEncoder: ...
    def restore(self, config: AladinConfig, description: str) -> TrainedTextEncoder | FrozenTextEncoder: ...


def text_encoder_module(name: str) -> TextEncoderModule:
    """The file of that name; AladinConfig has checked that it exists."""
    return cast(TextEncoderModule, import_module(f"{__name__}.{name}"))
