"""Words into pieces: byte-pair encoding, trained on captions, saved as JSON.

Common words are one piece; a new word falls back to shorter pieces and finally to letters, so a query with a digit or a
letter of the captions is never empty. A piece that starts a word carries the mark ▁. Words passed in stay whole.
"""

import heapq
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from mjp.common.errors import InputError
from mjp.common.read import parse_json

PADDING, UNKNOWN = "[pad]", "[unk]"
START = "▁"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
Pair = tuple[str, str]


def words_of(text: str) -> list[str]:
    """Lower-case words, letters and digits only; refuses a text that has none."""
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).lower())
    if not words:
        raise InputError(f"the query {text!r} contains no word: write at least one letter or digit")
    return words


class Tokenizer:
    """text → numbers of pieces; 0 is padding, 1 a character that did not occur in training."""

    def __init__(self, alphabet: list[str], merges: list[Pair], words: Iterable[str] = ()) -> None:
        self.alphabet = alphabet
        self.merges = merges
        self.words = frozenset(words)
        joined = ["".join(pair) for pair in merges]
        learned = {*alphabet, *joined}
        whole = [START + word for word in sorted(self.words) if START + word not in learned]
        self.pieces = [PADDING, UNKNOWN, *alphabet, *joined, *whole]
        self.numbers = {piece: number for number, piece in enumerate(self.pieces)}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.split = lru_cache(maxsize=65536)(self._split)

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        return [self.numbers.get(piece, 1) for word in words_of(text) for piece in self.split(word)]

    def _split(self, word: str) -> tuple[str, ...]:
        """Join neighbours in the order in which training joined them, until none can be joined."""
        if word in self.words:
            return (START + word,)
        symbols = _characters(word)
        while len(symbols) > 1:
            pairs = list(pairwise(symbols))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            symbols = _joined(symbols, best)
        return tuple(symbols)

    def to_json(self) -> str:
        content = {"alphabet": self.alphabet, "merges": self.merges, "words": sorted(self.words)}
        return json.dumps(content, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """The inverse of `to_json`; ValueError, KeyError or TypeError for any other text."""
        content = parse_json(text)
        merges = [(left, right) for left, right in content["merges"]]
        pieces = [*content["alphabet"], *content["words"], *(part for pair in merges for part in pair)]
        if not all(isinstance(piece, str) and piece for piece in pieces):
            raise ValueError("a piece must be a text")
        return cls(list(content["alphabet"]), merges, content["words"])


def train_tokenizer(texts: Iterable[str], size: int, words: Iterable[str] = ()) -> Tokenizer:
    """Join the most frequent pair of neighbours repeatedly, up to `size` pieces or until no pair occurs twice.

    `words` are added on top.
    """
    counts = Counter(word for text in texts for word in words_of(text))
    letters = set(LETTERS).union(*counts)
    alphabet = sorted(letters | {START + letter for letter in letters})
    spelt = {word: _characters(word) for word in counts}
    where: dict[Pair, set[str]] = defaultdict(set)
    total: Counter[Pair] = Counter()
    for word, symbols in spelt.items():
        _count(symbols, word, counts[word], total, where)
    heap = [(-count, pair) for pair, count in total.items()]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while heap and 2 + len(alphabet) + len(merges) < size:
        count, pair = heapq.heappop(heap)
        if -count != total[pair]:  # this entry is out of date
            continue
        if -count < 2:
            break
        merges.append(pair)
        changed: set[Pair] = set()
        for word in sorted(where[pair]):
            changed |= _count(spelt[word], word, -counts[word], total, where)
            spelt[word] = _joined(spelt[word], pair)
            changed |= _count(spelt[word], word, counts[word], total, where)
        for other in sorted(changed):
            heapq.heappush(heap, (-total[other], other))
    return Tokenizer(alphabet, merges, words)


def _count(symbols: list[str], word: str, times: int, total: Counter[Pair], where: dict[Pair, set[str]]) -> set[Pair]:
    """Count a word's pairs `times` times (negative: take them back); the pairs."""
    pairs = list(pairwise(symbols))
    for pair in pairs:
        total[pair] += times
        if times > 0:
            where[pair].add(word)
        else:
            where[pair].discard(word)
    return set(pairs)


def _characters(word: str) -> list[str]:
    return [START + word[0], *word[1:]]


def _joined(symbols: list[str], pair: Pair) -> list[str]:
    result: list[str] = []
    for symbol in symbols:
        if result and (result[-1], symbol) == pair:
            result[-1] += symbol
        else:
            result.append(symbol)
    return result
