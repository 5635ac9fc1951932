"""The text tower of a pretrained pair of open_clip, frozen; the backbone names the pair: --model.backbone
open_clip:NAME/TAG."""

from functools import cached_property

import torch

from mjp.aladin.model.clip_pair import PREFIX, load_pair, same_width, text_tokens
from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.text import Words
from mjp.aladin.model.tokenizer import words_of
from mjp.common.errors import InputError
from mjp.common.fingerprint import fingerprint


def frozen_width(config: AladinConfig) -> int:
    return TextTower(config).width


def create(config: AladinConfig, captions: list[str]) -> "TextTower":
    return TextTower(config)


def restore(config: AladinConfig, description: str) -> "TextTower":
    return TextTower(config)


class TextTower:
    """Texts into the pair's embedding and the tokens of their pieces. Not a torch module: nothing in it is trained."""

    def __init__(self, config: AladinConfig) -> None:
        if not config.backbone.startswith(PREFIX):
            raise InputError(
                "the text encoder open_clip is one tower of a pair: use --model.backbone open_clip:NAME/TAG"
            )
        self.pair = load_pair(config.backbone.removeprefix(PREFIX))
        self.width = self(["a"]).cls.shape[1]

    @torch.no_grad()
    def __call__(self, texts: list[str]) -> Words:
        model, tokenizer = self.pair.model, self.pair.tokenizer
        device = next(model.parameters()).device
        numbers = tokenizer([" ".join(words_of(text)) for text in texts]).to(device)  # (C, context)
        ends = (numbers == tokenizer.eot_token_id).int().argmax(1)  # the first one, if padding is the same
        embedding, tokens = same_width(*text_tokens(self.pair, numbers))
        longest = int(ends.max())
        valid = torch.arange(1, longest, device=device) < ends.unsqueeze(1)  # without start and end
        return Words(embedding, tokens[:, 1:longest], valid)

    @cached_property
    def weights(self) -> str:
        """Fingerprint of the text tower."""
        states = self.pair.model.state_dict().items()
        return fingerprint({name: tensor for name, tensor in states if not name.startswith("visual.")})

    def vocabulary(self) -> list[str]:
        return list(self.pair.tokenizer.encoder)

    def pieces(self, text: str) -> list[str]:
        tokenizer = self.pair.tokenizer
        numbers = tokenizer.encode(" ".join(words_of(text)))[: tokenizer.context_length - 2]
        return [tokenizer.decoder[number] for number in numbers]
