"""The gradient in chunks, and of two processes, is that of the whole batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aladin.tiny import backbone, captioned_pictures, settings
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.training import engine
from mjp.aladin.training.config import AladinTraining
from mjp.aladin.training.engine import AladinRun, train
from mjp.common.distributed import join
from mjp.common.fingerprint import fingerprint
from processes import in_two_processes

EXACT: dict[str, Any] = {"epochs": 1, "model": {"dropout": 0.0, "word_drop": 0.0}}


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "draw_curve", lambda *arguments: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captioned_pictures(tmp_path_factory.mktemp("captioned") / "data")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    torch.manual_seed(0)
    backbone(folder / "backbone")
    return folder


def gradients(run: AladinRun, images: Tensor | None = None) -> dict[str, Tensor]:
    """Of the first eight pictures, in double precision where there is no file in between."""
    run.trained.double()
    run.trained.zero_grad(set_to_none=True)
    run.backward(run._draw(0, list(range(8))), images)
    return {name: p.grad for name, p in run.trained.named_parameters() if p.grad is not None}


def doubled(run: AladinRun) -> Tensor:
    """The pictures of the first step in double precision."""
    assert run.corpus.live is not None
    batch = run._draw(0, list(range(8)))
    return next(run.corpus.live.batches([list(zip(batch.numbers, batch.views, strict=True))])).double()


@pytest.mark.parametrize("chunk", [1, 3, 4])
@pytest.mark.parametrize("phase", ["align", "joint"])
@pytest.mark.parametrize("objective", ["triplet", "infonce"])
def test_chunks_give_the_gradient_of_the_whole_batch(
    data: Path, home: Path, phase: str, objective: str, chunk: int
) -> None:
    common: dict[str, Any] = {**EXACT, "phase": phase, "align_objective": objective, "train_backbone": True}
    runs = [AladinRun(settings(data, home, chunk=size, **common)) for size in (None, chunk)]
    whole, parts = (gradients(run, doubled(run)) for run in runs)
    assert whole.keys() == parts.keys()
    assert any(name.startswith("backbone.") for name in whole)
    for name in whole:
        assert float((whole[name] - parts[name]).abs().max()) <= 1e-10, name


def test_a_negative_in_another_chunk_counts(data: Path, home: Path) -> None:
    """Accumulating the losses of chunks would be another gradient."""
    run = AladinRun(settings(data, home, **EXACT, align_objective="infonce", train_backbone=True))
    images = doubled(run)
    whole = gradients(run, images)
    run.trained.zero_grad(set_to_none=True)
    batch = run._draw(0, list(range(8)))
    for start in (0, 4):
        part = slice(start, start + 4)
        captions = [c for c in batch.captions if int(run.corpus.owner[c]) in batch.numbers[part]]
        run.backward(
            batch._replace(numbers=batch.numbers[part], views=batch.views[part], captions=captions), images[part]
        )
    name = "backbone.model.patch_embed.proj.weight"
    accumulated = dict(run.trained.named_parameters())[name].grad
    assert accumulated is not None
    assert not torch.allclose(accumulated / 2, whole[name], rtol=1e-3)


def test_dropout_is_the_same_in_both_passes(data: Path, home: Path) -> None:
    """The second pass must push its gradients through the network that the loss saw."""
    run = AladinRun(settings(data, home, chunk=4, model={"dropout": 0.5}, epochs=1))
    run.model.train()
    first, *_ = run._chunks(run._draw(0, list(range(8))), None)
    torch.rand(7)  # whatever happens in between
    assert torch.equal(first().texts.tokens, first().texts.tokens)


def gradients_task(config: AladinTraining, target: str) -> None:
    with join("cpu") as world:
        run = AladinRun(config, world)
        found = gradients(run, doubled(run)[run._share()])
        if world.leads:
            torch.save(found, target)


def train_task(config: AladinTraining) -> None:
    engine.draw_curve = lambda *arguments: None
    train(config)


@pytest.mark.parametrize("phase", ["align", "joint"])
def test_two_processes_give_the_gradient_of_the_joined_batch(
    data: Path, home: Path, tmp_path: Path, phase: str
) -> None:
    common: dict[str, Any] = {**EXACT, "phase": phase, "align_objective": "infonce", "train_backbone": True}
    alone = AladinRun(settings(data, home, batch_size=8, **common))
    expected = gradients(alone, doubled(alone))
    target = str(tmp_path / "gradients.pt")
    config = settings(data, home, batch_size=4, chunk=3, **common)
    assert in_two_processes(gradients_task, config, target) == [0, 0]
    together = torch.load(target, weights_only=True)
    assert expected.keys() == together.keys()
    for name in expected:
        assert float((expected[name] - together[name]).abs().max()) <= 1e-10, name


def test_two_processes_stop_and_resume_to_the_same_bits(data: Path, home: Path) -> None:
    changes: dict[str, Any] = {"phase": "joint", "batch_size": 4, "train_backbone": True, "epochs": 1}
    for name, stops in (("whole", [None]), ("parts", [1, None])):
        for stop in stops:
            config = settings(data, home, out=home / name, stop_after=stop, **changes)
            assert in_two_processes(train_task, config) == [0, 0]
    whole, parts = (Aladin.load(home / name) for name in ("whole", "parts"))
    assert whole.hash == parts.hash
    assert fingerprint(whole.vision.model.state_dict()) == fingerprint(parts.vision.model.state_dict())
