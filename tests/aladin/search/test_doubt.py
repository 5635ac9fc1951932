"""Doubt: pictures that come as near to a query as training pictures do are believed, others are not."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from aladin.tiny import noise
from mjp.aladin.model.class_codes import WIDTH as CODE_WIDTH
from mjp.aladin.model.class_codes import class_codes
from mjp.aladin.model.reference import load_reference, save_reference
from mjp.aladin.search.doubt import BEST, Doubt, reach

WIDTH = 32


def a_model(folder: Path, *, channel: bool = False, reference: Tensor | None = None) -> Any:
    folder.mkdir(exist_ok=True)
    if reference is not None:
        save_reference(reference, folder)
    return SimpleNamespace(home=folder, channel=object() if channel else None)


def around(direction: Tensor, count: int, *, seed: int) -> Tensor:
    return normalize(direction + 0.05 * noise(count, len(direction), seed=seed), dim=-1)


def test_a_query_is_judged_by_its_scores_with_training_pictures(tmp_path: Path) -> None:
    query, away = normalize(noise(2, WIDTH, seed=9), dim=-1)
    pictures = normalize(noise(200, WIDTH, seed=3), dim=-1)
    asked = Doubt(a_model(tmp_path, reference=torch.cat([pictures, around(query, BEST, seed=4)])))
    assert asked.about(query, around(query, 5, seed=5)) is False
    assert asked.about(query, around(away, 5, seed=6)) is True


def test_a_query_that_is_far_from_everything_is_judged_by_that_scale(tmp_path: Path) -> None:
    """Flat thresholds fail here: the cosines are low although nothing nearer exists."""
    pictures = normalize(noise(200, WIDTH, seed=3), dim=-1)
    query = normalize(noise(WIDTH, seed=9), dim=0)
    best = pictures[(pictures @ query).topk(5).indices]
    assert (best @ query).max() < 0.7
    assert Doubt(a_model(tmp_path, reference=pictures)).about(query, best) is False


def test_a_class_is_missed_although_captions_would_match(tmp_path: Path) -> None:
    codes = normalize(class_codes(), dim=-1)
    cosines = codes @ codes[0]
    other = codes[int(cosines.argmin())]
    captions = normalize(noise(WIDTH, seed=2), dim=0)
    asked = Doubt(a_model(tmp_path, channel=True, reference=around(captions, 50, seed=7)))
    query = torch.cat([captions, codes[0]])
    pictures = around(captions, 4, seed=8)
    assert asked.about(query, torch.cat([pictures, codes[0].expand(4, CODE_WIDTH)], 1)) is False
    assert asked.about(query, torch.cat([pictures, other.expand(4, CODE_WIDTH)], 1)) is True


def test_nothing_is_said_without_a_reference_or_pictures(tmp_path: Path) -> None:
    query, pictures = noise(WIDTH), noise(5, WIDTH)
    assert Doubt(a_model(tmp_path / "a")).about(query, pictures) is None
    assert Doubt(a_model(tmp_path / "b", reference=pictures)).about(query, pictures[: BEST - 1]) is None


def test_the_reach_is_that_of_the_definition() -> None:
    query, pictures, others = noise(WIDTH), noise(6, WIDTH, seed=1), normalize(noise(40, WIDTH, seed=2), dim=-1)
    scores = sorted(float(p @ query / p.norm() / query.norm()) for p in pictures)[-BEST:]
    usual = sorted(float(o @ query / query.norm()) for o in others)
    mean = sum(usual) / len(usual)
    expected = (sum(scores) / BEST - mean) / (sum(usual[-2:]) / 2 - mean)
    assert reach(query, pictures, others, best=2) == pytest.approx(min(1.0, expected), abs=1e-5)
    assert reach(query, others[(others @ query).topk(BEST).indices], others, best=BEST) == pytest.approx(1.0)


def test_a_reference_is_read_as_it_was_written(tmp_path: Path) -> None:
    vectors = noise(7, WIDTH)
    save_reference(vectors, tmp_path)
    loaded = load_reference(tmp_path)
    assert loaded is not None
    assert torch.allclose(loaded, vectors, atol=1e-2)
    assert load_reference(tmp_path / "elsewhere") is None
