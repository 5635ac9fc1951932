"""Precision by names and kinds of classes, against scikit-learn and by hand."""

from pathlib import Path

import pytest
import torch
from sklearn.metrics import average_precision_score

from aladin.tiny import noise
from mjp.aladin.evaluate.labels import MEASURES, class_queries, kind_queries, label_data, name_query, precision
from mjp.common.errors import InputError

CLASSES = ["Egyptian_cat", "tabby", "pug", "banana", "something else"]
LABELS = torch.tensor([0, 0, 1, 2, 3, 4])


def test_precision_by_hand() -> None:
    scores = torch.tensor([[9.0, 8, 7, 6, 5, 4, 3, 2, 1, 0]])
    right = torch.tensor([[True, False, True, False, False, True, False, False, False, False]])
    values = dict(zip(MEASURES, precision(scores, right)[0].tolist(), strict=True))
    assert values == pytest.approx({"p5": 0.4, "p10": 0.3, "r1": 1.0, "map": (1 + 2 / 3 + 3 / 6) / 3})


def test_average_precision_is_that_of_scikit_learn() -> None:
    scores, right = noise(6, 40), noise(6, 40, seed=2) > 0.5
    expected = [average_precision_score(r.numpy(), s.numpy()) for s, r in zip(scores, right, strict=True)]
    assert precision(scores, right)[:, 3].tolist() == pytest.approx(expected)


def test_equal_scores_count_against_the_scorer() -> None:
    right = torch.tensor([[True, False, False, True, False, False, False, False, False, False, False, False]])
    values = precision(torch.zeros(1, 12), right)[0]
    assert values[:3].tolist() == [0, 0, 0]


def test_a_class_asks_for_its_own_pictures() -> None:
    queries = class_queries(CLASSES, LABELS)
    assert queries.texts[0] == "a photo of an egyptian cat"
    assert queries.right.sum(1).tolist() == [2, 1, 1, 1, 1]
    assert queries.right[0].tolist() == [True, True, False, False, False, False]


def test_a_kind_asks_for_the_pictures_of_all_its_classes_and_unknown_classes_have_none() -> None:
    queries = kind_queries(CLASSES, LABELS)
    right = dict(zip(queries.texts, queries.right.tolist(), strict=True))
    assert right["a cat"] == [True, True, True, False, False, False]
    assert right["an animal"] == [True, True, True, True, False, False]
    assert right["a fruit"] == [False, False, False, False, True, False]
    assert "a vehicle" not in right  # true of none
    assert not kind_queries(["one thing", "another"], torch.tensor([0, 1])).texts


def test_a_kind_that_is_true_of_every_class_asks_nothing() -> None:
    assert "a dog" not in kind_queries(["pug", "beagle"], torch.tensor([0, 1])).texts


def test_names_become_questions() -> None:
    assert name_query("CD_player") == "a photo of a cd player"
    assert name_query("abacus") == "a photo of an abacus"


def test_a_folder_without_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 2 are needed"):
        label_data(tmp_path)
