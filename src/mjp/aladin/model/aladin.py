"""ALADIN: two encoders that never meet, an alignment head that explains, a matching head that is quick.

model = Aladin.load(folder)
pictures = model.encode_pictures(images)           vectors (B, D) and patch tokens (B, R, A), no text needed
texts = model.encode_texts(["a dog on a beach"])   vectors (C, D) and word tokens (C, L, A)
pictures.vector @ texts.vector.T                   S^m, the matching score
model.alignment(pictures, texts)                   S^a, the alignment score

FOLDER/
  config.json         AladinConfig, what the backbone and MiniLM must be, whether vectors were trained, the model's hash
  model.safetensors   our weights; a frozen lite0 or MiniLM stays in its own package
  tokenizer.json      pieces and words, unless the text comes from MiniLM
  backbone/           the backbone, if it is not lite0
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from mjp.aladin.model.alignment import align
from mjp.aladin.model.encoders import Encoder, MatchingHead
from mjp.aladin.model.text import MiniLM, PieceTable, Words
from mjp.aladin.model.tokenizer import Tokenizer
from mjp.aladin.model.tokens import Tokens, canonical_order
from mjp.aladin.model.vision import Vision, find_backbone
from mjp.aladin.training.config import AladinConfig
from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.fingerprint import fingerprint
from mjp.method.plan import Plan

FORMAT = "mjp-aladin-1"
CONFIG, WEIGHTS, TOKENIZER, BACKBONE = "config.json", "model.safetensors", "tokenizer.json", "backbone"


class Encoded(NamedTuple):
    """Tokens of one modality after its encoder."""

    cls: Tensor  # (B, D)
    tokens: Tensor  # (B, N, D)
    valid: Tensor  # (B, N) bool


class Codes(NamedTuple):
    """All that search needs to know about pictures or texts."""

    vector: Tensor  # (B, D), length 1
    tokens: Tensor  # (B, N, A), length 1
    valid: Tensor  # (B, N) bool
    unknown: Tensor  # (B, N) bool: patches without a position; False for words


class Aladin(nn.Module):
    """The trained parts, and references to the frozen ones."""

    def __init__(
        self,
        config: AladinConfig,
        vision: dict[str, Any],
        vision_width: int,
        tokenizer: Tokenizer | None = None,
        *,
        minilm_weights: str | None = None,
    ) -> None:
        super().__init__()
        if (tokenizer is None) != (config.text == "minilm"):
            raise InputError("a model whose text is 'minilm' brings its own, any other needs a tokenizer")
        self.config, self.vision_width = config, vision_width
        self.described = asdict(config)  # as config.json has it, where fields of later versions may be missing
        self.minilm_weights = minilm_weights  # what MiniLM must be, if the text comes from it
        self.vision_facts = json.loads(json.dumps(vision))  # as config.json will hold them
        common: dict[str, Any] = {"heads": config.heads, "dropout": config.dropout}
        width, narrow = config.width, config.align_width
        self.pieces: PieceTable | None = None
        text_width = MiniLM.width
        if tokenizer is not None:
            text_width = config.word_width if config.text == "words" else width
            self.pieces = PieceTable(tokenizer, text_width, drop=config.word_drop)
        self.picture_encoder = Encoder(vision_width, width, layers=config.layers, **common)
        self.text_encoder = Encoder(text_width, width, layers=config.layers, **common)
        self.picture_align, self.text_align = nn.Linear(width, narrow), nn.Linear(width, narrow)
        self.matching = MatchingHead(width, layers=config.match_layers, shared=config.match_shared, **common)
        self.log_scale = nn.Parameter(torch.tensor(math.log(20.0)))  # of the student, log τ
        self.log_align_scale = nn.Parameter(torch.tensor(0.0))  # of the alignment score under InfoNCE
        self.home: Path | None = None  # the folder it was loaded from
        self.matching_trained = True  # --phase align leaves the matching head as it was drawn: its vectors are noise

    # what is computed

    def encode_tokens(self, tokens: Tokens) -> Encoded:
        cls, patches = self.picture_encoder(tokens.cls, tokens.patches, tokens.valid)
        return Encoded(cls, patches, tokens.valid)

    def encode_words(self, words: Words) -> Encoded:
        cls, tokens = self.text_encoder(*words)
        return Encoded(cls, tokens, words.valid)

    def words(self, texts: list[str]) -> Words:
        if self.pieces is not None:
            return self.pieces(texts)
        device = self.log_scale.device
        return Words(*(t.to(device) for t in self.minilm(texts)))

    def piece_names(self, text: str) -> list[str]:
        """What the word tokens of a text stand for, in their order."""
        return (self.minilm if self.pieces is None else self.pieces).pieces(text)

    def aligned(self, encoded: Encoded, *, text: bool) -> Tensor:
        """(B, N, A) tokens of length 1 whose products are cosines."""
        return normalize((self.text_align if text else self.picture_align)(encoded.tokens), dim=-1)

    def vectors(self, encoded: Encoded, *, text: bool) -> Tensor:
        return self.matching(*encoded, text=text)

    def alignment(self, pictures: Codes, texts: Codes) -> Tensor:
        """S^a (B, C)."""
        return align(pictures.tokens, pictures.valid, texts.tokens, texts.valid, mode=self.config.alignment)

    @torch.no_grad()
    def codes(self, given: Tokens | Words) -> Codes:
        """Codes of backbone tokens or of words, without dropout."""
        with evaluating(self):
            return self._codes(given)

    def _codes(self, given: Tokens | Words) -> Codes:
        text = isinstance(given, Words)
        encoded = self.encode_words(given) if isinstance(given, Words) else self.encode_tokens(given)
        unknown = torch.zeros_like(given.valid) if isinstance(given, Words) else given.unknown
        return Codes(self.vectors(encoded, text=text), self.aligned(encoded, text=text), encoded.valid, unknown)

    def encode_pictures(self, images: Tensor, plan: Plan | None = None) -> Codes:
        """Codes of (B, 3, H, W) images that `vision.prepare` made; under a plan the backbone must be an MJP model.

        Then the tokens of hidden patches come in an order that tells nothing about the picture's layout.
        """
        tokens = self.vision.tokens(images, plan)
        if plan is not None:
            tokens = canonical_order(tokens)
        return self.codes(Tokens(*(t.to(self.log_scale.device) for t in tokens)))

    @torch.no_grad()
    def encode_texts(self, texts: list[str]) -> Codes:
        with evaluating(self):  # once: looking at every module takes as long as a layer
            return self._codes(self.words(texts))

    def no_weight_decay(self) -> set[str]:
        """For timm's optimizers: words that no caption holds would shrink beside the others."""
        return {"pieces.table.weight"}

    # what is frozen, found when it is needed

    @cached_property
    def vision(self) -> Vision:
        own = None if self.home is None else self.home / BACKBONE
        name = self.config.backbone if own is None or not own.is_dir() else str(own)
        found = find_backbone(name, self.config.image_size)
        if json.loads(json.dumps(found.facts())) != self.vision_facts:
            raise InputError(f"the backbone {name} is not the one that this model was trained with: its weights differ")
        found.model.to(self.log_scale.device)
        return found

    @cached_property
    def minilm(self) -> MiniLM:
        found = MiniLM()
        if self.minilm_weights is not None and found.weights != self.minilm_weights:
            raise InputError("the installed MiniLM is not the one that this model was trained with: its weights differ")
        return found

    # in and out

    @property
    def hash(self) -> str:
        """Changes when anything changes that an encoding depends on."""
        tokenizer = "" if self.pieces is None else self.pieces.tokenizer.to_json()
        # dropout and the name of the backbone say nothing about what comes out
        facts = self.described | {"dropout": None, "word_drop": None, "backbone": None}
        frozen = self.minilm_weights or ""
        return fingerprint(self.state_dict(), json.dumps([facts, self.vision_facts]), tokenizer, frozen)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.detach().contiguous().cpu() for name, tensor in self.state_dict().items()}
        write_atomically(folder / WEIGHTS, lambda path: save_file(weights, path, metadata={"format": "pt"}))
        if self.pieces is not None:
            self.pieces.tokenizer.save(folder / TOKENIZER)
        if self.config.backbone != "lite0":
            self.vision.model.save_pretrained(folder / BACKBONE)  # type: ignore[operator]
        facts = {
            "format": FORMAT,
            "hash": self.hash,
            "vision": self.vision_facts,
            "vision_width": self.vision_width,
            "minilm_weights": self.minilm_weights,
            "matching_trained": self.matching_trained,
            "model": self.described,
        }
        write_atomically(folder / CONFIG, lambda path: path.write_text(json.dumps(facts, indent=2) + "\n"))

    @classmethod
    def load(cls, source: Path) -> "Aladin":
        """Read a model, or the model of a training run; in eval mode."""
        folder = source / "model" if (source / "model" / CONFIG).is_file() else source
        facts = _read_config(folder / CONFIG)
        config = AladinConfig(**facts["model"])
        tokenizer = None if config.text == "minilm" else Tokenizer.load(folder / TOKENIZER)
        frozen = facts.get("minilm_weights")
        model = cls(config, facts["vision"], facts["vision_width"], tokenizer, minilm_weights=frozen)
        try:
            model.load_state_dict(load_file(folder / WEIGHTS))
        except (OSError, SafetensorError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise InputError(f"{folder / WEIGHTS} is missing, damaged or of another model: {reason}") from error
        model.described, model.matching_trained = facts["model"], facts.get("matching_trained", True)
        if model.hash != facts["hash"]:
            raise InputError(
                f"{folder} is not as it was saved: its weights, tokenizer and config.json do not belong together; copy "
                "or train the model anew"
            )
        model.home = folder
        return model.eval()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout, whatever mode its parts are in; afterwards each as before."""
    training = [module for module in model.modules() if module.training]  # in use there is none, and nothing to do
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"there is no {path}: give the folder of a model or of a run of mjp aladin train")
    try:
        facts = json.loads(path.read_text())
        if facts["format"] != FORMAT or not {"model", "vision", "vision_width", "hash"} <= set(facts):
            raise KeyError("format")
        AladinConfig(**facts["model"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not describe a model of mjp aladin") from error
    return facts
