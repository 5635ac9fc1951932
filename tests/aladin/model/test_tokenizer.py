"""Pieces: common words whole, any word in some way, nothing lost on the way to JSON and back."""

import pytest

from mjp.aladin.model.tokenizer import Tokenizer, train_tokenizer, words_of
from mjp.common.errors import InputError

TEXTS = ["A dog runs on the beach .", "the dog jumps", "Two dogs and a cat"] * 4


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, 400)


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.pieces[number] for number in tokenizer.encode(text)]


def test_a_word_of_the_captions_is_one_piece(tokenizer: Tokenizer) -> None:
    assert pieces(tokenizer, "The DOG, runs!") == ["▁the", "▁dog", "▁runs"]


@pytest.mark.parametrize("word", ["zebra", "dogbeach", "x", "42"])
def test_a_word_never_seen_is_spelt(tokenizer: Tokenizer, word: str) -> None:
    found = pieces(tokenizer, word)
    assert "".join(found) == "▁" + word
    assert 1 not in tokenizer.encode(word)


def test_a_letter_never_seen_is_the_unknown_piece(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("犬") == [1]


@pytest.mark.parametrize("text", ["", "  ", "?!", "___", "…", "🐕"])
def test_a_query_without_a_word_is_refused(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(InputError, match="contains no word"):
        tokenizer.encode(text)


def test_words_are_lower_case_and_without_punctuation() -> None:
    assert words_of("A dog's ﬁrst T-shirt") == ["a", "dog", "s", "first", "t", "shirt"]


def test_the_most_frequent_pair_is_joined_first() -> None:
    assert train_tokenizer(["ab ab ab cd cd"], 1000).merges == [("▁a", "b"), ("▁c", "d")]


def test_the_size_is_kept(tokenizer: Tokenizer) -> None:
    small = train_tokenizer(TEXTS, 90)
    assert len(small) == len(small.pieces) == 90
    assert len(set(tokenizer.pieces)) == len(tokenizer)


def test_training_is_deterministic() -> None:
    assert train_tokenizer(TEXTS, 120).to_json() == train_tokenizer(list(reversed(TEXTS)), 120).to_json()


def test_it_comes_back_from_json(tokenizer: Tokenizer) -> None:
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.to_json() == tokenizer.to_json()
    assert again.encode("a doghouse on the beach") == tokenizer.encode("a doghouse on the beach")
