"""A backbone is trained with the model if it is asked for, and then belongs to it: saved, loaded, told apart."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aladin.tiny import backbone, captioned_pictures, settings
from mjp.aladin import index_pictures, open_index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.backbones import find_backbone
from mjp.aladin.training import engine
from mjp.aladin.training.config import parse_arguments
from mjp.aladin.training.engine import AladinRun, train
from mjp.common.errors import InputError
from mjp.common.fingerprint import fingerprint

LIVE: dict[str, Any] = {"train_backbone": True, "backbone_lr": 0.1, "align_objective": "infonce", "epochs": 1}


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "draw_curve", lambda *arguments: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captioned_pictures(tmp_path_factory.mktemp("captioned") / "data")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    backbone(tmp_path / "backbone")
    return tmp_path


def published(home: Path) -> dict[str, Tensor]:
    return find_backbone(str(home / "backbone")).model.state_dict()


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name in before if not name.endswith("_extra_state") and not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("phase", ["align", "joint"])
def test_the_gradient_reaches_the_backbone_only_if_it_is_trained(data: Path, home: Path, phase: str) -> None:
    for trained in (False, True):
        changes = LIVE if trained else {"epochs": 1}
        run = AladinRun(settings(data, home, phase=phase, out=home / str(trained), **changes))
        run.update(list(range(8)))
        gradients = [p.grad for p in run.model.vision.model.parameters() if p.grad is not None]
        assert bool(gradients) == trained
        assert bool(changed(published(home), run.model.vision.model.state_dict())) == trained
        assert all(bool(gradient.abs().max() > 0) for gradient in gradients)


def test_a_frozen_backbone_is_saved_to_the_bit(data: Path, home: Path) -> None:
    model = Aladin.load(train(settings(data, home, epochs=1)))
    assert not model.backbone_trained
    assert changed(published(home), model.vision.model.state_dict()) == set()


def test_a_trained_backbone_is_loaded_with_its_model(data: Path, home: Path) -> None:
    run = AladinRun(settings(data, home, phase="joint", **LIVE))
    model = Aladin.load(run.train())
    assert model.backbone_trained
    assert changed(run.model.vision.model.state_dict(), model.vision.model.state_dict()) == set()
    assert "model.blocks.0.attn.qkv.weight" in changed(published(home), model.vision.model.state_dict())
    image = torch.rand(2, 3, 32, 32)
    codes = run.model.encode_pictures(image)
    assert torch.equal(model.encode_pictures(image).vector, codes.vector)
    assert not codes.vector.requires_grad


def test_the_average_covers_the_backbone(data: Path, home: Path) -> None:
    run = AladinRun(settings(data, home, ema=0.5, **LIVE))
    model = Aladin.load(run.train())
    assert run.ema is not None
    averaged = run.ema.module["backbone"].state_dict()
    assert changed(averaged, model.vision.model.state_dict()) == set()
    assert changed(averaged, run.model.vision.model.state_dict())


def test_the_backbone_learns_at_its_own_rate(data: Path, home: Path) -> None:
    run = AladinRun(settings(data, home, **LIVE))
    run.update(list(range(8)))
    rates = {group["lr"] for group in run.optimizer.param_groups}
    assert max(rates) == pytest.approx(10 * min(rates))
    still = AladinRun(settings(data, home, out=home / "still", **LIVE | {"backbone_lr": 0.0, "weight_decay": 0.0}))
    still.update(list(range(8)))
    assert changed(published(home), still.model.vision.model.state_dict()) == set()


def test_the_first_step_is_that_of_frozen_features(data: Path, home: Path) -> None:
    """On the fly or from disk, in half precision, the same pictures in the same views give the same loss."""
    losses = [
        AladinRun(settings(data, home, out=home / name, **changes)).update(list(range(8)))["train_loss"]
        for name, changes in (("live", LIVE), ("disk", {"epochs": 1, "align_objective": "infonce"}))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_tokens_of_a_trained_backbone_are_not_kept_on_disk(data: Path, home: Path) -> None:
    train(settings(data, home, **LIVE))
    assert {path.name.partition("-")[0] for path in (home / "cache").iterdir()} == {"readable"}


@pytest.mark.parametrize("phase", ["align", "joint"])
def test_a_run_in_parts_is_the_run_as_a_whole(data: Path, home: Path, phase: str) -> None:
    changes: dict[str, Any] = {**LIVE, "phase": phase, "ema": 0.9, "chunk": 3, "epochs": 2}
    whole = Aladin.load(train(settings(data, home, **changes, out=home / "whole")))
    for stop in (1, 4, None):
        train(settings(data, home, **changes, out=home / "parts", stop_after=stop))
    parts = Aladin.load(home / "parts")
    assert parts.hash == whole.hash
    assert changed(parts.vision.model.state_dict(), whole.vision.model.state_dict()) == set()


def test_an_index_of_another_state_of_the_backbone_is_refused(data: Path, home: Path) -> None:
    first = train(settings(data, home, phase="joint", **LIVE))
    index_pictures(data / "images", home / "index", model=first, workers=0, device="cpu")
    before = open_index(home / "index").search("red sky", k=3)
    assert len(before) == 3
    model = Aladin.load(first)
    with torch.no_grad():
        next(model.vision.model.parameters()).add_(0.1)
    model.settle_backbone()
    model.save(first)  # everything but the backbone is as it was
    with pytest.raises(InputError, match="model"):
        open_index(home / "index").search("red sky", k=3)


def test_a_backbone_that_was_exchanged_is_refused(data: Path, home: Path) -> None:
    folder = train(settings(data, home, phase="joint", **LIVE))
    shutil.rmtree(folder / "backbone")
    shutil.copytree(home / "backbone", folder / "backbone")
    with pytest.raises(InputError, match="its weights differ"):
        _ = Aladin.load(folder).vision


def test_training_continues_from_a_trained_backbone(data: Path, home: Path) -> None:
    base = train(settings(data, home, phase="joint", out=home / "base", **LIVE))
    run = AladinRun(settings(data, home, init=base, out=home / "more"))
    weights = fingerprint(Aladin.load(base).vision.model.state_dict())
    assert fingerprint(run.model.vision.model.state_dict()) == weights
    more = Aladin.load(run.train())
    assert more.backbone_trained
    assert fingerprint(more.vision.model.state_dict()) == weights
    student = Aladin.load(train(settings(data, home, phase="distill", teacher=more.home, out=home / "student")))
    assert fingerprint(student.vision.model.state_dict()) == weights
    with pytest.raises(InputError, match="has trained its backbone"):
        AladinRun(settings(data, home, init=base, model={"backbone": str(base / "backbone")}, out=home / "other"))


def test_half_precision_trains(data: Path, home: Path) -> None:
    losses = {}
    for amp in ("none", "bf16"):
        run = AladinRun(settings(data, home, phase="joint", amp=amp, chunk=4, out=home / amp, **LIVE))
        losses[amp] = run.update(list(range(8)))["train_loss"]
        gradient = dict(run.trained.named_parameters())["backbone.model.patch_embed.proj.weight"].grad
        assert gradient is not None
        assert gradient.dtype == torch.float32
        assert 0 < float(gradient.norm()) < float("inf")
    assert losses["bf16"] == pytest.approx(losses["none"], rel=0.02)
    assert losses["bf16"] != losses["none"]


def test_what_cannot_be_trained_is_refused(data: Path, home: Path) -> None:
    with pytest.raises(InputError, match="goes with --phase align or joint"):
        settings(data, home, phase="distill", train_backbone=True)
    for name in ("lite0:classes", "lite2:classes"):
        with pytest.raises(InputError, match="what the backbone says of classes"):
            settings(data, home, train_backbone=True, model={"backbone": name})
    with pytest.raises(InputError, match="does not read --backbone-lr"):
        parse_arguments(["--phase", "align", "--backbone-lr", "0.5"], "")
    with pytest.raises(InputError, match="--chunk"):
        settings(data, home, chunk=0)


def test_an_unreadable_picture_is_named_before_training(data: Path, home: Path) -> None:
    shutil.copytree(data, home / "data")
    (home / "data" / "images" / "train03.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"1 unreadable pictures.*train03"):
        AladinRun(settings(home / "data", home, **LIVE))
    run = AladinRun(settings(home / "data", home, max_unreadable=1, **LIVE))
    assert len(run.corpus.items) == 23
    assert run.update(list(range(8)))["train_loss"] > 0


def test_the_recipe_for_coco_trains_everything() -> None:
    config = parse_arguments(["--recipe", "aladin_coco"], "")
    assert (config.phase, config.train_backbone, config.model.text) == ("joint", True, "open_clip")
