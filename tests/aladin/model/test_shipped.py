"""The model that comes with the package."""

from pathlib import Path

import pytest
import torch

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.shipped import HOME, SHIPPED, find_aladin
from mjp.common.errors import InputError


@pytest.fixture(scope="module")
def shipped() -> Aladin:
    return find_aladin(SHIPPED)


def test_it_is_small_and_has_a_card() -> None:
    files = list((HOME / SHIPPED).iterdir())
    assert sum(file.stat().st_size for file in files) < 20e6
    assert "rsum" in (HOME / SHIPPED / "README.md").read_text()


def test_it_reads_without_a_language_model(shipped: Aladin) -> None:
    assert shipped.config.text == "words"
    assert "minilm" not in shipped.__dict__


@pytest.mark.parametrize(("word", "meaning"), [("canine", 0), ("automobile", 1), ("bicyclist", 2), ("seashore", 3)])
def test_words_lie_near_what_they_mean(shipped: Aladin, word: str, meaning: int) -> None:
    """No caption that it was trained on holds `canine`, and one holds `automobile`."""
    known = shipped.encode_texts(["dog", "car", "bicycle", "beach", "snow", "boy", "football"]).vector
    assert (known @ shipped.encode_texts([word]).vector[0]).argmax() == meaning


def test_punctuation_and_capitals_say_nothing(shipped: Aladin) -> None:
    one, same, other = shipped.encode_texts(
        ["a dog runs on the beach", "A dog runs on the beach!", "a man climbs a rock"]
    ).vector
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no .*config.json"):
        find_aladin(str(tmp_path))
