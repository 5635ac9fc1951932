"""The shape of an ALADIN model. No torch in here: the command line prints its help from this file."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Literal, get_args

import tyro

from mjp.common.errors import InputError, shorten
from mjp.common.validate import fraction, whole

Alignment = Literal["MrSw", "MwSr", "sym", "MrAVGw", "weighted"]
MAX_WIDTH, MAX_LAYERS = 16_384, 256  # beyond these a file that claims to be a model would exhaust the memory


@cache
def text_encoder_names() -> tuple[str, ...]:
    """The files in text_encoders/, listed without importing them."""
    return tuple(module.name for module in iter_modules([str(Path(__file__).parent / "text_encoders")]))


@dataclass(kw_only=True, frozen=True)
class AladinConfig:
    """The shape of a model around a vision backbone."""

    backbone: str = "lite0"
    """lite0 or lite2 (from packages of their own), lite0:classes or lite2:classes (and what the classifier says of
    every patch), a folder of an MJP model, timm:NAME, a hub repository, or open_clip:NAME/TAG (mjp[clip]). It stays
    frozen unless --train-backbone says otherwise."""
    image_size: int | None = None
    """Side of the input in pixels; default: the backbone's own."""
    text: Annotated[str, tyro.conf.arg(metavar="|".join(text_encoder_names()))] = "pieces"
    """Text encoder. words: a table of word vectors initialised from MiniLM (mjp[minilm]); pieces: a randomly
    initialised table of word pieces; minilm: MiniLM itself, frozen, which is then needed for every query;
    open_clip: the text tower of the backbone's pair, whose own embeddings are then the vectors."""
    vocabulary: int = 4096
    """Number of word pieces learned from the captions; whole words of a table come on top."""
    word_width: int = 128
    """Width of the table of word vectors."""
    width: int = 192
    """Width of tokens and vectors."""
    layers: int = 2
    """Transformer layers of each encoder."""
    heads: int = 4
    """Attention heads in every layer."""
    align_width: int = 128
    """Width in which patches and words are compared."""
    alignment: Alignment = "MrSw"
    """The alignment score, in training and in use."""
    match_layers: int = 2
    """Transformer layers of the matching head."""
    match_shared: bool = True
    """Share one matching head between pictures and texts."""
    class_channel: bool = False
    """Also compare the classes that words and picture mean; added to a trained model by --phase classes."""
    dropout: float = 0.1
    """Dropout of the encoders and the matching head."""
    word_drop: float = 0.1
    """Share of word pieces hidden from the text encoder during training."""

    def __post_init__(self) -> None:
        if self.text not in text_encoder_names():
            names = ", ".join(text_encoder_names())
            raise InputError(f"there is no text encoder {shorten(self.text)}: choose one of {names}")
        for name in ("word_width", "width", "heads", "align_width"):
            whole(name, getattr(self, name), least=1, most=MAX_WIDTH)
        for name in ("layers", "match_layers"):
            whole(name, getattr(self, name), least=1, most=MAX_LAYERS)
        whole("vocabulary", self.vocabulary, least=1)
        for name in ("dropout", "word_drop"):
            fraction(name, getattr(self, name))
        flags = (self.match_shared, self.class_channel)
        if not isinstance(self.backbone, str) or not all(isinstance(flag, bool) for flag in flags):
            raise InputError("backbone must be a name, match_shared and class_channel true or false")
        if self.alignment not in get_args(Alignment):
            raise InputError(
                f"alignment {shorten(self.alignment)} is unknown: choose from {', '.join(get_args(Alignment))}"
            )
        if self.width % self.heads:
            raise InputError(f"width {self.width} must be a multiple of heads {self.heads}")
