"""A randomly initialised table of word pieces, trained with the model on the captions."""

from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.text import PieceTable
from mjp.aladin.model.tokenizer import Tokenizer, train_tokenizer


def frozen_width(config: AladinConfig) -> None:
    return None


def create(config: AladinConfig, captions: list[str]) -> PieceTable:
    return PieceTable(train_tokenizer(captions, config.vocabulary), config.width, drop=config.word_drop)


def restore(config: AladinConfig, description: str) -> PieceTable:
    return PieceTable(Tokenizer.from_json(description), config.width, drop=config.word_drop)
