"""Sums of terms: signs are read as people mean them, and the vector is the sum that the query says."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.search.request import MINUS, Request, read_terms
from mjp.aladin.search.searcher import PictureSearch
from mjp.common.errors import InputError


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a red sky", "+a red sky"),
        ("beach + sunset - people", "+beach +sunset -people"),
        ("beach +sunset -people", "+beach +sunset -people"),
        ("beach − people", "+beach -people"),
        ("a t-shirt and a C++ book", "+a t-shirt and a C++ book"),
        ("+ beach", "+beach"),
        ("- people + beach", "-people +beach"),
        ("  ", ""),
        ("beach – people", "+beach -people"),
        ("beach — people", "+beach -people"),
        ("beach + + sunset", "+beach +sunset"),
        ("+ + beach", "+beach"),
        ("beach + - people", "+beach -people"),
        ("sky - ", "+sky -"),
    ],
)
def test_signs(text: str, terms: str) -> None:
    read = read_terms(text)
    assert " ".join(("-" if term.minus else "+") + term.text for term in read) == terms


def test_the_vector_is_the_sum(model: Aladin, indexed: Path) -> None:
    searcher = PictureSearch(indexed, model)
    red, sky, blue = (model.encode_texts([word]).vector for word in ("red", "sky", "blue"))
    query = searcher.encode(Request(text="red + sky - blue"))
    torch.testing.assert_close(query.vector, normalize(red + sky - MINUS * blue, dim=-1))
    name = searcher.search("sky", k=1)[0].id
    picture = searcher.gallery.codes(name)
    assert picture is not None
    query = searcher.encode(Request(text="red", like=name))
    torch.testing.assert_close(query.vector, normalize(red + picture.vector, dim=-1))


def test_words_that_are_added_are_aligned_together(model: Aladin, indexed: Path) -> None:
    searcher = PictureSearch(indexed, model)
    both = {match.id: match.alignment for match in searcher.search("red + sky", k=10, rerank=10)}
    parts = [{m.id: m.alignment for m in searcher.search(text, k=10, rerank=10)} for text in ("red", "sky")]
    for name, score in both.items():
        assert score == pytest.approx(sum(part[name] or 0 for part in parts), abs=1e-5)


def test_with_a_minus_or_a_picture_vectors_decide(model: Aladin, indexed: Path, gallery: Path) -> None:
    searcher = PictureSearch(indexed, model)
    for matches in (searcher.search("red - sky"), searcher.search("red", picture=gallery / "a" / "01.png")):
        assert all(match.alignment is None for match in matches)
        assert [match.rank for match in matches] == list(range(1, 11))


def test_newest_first_is_the_same_matches(model: Aladin, indexed: Path) -> None:
    searcher = PictureSearch(indexed, model)
    best = searcher.search("sky", k=4)
    newest = searcher.search("sky", k=4, sort="date")
    assert {match.id for match in newest} == {match.id for match in best}
    assert [match.date for match in newest] == sorted((match.date for match in best), reverse=True)


def test_what_cannot_be_asked() -> None:
    for text, sentence in (("- people", "something to look for"), (" + ".join("a" * 17), "at most 16 terms")):
        with pytest.raises(InputError, match=sentence):
            Request(text=text)
    with pytest.raises(InputError, match="--sort"):
        Request(text="sky", sort="name")  # type: ignore[arg-type]
