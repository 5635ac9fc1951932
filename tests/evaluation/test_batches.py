"""Batches of an evaluation: whole sets, a fair part of them, and always the pixels that training saw."""

import mjp  # isort: skip  before timm: it makes torchvision importable

from collections import Counter
from pathlib import Path

import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st

from mjp.common.distributed import World
from mjp.evaluation.batches import batches, find_pictures
from mjp.evaluation.sweep import Sweep, sweep
from mjp.models import find_model
from mjp.pictures.preprocessing import Preprocessing
from mjp.pictures.sets import spread_over_classes
from mjp.training.evaluate import Unreadable

CPU = torch.device("cpu")


@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=80), limit=st.integers(1, 100))
def test_a_limit_gives_every_class_its_share(labels: list[int], limit: int) -> None:
    numbers = spread_over_classes(labels, limit)
    assert len(numbers) == len(set(numbers)) == min(limit, len(labels))
    assert numbers == sorted(numbers)
    taken, total = Counter(labels[number] for number in numbers), Counter(labels)
    for label, count in total.items():
        assert abs(taken[label] - len(numbers) * count / len(labels)) < 1


def test_no_limit_is_every_picture() -> None:
    assert spread_over_classes([1, 0, 1], None) == [0, 1, 2]


def measured(size: int, workers: int) -> Sweep:
    subject, pictures = find_model("mini-cifar10-mjp"), find_pictures("embedded")
    unreadable = Unreadable(0, World(0, 1, CPU))
    stream = batches(subject, pictures, size=size, limit=40, workers=workers, unreadable=unreadable)
    return sweep(subject.model, stream, [0.27], draws=1, seed=0, device=CPU)


def test_neither_batch_size_nor_workers_change_a_result() -> None:
    reference = measured(128, 0)
    assert reference.pictures == 40
    for other in (measured(7, 0), measured(7, 2)):
        for one, two in zip(reference.points, other.points, strict=True):
            assert one.metrics["consistency"] == two.metrics["consistency"]
            assert one.metrics["top1"] == two.metrics["top1"]


def test_a_convolutional_network_is_evaluated_at_the_size_it_was_trained_at(tmp_path: Path) -> None:
    """timm's configuration says 224: what the run used is stored with the model."""
    stored = Preprocessing((64, 64), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4), 0.9, "bilinear")
    model = mjp.MJP(timm.create_model("resnet18", num_classes=4), mjp.variant("E", cell=16))
    model.preprocessing = stored
    model.save_pretrained(tmp_path / "new")
    assert find_model(str(tmp_path / "new")).preprocessing == stored
    model.preprocessing = None  # a folder from before it was stored
    model.save_pretrained(tmp_path / "old")
    assert find_model(str(tmp_path / "old")).size == (224, 224)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", [0, 64]),
        ("size", [64.5, 64]),
        ("size", [10**9, 10**9]),
        ("mean", [0.5]),
        ("mean", [float("nan"), 0.5, 0.5]),
        ("std", [0, 0.5, 0.5]),
        ("crop_pct", 0),
        ("crop_pct", "large"),
        ("interpolation", "magic"),
        ("further", 1),
    ],
)
def test_damaged_preprocessing_is_refused(key: str, value: object) -> None:
    good = Preprocessing((64, 64), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)).to_dict()
    assert Preprocessing.from_dict(good).to_dict() == good
    with pytest.raises(mjp.InputError, match="preprocessing"):
        Preprocessing.from_dict({**good, key: value})
