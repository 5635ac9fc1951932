"""The second lesson: classes beside captions, in both phases, with a backbone that has a classifier."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aladin.tiny import backbone, captioned_pictures, settings
from mjp.aladin.data.classes import CLASSES
from mjp.aladin.model import aladin, saved_backbone
from mjp.aladin.model.backbones import find_backbone
from mjp.aladin.model.class_codes import ClassCodes
from mjp.aladin.model.vision import Vision
from mjp.aladin.training import build, engine
from mjp.aladin.training.engine import AladinRun, train
from mjp.common.errors import InputError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lesson")
    torch.manual_seed(0)
    backbone(folder / "backbone")
    captioned_pictures(folder / "data")
    return folder


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mjp.aladin.training.lesson.VARIANTS", 1)


@pytest.fixture(autouse=True)
def _classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny backbone gets a classifier of a thousand classes."""

    def find(name: str, size: int | None = None) -> Vision:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            head = nn.Linear(24, CLASSES)
        return replace(find_backbone(name, size), classes=ClassCodes(head))

    for module in (saved_backbone, build):
        monkeypatch.setattr(module, "find_backbone", find)
    monkeypatch.setattr(engine, "draw_curve", lambda *arguments: None)


def run_settings(home: Path, **changes: Any) -> Any:
    return settings(home / "data", home, classes=6, patch_share=0.5, **changes)


def epochs(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "epoch"]


def test_both_phases_learn_classes_and_the_teacher_stays(home: Path) -> None:
    taught = train(run_settings(home, out=home / "align", align_objective="infonce", model={"alignment": "weighted"}))
    first, *_, last = epochs(home / "align")
    assert last["train_align_classes"] < first["train_align_classes"]
    student = train(run_settings(home, phase="distill", out=home / "distill", teacher=home / "align"))
    assert "train_match_classes" in epochs(home / "distill")[0]
    before, after = (aladin.Aladin.load(folder) for folder in (taught, student))
    assert torch.equal(before.text_align.weight, after.text_align.weight)
    weights = after.encode_texts(["a red sky over the green ground"]).tokens.norm(dim=-1)
    torch.testing.assert_close(weights.sum(), torch.tensor(1.0))
    assert after.config.alignment == "weighted"


def test_a_continued_model_starts_where_the_other_ended(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new parts start at nothing: tokens and vectors are the same, a weighted score is the mean, not the sum."""
    with monkeypatch.context() as plain:
        for module in (saved_backbone, build):
            plain.setattr(module, "find_backbone", find_backbone)
        base = train(settings(home / "data", home, phase="joint", out=home / "base", objective="infonce"))
    run = AladinRun(run_settings(home, out=home / "more", init=base, model={"alignment": "weighted"}))
    before, after = aladin.Aladin.load(base), run.model.eval()
    tokens = run.corpus.tokens([0, 1, 2])
    features = tokens._replace(cls=tokens.cls[:, :24], patches=tokens.patches[..., :24])
    texts = ["red sky", "the blue ground"]  # two and three words
    pictures = before.codes(features), after.codes(tokens)
    torch.testing.assert_close(pictures[0].vector, pictures[1].vector)
    torch.testing.assert_close(pictures[0].tokens, pictures[1].tokens)
    sums = before.alignment(pictures[0], before.encode_texts(texts))
    pieces = torch.tensor([len(before.piece_names(text)) for text in texts])
    torch.testing.assert_close(after.alignment(pictures[1], after.encode_texts(texts)), sums / pieces)


def test_a_model_of_another_shape_cannot_be_continued(home: Path) -> None:
    with pytest.raises(InputError, match="another shape"):
        AladinRun(run_settings(home, out=home / "odd", init=home / "base", model={"width": 32}))


def test_what_is_true_is_what_the_classifier_says(home: Path) -> None:
    run = AladinRun(run_settings(home, out=home / "drawn"))
    assert run.lessons is not None
    lesson = run.lessons.draw([0, 1, 2], [0, 1, 0], torch.Generator().manual_seed(0))
    assert lesson.relevance.shape == (3 + 6, 6)
    assert len(lesson.texts) == len(lesson.tokens.cls) == 6
    assert 0 <= float(lesson.relevance.min()) <= float(lesson.relevance.max()) <= 1
    again = run.lessons.draw([0, 1, 2], [0, 1, 0], torch.Generator().manual_seed(0))
    assert again.texts == lesson.texts
    assert torch.equal(again.relevance, lesson.relevance)


def test_a_backbone_without_classes_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (saved_backbone, build):
        monkeypatch.setattr(module, "find_backbone", find_backbone)
    with pytest.raises(InputError, match="lite0:classes"):
        AladinRun(run_settings(home, out=home / "plain"))
