"""A table of words that a language model made: whole words, fixed vectors, and no language model afterwards."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aladin.tiny import backbone, captioned_pictures, settings
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.text import PieceTable, Words
from mjp.aladin.model.text_encoders import words as module
from mjp.aladin.model.text_encoders.words import word_tokenizer, word_vectors
from mjp.aladin.training.engine import train

CAPTIONS = ["a dog on the beach", "a doggo on the grass", "a doggo"]
VECTORS = {"dog": 0.0, "puppy": 0.2, "lorry": 3.0}


class Spoken:
    """Stands for MiniLM: words lie on a half circle, related ones side by side."""

    width = 384

    def vocabulary(self) -> list[str]:
        return ["[CLS]", "##ing", "dog", "puppy", "lorry", "x"]

    def __call__(self, texts: list[str]) -> Words:
        angle = torch.tensor([VECTORS.get(text, 1.0 + len(text) / 10) for text in texts])
        cls = torch.cat([angle.cos().unsqueeze(1), angle.sin().unsqueeze(1), torch.zeros(len(texts), 382)], 1)
        return Words(cls, cls.unsqueeze(1), torch.ones(len(texts), 1, dtype=torch.bool))


def vector(word: str) -> Tensor:
    source: Any = Spoken()
    tokenizer = word_tokenizer(CAPTIONS, 100, source)
    (number,) = tokenizer.encode(word)
    return word_vectors(tokenizer, source, 2)[number].float()


def test_words_of_the_language_model_and_of_several_captions_are_one_piece() -> None:
    source: Any = Spoken()
    tokenizer = word_tokenizer(CAPTIONS, 60, source)
    assert [len(tokenizer.encode(word)) for word in ("puppy", "lorry", "doggo", "x")] == [1, 1, 1, 1]
    assert len(tokenizer.encode("beaches")) > 1
    assert len(set(tokenizer.pieces)) == len(tokenizer)


def test_a_word_that_no_caption_holds_lies_near_what_it_resembles() -> None:
    assert (vector("puppy") - vector("dog")).norm() < 0.2 * (vector("lorry") - vector("dog")).norm()


def test_words_that_no_caption_holds_stay_and_no_language_model_is_needed_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MiniLM", Spoken)
    backbone(tmp_path / "backbone")
    config = settings(captioned_pictures(tmp_path / "data"), tmp_path, model={"text": "words", "word_width": 2})
    folder = train(config)
    monkeypatch.setattr(module, "MiniLM", lambda: pytest.fail("the language model is asked again"))
    model = Aladin.load(folder)
    assert isinstance(model.pieces, PieceTable)
    source: Any = Spoken()
    begun, table = word_vectors(model.pieces.tokenizer, source, 2), model.pieces.table.weight
    unseen, seen = (model.pieces.tokenizer.encode(word)[0] for word in ("lorry", "sky"))
    assert torch.equal(table[unseen], begun[unseen])
    assert not torch.equal(table[seen], begun[seen])
    taught = {"phase": "distill", "teacher": tmp_path / "run", "out": tmp_path / "student"}
    student = train(settings(config.data, tmp_path, **taught))
    assert torch.equal(Aladin.load(student).encode_texts(["puppy"]).tokens, model.encode_texts(["puppy"]).tokens)
