"""ALADIN: two encoders that never see each other, an alignment head that explains, a matching head that is quick.

model = Aladin.load(folder)
pictures = model.encode_pictures(images)           vectors (B, D) and patch tokens (B, R, A), no text needed
texts = model.encode_texts(["a dog on a beach"])   vectors (C, D) and word tokens (C, L, A)
pictures.vector @ texts.vector.T                   S^m, the matching score
model.alignment(pictures, texts)                   S^a, the alignment score

FOLDER/
  config.json         AladinConfig, fingerprints of the frozen parts, the model's hash
  model.safetensors   the trained weights; a frozen lite0 or MiniLM stays in its own package
  tokenizer.json      what a trained text encoder needs beside its weights
  backbone/           the backbone, unless it comes from a package; backbone.safetensors if that one was trained
"""

import json
import math
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from mjp.aladin.model.alignment import align
from mjp.aladin.model.backbones import is_packaged
from mjp.aladin.model.class_channel import ClassChannel, beside_patches, beside_words
from mjp.aladin.model.class_codes import WIDTH as CODE_WIDTH
from mjp.aladin.model.codes import Codes, Encoded
from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.encoders import MatchingHead, TokenEncoder, zero_linear
from mjp.aladin.model.eval_mode import evaluating
from mjp.aladin.model.saved import FORMAT, read_model_config
from mjp.aladin.model.saved_backbone import load_backbone, save_backbone, trainable
from mjp.aladin.model.text import FrozenTextEncoder, PieceTable, TrainedTextEncoder, Words
from mjp.aladin.model.text_encoders import text_encoder_module
from mjp.aladin.model.tokens import Tokens, canonical_order
from mjp.aladin.model.vision import Vision
from mjp.common.errors import InputError, first_line
from mjp.common.files import write_atomically
from mjp.common.fingerprint import fingerprint
from mjp.common.read import read_text
from mjp.common.weights import read_tensors
from mjp.method.plan import Plan

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"


class Aladin(nn.Module):
    """The trained parts, and references to the frozen ones."""

    def __init__(
        self,
        config: AladinConfig,
        vision: dict[str, Any],
        vision_width: int,
        text: TrainedTextEncoder | None = None,
        *,
        text_weights: str | None = None,
    ) -> None:
        """`vision`: Vision.identity of the backbone; `text`: the text encoder unless it is frozen, then its weights."""
        super().__init__()
        frozen_width = text_encoder_module(config.text).frozen_width(config)
        if (text is None) != (frozen_width is not None):
            raise InputError(f"the text encoder {config.text!r} {'is frozen' if text else 'must be passed'}")
        self.config = config
        self.saved_config = asdict(config)  # as config.json has it, where fields of later versions may be missing
        self.vision_identity = json.loads(json.dumps(vision))  # as config.json will hold it
        self.vision_width = vision_width
        self.text_weights = text_weights  # fingerprint of a frozen text encoder
        self.pieces = text  # None if frozen
        text_width = text.width if text is not None else cast(int, frozen_width)
        layers: dict[str, Any] = {"heads": config.heads, "dropout": config.dropout}
        codes = CODE_WIDTH if "classes" in self.vision_identity else 0
        self.picture_encoder = TokenEncoder(vision_width, config.width, layers=config.layers, codes=codes, **layers)
        self.text_encoder = TokenEncoder(text_width, config.width, layers=config.layers, **layers)
        self.picture_align = nn.Linear(config.width, config.align_width)
        self.text_align = nn.Linear(config.width, config.align_width)
        self.matching = MatchingHead(config.width, layers=config.match_layers, shared=config.match_shared, **layers)
        self.word_weight = zero_linear(config.width, 1) if config.alignment == "weighted" else None
        self.log_scale = nn.Parameter(torch.tensor(math.log(20.0)))  # of the student, log τ
        # of the alignment score under InfoNCE: a weighted one is at most 1
        self.log_align_scale = nn.Parameter(torch.tensor(0.0 if self.word_weight is None else math.log(20.0)))
        self.channel = ClassChannel() if config.class_channel else None
        if self.channel is not None and not (codes and isinstance(text, PieceTable) and text.width == CODE_WIDTH):
            raise InputError(
                "a class channel needs lite0:classes and a table of word vectors of width 128 (text words)"
            )
        # width of the embedding that a pretrained pair has for both sides, which is then the vector; 0 without one
        self.embedding: int = self.vision_identity.get("embedding", 0) if config.text == "open_clip" else 0
        self.alignment_trained = True  # False for such a pair as it was published
        self.home: Path | None = None  # the folder it was loaded from
        self.matching_trained = True  # --phase align leaves the matching head untrained: its vectors are noise

    # computing

    def encode_tokens(self, tokens: Tokens) -> Encoded:
        cls, patches = self.picture_encoder(tokens.cls, tokens.patches, tokens.valid)
        return Encoded(cls, patches, tokens.valid)

    def encode_words(self, words: Words) -> Encoded:
        cls, tokens = self.text_encoder(*words)
        return Encoded(cls, tokens, words.valid)

    def words(self, texts: list[str]) -> Words:
        if self.pieces is not None:
            return cast(Words, self.pieces(texts))
        device = self.log_scale.device
        return Words(*(t.to(device) for t in self.frozen_text(texts)))

    def piece_names(self, text: str) -> list[str]:
        """The pieces that the word tokens of a text stand for, in their order."""
        return (self.frozen_text if self.pieces is None else self.pieces).pieces(text)

    def aligned(self, encoded: Encoded, *, text: bool) -> Tensor:
        """(B, N, A) tokens of length 1, whose products are cosines; a weighted word is as long as it counts."""
        tokens = normalize((self.text_align if text else self.picture_align)(encoded.tokens), dim=-1)
        if not text or self.word_weight is None:
            return tokens
        weights = self.word_weight(encoded.tokens)  # (B, N, 1)
        return tokens * weights.masked_fill(~encoded.valid.unsqueeze(-1), -torch.inf).softmax(1)

    @property
    def class_width(self) -> int:
        """How many numbers at the end of vectors and tokens come from the class channel."""
        return 0 if self.channel is None else CODE_WIDTH

    @property
    def code_widths(self) -> tuple[int, int]:
        """Of the vectors and of the tokens in codes."""
        more = self.class_width
        return (self.embedding or self.config.width) + more, self.config.align_width + more

    def vectors(self, encoded: Encoded, *, text: bool) -> Tensor:
        return self.matching(*encoded, text=text)

    def pair_vectors(self, tokens: Tokens | Words) -> Tensor | None:
        """The embedding that a pretrained pair has for its input, which takes the place of the matching head."""
        return normalize(tokens.cls[:, : self.embedding], dim=-1) if self.embedding else None

    def alignment(self, pictures: Codes, texts: Codes) -> Tensor:
        """S^a (B, C)."""
        return align(pictures.tokens, pictures.valid, texts.tokens, texts.valid, mode=self.config.alignment)

    @torch.no_grad()
    def codes(self, tokens: Tokens | Words) -> Codes:
        """Codes of backbone tokens or of words, without dropout."""
        with evaluating(self):
            return self._codes(tokens)

    def _codes(self, tokens: Tokens | Words) -> Codes:
        text = isinstance(tokens, Words)
        encoded = self.encode_words(tokens) if isinstance(tokens, Words) else self.encode_tokens(tokens)
        unknown = torch.zeros_like(tokens.valid) if isinstance(tokens, Words) else tokens.unknown
        own = self.pair_vectors(tokens)
        vectors = self.vectors(encoded, text=text) if own is None else own
        codes = Codes(vectors, self.aligned(encoded, text=text), encoded.valid, unknown)
        if self.channel is None:
            return codes
        if isinstance(tokens, Words):
            return beside_words(codes, self.channel(self.word_vectors(tokens), tokens.valid))
        return beside_patches(codes, tokens.cls[..., -CODE_WIDTH:], tokens.patches[..., -CODE_WIDTH:])

    def word_vectors(self, words: Words) -> Tensor:
        """(C, L, D) rows of the table of words, without their places."""
        return words.words - cast(PieceTable, self.pieces).places[: words.words.shape[1]]

    def encode_pictures(self, images: Tensor, plan: Plan | None = None) -> Codes:
        """Codes of (B, 3, H, W) images from `vision.prepare`; under a plan the backbone must be an MJP model.

        Under a plan the tokens of hidden patches come in an order that reveals nothing about the picture's layout.
        """
        tokens = self.vision.tokens(images, plan)
        if plan is not None:
            tokens = canonical_order(tokens)
        return self.codes(Tokens(*(t.to(self.log_scale.device) for t in tokens)))

    @torch.no_grad()
    def encode_texts(self, texts: list[str]) -> Codes:
        with evaluating(self):  # once: visiting every module takes as long as a layer
            return self._codes(self.words(texts))

    def no_weight_decay(self) -> set[str]:
        """For timm's optimizers: with decay, words that no caption contains would shrink beside the others."""
        return {"pieces.table.weight"}

    # the frozen parts, loaded when they are needed

    @cached_property
    def vision(self) -> Vision:
        name = self.config.backbone
        vision = load_backbone(name, self.config.image_size, self.home, trained=self.backbone_trained)
        if json.loads(json.dumps(vision.identity())) != self.vision_identity:
            raise InputError(f"the backbone {name} is not the one that this model was trained with: its weights differ")
        vision.model.to(self.log_scale.device)
        return vision

    @cached_property
    def frozen_text(self) -> FrozenTextEncoder:
        """The text encoder, if it is frozen."""
        encoder = cast(FrozenTextEncoder, text_encoder_module(self.config.text).restore(self.config, ""))
        if self.text_weights is not None and encoder.weights != self.text_weights:
            raise InputError(
                f"the installed text encoder {self.config.text} is not the one that this model was trained with: its "
                "weights differ"
            )
        return encoder

    def train_backbone(self) -> nn.Module:
        """Give the model a copy of its backbone to train; `settle_backbone` follows before it is saved."""
        vision = trainable(self.vision)
        self.vision = vision
        return vision.model

    def settle_backbone(self) -> None:
        """Take the weights that the backbone has now for those that belong to the model."""
        self.vision_identity = json.loads(json.dumps(self.vision.identity()))

    @property
    def backbone_trained(self) -> bool:
        return bool(self.vision_identity.get("trained", False))

    # saving and loading

    @property
    def hash(self) -> str:
        """Changes whenever something changes that an encoding depends on."""
        description = "" if self.pieces is None else self.pieces.description
        # dropout and the backbone's name do not affect an encoding
        config = self.saved_config | {"dropout": None, "word_drop": None, "backbone": None}
        settings = json.dumps([config, self.vision_identity])
        return fingerprint(self.state_dict(), settings, description, self.text_weights or "")

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.detach().contiguous().cpu() for name, tensor in self.state_dict().items()}
        write_atomically(folder / WEIGHTS, lambda path: save_file(weights, path, metadata={"format": "pt"}))
        if self.pieces is not None:
            description = self.pieces.description + "\n"
            write_atomically(folder / TOKENIZER, lambda path: path.write_text(description, encoding="utf-8"))
        if self.backbone_trained or not is_packaged(self.config.backbone):
            save_backbone(self.vision, self.config.backbone, folder)
        config = {
            "format": FORMAT,
            "hash": self.hash,
            "vision": self.vision_identity,
            "vision_width": self.vision_width,
            "text_weights": self.text_weights,
            "matching_trained": self.matching_trained,
            "model": self.saved_config,
        }
        write_atomically(folder / CONFIG, lambda path: path.write_text(json.dumps(config, indent=2) + "\n"))

    @classmethod
    def load(cls, source: Path) -> "Aladin":
        """Load a model, or the model of a training run; in eval mode."""
        folder = source / "model" if (source / "model" / CONFIG).is_file() else source
        saved = read_model_config(folder / CONFIG)
        config = AladinConfig(**saved["model"])
        text_weights = saved.get("text_weights", saved.get("minilm_weights"))  # the latter until 0.1
        model = cls(
            config, saved["vision"], saved["vision_width"], load_text(config, folder), text_weights=text_weights
        )
        weights = read_tensors(folder / WEIGHTS, advice="copy or train the model again")
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise InputError(f"{folder / WEIGHTS} belongs to another model ({first_line(error)})") from error
        model.saved_config = saved["model"]
        model.matching_trained = saved.get("matching_trained", True)
        if model.hash != saved["hash"]:
            raise InputError(
                f"{folder} was changed after it was saved: its weights, tokenizer and config.json do not belong "
                "together; copy or train the model again"
            )
        model.home = folder
        return model.eval()


def load_text(config: AladinConfig, folder: Path) -> TrainedTextEncoder | None:
    """The text encoder of a saved model, before its weights are loaded; None if it is frozen."""
    module = text_encoder_module(config.text)
    if module.frozen_width(config) is not None:
        return None
    path = folder / TOKENIZER
    if not path.is_file():
        raise InputError(f"there is no {path}: copy or train the model again")
    description = read_text(path).removesuffix("\n")
    try:
        return cast(TrainedTextEncoder, module.restore(config, description))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a tokenizer of mjp aladin: copy or train the model again") from error
