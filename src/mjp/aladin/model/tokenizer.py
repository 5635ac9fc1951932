"""Words into pieces: byte-pair encoding, trained on captions, saved as JSON.

Common words are one piece; a word never seen falls back to shorter pieces and at last to letters, so no query that has
one of the captions' letters or a digit in it is empty. A piece that begins a word carries the mark ▁. Given words are
one piece each.
"""

import heapq
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from mjp.common.errors import InputError
from mjp.common.files import write_atomically

PADDING, UNKNOWN = "[pad]", "[unk]"
START = "▁"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
Pair = tuple[str, str]


def words_of(text: str) -> list[str]:
    """Lower-case words, letters and digits only; refuses a text that has none."""
    found = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).lower())
    if not found:
        raise InputError(f"the query {text!r} has no word in it: write at least one letter or digit")
    return found


class Tokenizer:
    """text → numbers of pieces; number 0 is padding, 1 a character that training never saw."""

    def __init__(self, alphabet: list[str], merges: list[Pair], words: Iterable[str] = ()) -> None:
        self.alphabet, self.merges, self.words = alphabet, merges, frozenset(words)
        joined = ["".join(pair) for pair in merges]
        known = {*alphabet, *joined}
        whole = [START + word for word in sorted(self.words) if START + word not in known]
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
        facts = {"alphabet": self.alphabet, "merges": self.merges, "words": sorted(self.words)}
        return json.dumps(facts, ensure_ascii=False)

    def save(self, path: Path) -> None:
        write_atomically(path, lambda temporary: temporary.write_text(self.to_json() + "\n", encoding="utf-8"))

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            merges = [(left, right) for left, right in facts["merges"]]
            return cls(list(facts["alphabet"]), merges, facts["words"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is missing or not a tokenizer of mjp aladin: {error}") from error


def train_tokenizer(texts: Iterable[str], size: int, words: Iterable[str] = ()) -> Tokenizer:
    """Join the most frequent pair of neighbours again and again, up to `size` pieces or until no pair occurs twice.

    `words` come on top of these.
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
    """Enter a word's pairs `times` times, or with a negative number take them back; the pairs."""
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
