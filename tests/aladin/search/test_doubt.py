"""Doubt: a query with an answer stands above the everyday words, one without does not, whatever the index is like."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from aladin.index.test_store import CONFIG
from aladin.tiny import noise
from mjp.aladin.index.catalogue import File
from mjp.aladin.index.store import Index, open_or_create
from mjp.aladin.model.codes import Codes
from mjp.aladin.search import doubt
from mjp.aladin.search.doubt import Doubt, standing

WIDTH, COUNT = 32, 200


class Words:
    """A model whose everyday words are random vectors."""

    def encode_texts(self, texts: list[str]) -> Codes:
        empty = torch.zeros(len(texts), 1, dtype=torch.bool)
        return Codes(normalize(noise(len(texts), WIDTH, seed=1), dim=-1), torch.zeros(len(texts), 1, 1), empty, empty)


def random_index(folder: Path, *answers: torch.Tensor, count: int = COUNT) -> Index:
    """Random pictures around a common direction, and pictures near to some queries."""
    index = open_or_create(folder, CONFIG)
    common = noise(1, WIDTH, seed=2)
    vectors = normalize(torch.cat([noise(count, WIDTH, seed=3) + common, *(6 * answer for answer in answers)]), dim=-1)
    valid = torch.ones(len(vectors), 1, dtype=torch.bool)
    names = [f"p{n}" for n in range(len(vectors))]
    files = [File(Path("/", name), name, None, 1, 1) for name in names]
    index.add(names, Codes(vectors, torch.zeros(len(vectors), 1, 1), valid, ~valid), files)
    return index


def is_doubted(asked: Doubt, index: Index, query: torch.Tensor) -> bool | None:
    best = (query @ torch.cat(index.vectors()).T)[0].topk(min(doubt.NEAREST, len(index)))
    return asked.about(index, index.codes(best.indices).vector, best.values)


def test_only_what_has_no_answer_is_in_doubt(tmp_path: Path) -> None:
    query = normalize(noise(1, WIDTH, seed=9), dim=-1)
    asked = Doubt(Words())  # type: ignore[arg-type]
    with_answer = random_index(tmp_path / "with", query.repeat(3, 1) + 0.1 * noise(3, WIDTH, seed=10))
    assert is_doubted(asked, with_answer, query) is False
    weak = normalize(query * 0.2 + asked.words.mean(0, keepdim=True), dim=-1)
    assert is_doubted(asked, random_index(tmp_path / "without"), weak) is True  # by the scale of the other index
    assert is_doubted(asked, random_index(tmp_path / "small", count=10), query) is None


def test_the_standing_is_that_of_the_definition() -> None:
    vectors, words = normalize(noise(4, 10, WIDTH), dim=-1), normalize(noise(30, WIDTH, seed=5), dim=-1)
    cosines = noise(4, 10, seed=6)
    expected = []
    for pictures, scores in zip(vectors, cosines, strict=True):
        usual = [words @ picture for picture in pictures]
        above = [float((s - u.mean()) / u.std()) for s, u in zip(scores, usual, strict=True)]
        expected.append(sum(sorted(above)[-doubt.BEST :]) / doubt.BEST)
    assert standing(vectors, cosines, words).tolist() == pytest.approx(expected, abs=1e-5)


def test_the_list_is_of_everyday_words() -> None:
    lines = (Path(doubt.__file__).parent / "everyday.txt").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 188
    assert all(line.split()[0] in ("a", "an") for line in lines)
