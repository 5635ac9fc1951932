"""What somebody asks an index: words, pictures, or a sum of both, and which of the answers to show.

"beach + sunset - people"   terms with signs: a sign stands at the start of a word and is followed by the next term;
                            a dash of any length is a minus, since keyboards of phones write them

A term is encoded alone and the vectors are added, those with a minus taken off by half: at full weight the answers lose
much of what should be there too. Only words can be aligned with patches, so a query with a picture or a minus is
answered by vectors alone.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mjp.aladin.index.filters import EVERYTHING, Filter
from mjp.aladin.model.codes import Codes, joined
from mjp.common.errors import InputError
from mjp.common.validate import whole

Sort = Literal["score", "date"]
MAX_TERMS = 16
MAX_RANK = 10_000  # how deep one may page
MINUS = 0.5  # weight of a term that is taken off
SIGN = re.compile(r"(?:^|(?<=\s))([+\-−–—])\s*(?=\S)")


class Term(NamedTuple):
    """A part of a query in words."""

    text: str
    minus: bool = False


@dataclass(frozen=True, kw_only=True)
class Request:
    """A query, and which of its matches to return."""

    text: str = ""
    picture: Path | None = None  # file of a picture to add
    like: str | None = None  # id of a picture of the index to add
    k: int = 10
    offset: int = 0  # matches to skip
    rerank: int = 20
    where: Filter = EVERYTHING
    sort: Sort = "score"

    def __post_init__(self) -> None:
        whole("-k", self.k, least=1, most=MAX_RANK)
        whole("--offset", self.offset, most=MAX_RANK)
        whole("--rerank", self.rerank)
        if self.sort not in ("score", "date"):
            raise InputError(f"--sort must be score or date, not {self.sort!r}")
        if not self.text.strip() and self.picture is None and self.like is None:
            raise InputError("search with a query in words, with a picture, or with both")
        if self.picture is None and self.like is None and all(term.minus for term in self.terms):
            raise InputError("a query needs something to look for beside what is taken off with a minus")

    @cached_property
    def terms(self) -> list[Term]:
        return read_terms(self.text)

    @property
    def by_words(self) -> bool:
        """Whether the matches can be sorted by alignment."""
        return self.picture is None and self.like is None and not any(term.minus for term in self.terms)


def read_terms(text: str) -> list[Term]:
    """The terms of a query; one without signs is one term."""
    if not text.strip():
        return []
    first, *rest = SIGN.split(text)
    pairs = [("+", first)] if first.strip() else []
    pairs += [(sign, term) for sign, term in zip(rest[::2], rest[1::2], strict=True) if term.strip()]
    if len(pairs) > MAX_TERMS:
        raise InputError(f"a query has at most {MAX_TERMS} terms, this one {len(pairs)}")
    return [Term(term.strip(), sign != "+") for sign, term in pairs]


def combined(terms: list[Term], words: list[Codes], pictures: list[Tensor]) -> Codes:
    """One query from the codes of its terms and the vectors (1, D) of its pictures; tokens of the words to look for."""
    vectors = [codes.vector.cpu() * (-MINUS if term.minus else 1) for term, codes in zip(terms, words, strict=True)]
    total = torch.cat([*vectors, *(vector.cpu() for vector in pictures)]).sum(0, keepdim=True)
    wanted = [codes for term, codes in zip(terms, words, strict=True) if not term.minus]
    if len(wanted) == len(words) == 1 and not pictures:
        return words[0]
    if not wanted:
        empty = torch.zeros(1, 0, dtype=torch.bool)
        return Codes(normalize(total, dim=-1), torch.zeros(1, 0, 1), empty, empty)
    tokens = torch.cat([codes.tokens[codes.valid].cpu() for codes in wanted]).unsqueeze(0)  # (1, L, A)
    valid = torch.ones(tokens.shape[:2], dtype=torch.bool)
    return joined([Codes(normalize(total, dim=-1), tokens, valid, ~valid)])
