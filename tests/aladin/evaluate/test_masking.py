"""Recall against the mask ratio: what is compared with what, and a gate that closes when the curve means nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from aladin.tiny import backbone, captioned_pictures, settings
from mjp.aladin.data.captions import in_split, load_captions
from mjp.aladin.data.corpus import Corpus
from mjp.aladin.evaluate.masking import _codes, gate, gate_sentences, mask_curve, vit_of
from mjp.aladin.index.encode import PictureEncoder
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.training.build import fresh_model
from mjp.cli.main import main
from mjp.common.errors import InputError
from mjp.common.seeds import derive_seed
from mjp.method.model import MJP
from mjp.pictures.decode import open_rgb


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masking")
    captioned_pictures(folder / "data", train=6)
    torch.manual_seed(0)
    backbone(folder / "backbone")
    fresh_model(settings(folder / "data", folder), load_captions(folder / "data")).save(folder / "model")
    return folder


def corpus(home: Path, model: Aladin, cache: str = "cache") -> Corpus:
    return Corpus(model, in_split(load_captions(home / "data"), "test"), home / cache, workers=0, max_unreadable=0)


def changed(home: Path, name: str, change: Any) -> Aladin:
    """A model on a backbone of which something was changed."""
    inner = MJP.from_pretrained(home / "backbone").eval()
    with torch.no_grad():
        change(inner)
    inner.save_pretrained(home / name / "backbone")
    return fresh_model(settings(home / "data", home / name), load_captions(home / "data")).eval()


def test_every_ratio_is_measured_both_ways_beside_no_jigsaw(home: Path) -> None:
    model = Aladin.load(home / "model")
    curve = mask_curve(model, corpus(home, model), (1.0, 0.0, 0.5), draws=2, seed=3)
    assert [(p["ratio"], p["unknown"]) for p in curve["points"]] == [(0.5, True), (0.5, False), (1, True), (1, False)]
    assert curve["clean"]["vector"]["difference"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    for point in curve["points"]:
        for scorer in ("alignment", "vector"):
            before, after = curve["clean"][scorer]["rsum"]["mean"], point[scorer]["rsum"]["mean"]
            assert point[scorer]["difference"]["mean"] == pytest.approx(after - before)
    assert curve == mask_curve(model, corpus(home, model), (0.5, 1.0), draws=2, seed=3)
    json.dumps(curve, allow_nan=False)


def test_a_backbone_without_positions_does_not_open_the_gate(home: Path) -> None:
    """All positions equal: patches change places and no token changes, so nothing is lost and nothing is learnt."""

    def flatten(inner: Any) -> None:
        inner.model.pos_embed.fill_(0.3)
        inner.unknown.fill_(0.3)

    model = changed(home, "flat", flatten)
    curve = mask_curve(model, corpus(home, model), (1.0,), draws=1, seed=0)
    for point in curve["points"]:
        assert point["alignment"]["difference"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert not curve["gate"]["alignment"]["open"]
    assert all("means nothing" in sentence for sentence in curve["headline"])


def test_positions_that_matter_change_the_codes(home: Path) -> None:
    model = changed(home, "large", lambda inner: inner.model.pos_embed.mul_(50))
    found = corpus(home, model)
    (clean,), (kept,), (again,) = (
        list(_codes(model, found, setting, seed)) for setting, seed in ((None, 0), ((1.0, False), 0), ((1.0, False), 1))
    )
    assert (clean.vector - kept.vector).norm(dim=1).min() > 1e-3
    assert (again.vector - kept.vector).norm(dim=1).min() > 1e-3  # another seed, another jigsaw


def point(ratio: float, unknown: bool, low: float, high: float) -> dict[str, Any]:
    interval = {"difference": {"mean": (low + high) / 2, "low": low, "high": high}}
    return {"ratio": ratio, "unknown": unknown, "alignment": interval, "vector": interval}


def test_the_gate_is_about_positions_kept_at_the_largest_ratio() -> None:
    points = [point(0.5, False, -9, -8), point(1, True, -9, -8), point(1, False, -2, 0.1)]
    assert gate(points)["alignment"] == {"difference": {"mean": -0.95, "low": -2, "high": 0.1}, "open": False}
    opened = gate([point(0.5, False, -1, 1), point(1, False, -3, -1), point(1, True, -1, 1)])
    assert opened["ratio"] == 1
    assert opened["vector"]["open"]
    assert gate_sentences(opened)[0] == (
        "alignment: with patches shuffled and positions kept, γ = 1 changes rsum by -2.0 [-3.0, -1.0]: the backbone "
        "uses its positions, and the curve means something."
    )
    assert not gate([point(1, False, 1, 3)])["vector"]["open"]  # a gain is no loss


def test_the_jigsaws_are_those_of_indexing_by_law(home: Path) -> None:
    """E_unk at γ = 1: every patch is hidden, and the codes are those of `index --mask-ratio 1`, whatever the jigsaw."""
    model = Aladin.load(home / "model")
    found = corpus(home, model)
    images = torch.stack([model.vision.prepare(open_rgb(item.path)) for item in found.items])
    stored = PictureEncoder(model, 1.0)(images, [f"{n:032x}" for n in range(len(images))])
    (codes,) = _codes(model, found, (1.0, True), derive_seed(0, 0))
    torch.testing.assert_close(codes.vector, stored.vector, rtol=0, atol=1e-5)


def test_a_backbone_without_patches_is_refused(home: Path) -> None:
    model = Aladin.load(home / "model")
    bare: Any = model.vision
    object.__setattr__(bare, "model", timm.create_model("resnet10t", num_classes=2))
    with pytest.raises(InputError, match="needs a ViT"):
        vit_of(model)


def test_the_command_draws_the_curve_and_says_the_verdict(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "aladin",
        "eval",
        str(home / "model"),
        "--data",
        str(home / "data"),
        "--out",
        str(home / "eval"),
        "--latency",
    ]
    arguments += ["--cache", str(home / "cache"), "--workers", "0", "--rerank", "5"]
    assert main([*arguments, "--mask-ratios", "0", "0.5", "1"]) == 0
    curve = json.loads((home / "eval/results.json").read_text())["models"][str(home / "model")]["masking"]
    said = capsys.readouterr().out
    assert all(sentence in said for sentence in curve["headline"])
    assert said.count("E_unk") == said.count("positions kept  ") == 2
    assert (home / "eval/masking.png").stat().st_size > 10_000
    shutil.rmtree(home / "eval")
