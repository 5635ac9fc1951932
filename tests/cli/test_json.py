"""--json, for every command that there is: standard output holds one strict JSON object and nothing else."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from qdrant_client import QdrantClient
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

from aladin.gallery import make_gallery, make_model
from mjp.aladin.search import push
from mjp.cli import demo
from mjp.cli.aladin import COMMANDS as ALADIN
from mjp.cli.main import COMMANDS, main
from mjp.common.results import SCHEMA, plain, read_results
from mjp.common.web.server import Server
from mjp.reproduce.outcomes import pack
from mjp.reproduce.scale_file import load_scale
from segmentation.scenes import TINY_SWIN, write_scenes
from training.runs import TINY_VIT, make_pictures

SMALL: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "depth": 1,
    "embed_dim": 24,
    "num_heads": 2,
    "num_classes": 10,
}
NAMES = [*(name for name in COMMANDS if name != "aladin"), *(f"aladin {name}" for name in ALADIN)]
INDEX = ("aladin index pictures -o index --model al/model --workers 0",)

# command: what has to run before it, and its arguments; folders lie in the present one
CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "train": (
        (),
        "--data data --epochs 1 --batch-size 8 --workers 0 --input-size 16 --device cpu --out run --repeated-aug 1 "
        f"--model deit_tiny_patch16_224 --model-kwargs {' '.join(TINY_VIT)}",
    ),
    "eval": ((), "tiny --ratios 0.5 --draws 1 --limit 20 --workers 0 --out out/eval"),
    "study": ((), "tiny --out out/study"),
    "report": (("study tiny --out out/study",), "page.html"),
    "attack": ((), "--model tiny --defences none --attacks direct --out out/attack"),
    "attack-update": (
        (),
        "update.safetensors --model tiny --attacks direct --out out/update --batch 1",
    ),
    "audit": (
        (),
        "--models tiny --defences none --attacks direct --pictures 1 --accuracy 20 --out out/audit",
    ),
    "federate": (
        (),
        "--model tiny --defences none --clients 2 --rounds 1 --attacks direct --accuracy 20 --out out/federate",
    ),
    "segment": (
        (),
        f"--data scenes --model swin_tiny_patch4_window7_224 --model-kwargs {' '.join(TINY_SWIN)} --crop 64 --epochs 1 "
        "--batch-size 2 --decoder-channels 16 --workers 0 --device cpu --out out/segment",
    ),
    "reproduce": ((), "toy --collect --out toy"),
    "jigsaw": ((), "--out out/jigsaw"),
    "demo": ((), "--out out/demo"),
    "bench": ((), "train --repeats 1"),
    "aladin train": (
        (),
        "--phase align --data al/data --epochs 1 --batch-size 4 --workers 0 --device cpu --out al/run --cache al/cache "
        "--model.backbone al/backbone --model.width 16 --model.heads 2 --model.align-width 8 --model.layers 1 "
        "--model.image-size None --model.text pieces --model.vocabulary 200",
    ),
    "aladin index": ((), INDEX[0].removeprefix("aladin index ")),
    "aladin search": (INDEX, "index sky --model al/model --out out/search"),
    "app": ((), "--model tiny --no-browser --port 0"),
    "aladin serve": (INDEX, "index --model al/model --port 0"),
    "aladin duplicates": (INDEX, "index --threshold 0.9"),
    "aladin push": (INDEX, "index --to qdrant:http://localhost:6333/pictures"),
    "aladin delete": (INDEX, "index pictures/a"),
    "aladin stats": (INDEX, "index"),
    "aladin bench": ((), "--model al/model --sizes 20 --repeats 1 --pages 24 --out out/bench"),
    "aladin eval": (
        (),
        "al/model --data al/data --split train --rerank 2 --cache al/cache --workers 0 --latency --out out/al",
    ),
}


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, pictures and an update: all that the cases need."""
    home = tmp_path_factory.mktemp("json")
    torch.manual_seed(0)
    make_pictures(home / "data")
    make_gallery(home / "pictures", 4)
    make_model(home / "al")
    write_scenes(home / "scenes", count=2)
    write_cell(home / "toy" / "cells" / "A-0.json")
    model = timm.create_model("deit_tiny_patch16_224", **SMALL)
    mjp.MJP(model).save_pretrained(home / "tiny")
    cross_entropy(model(torch.rand(1, 3, 32, 32)), torch.tensor([0])).backward()
    save_file({n: p.grad for n, p in model.named_parameters() if p.grad is not None}, home / "update.safetensors")
    return home


def write_cell(path: Path) -> None:
    """A cell of `mjp reproduce toy` with eight pictures, all of them right."""
    bits = pack(torch.ones(8, dtype=torch.bool))
    measured = {"right": bits, "same": bits, "pictures": 8, "diff_norm": 1, "diff_relative": 1}
    point = {"unknown": False, "sampler": "blockwise", **measured}
    outcomes = {"right": bits, "pictures": 8, "points": [{"ratio": ratio, **point} for ratio in (0.25, 0.5, 1.0)]}
    figures = {"curve": [[1, 10.0]], "step_cost": 0.1}
    settings = plain(load_scale("toy").runs["A"].train)
    cell = {"run": "A", "seed": 0, "train": settings, "figures": figures, "outcomes": outcomes, "seconds": 1}
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(cell))


@pytest.fixture
def home(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(furnished, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


def test_every_command_is_tried() -> None:
    assert sorted(CASES) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_with_json_there_is_one_object_and_nothing_else(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(push, "connect", lambda url: QdrantClient(":memory:"))
    monkeypatch.setattr(Server, "run", lambda _: None)  # the page ends as soon as it is up
    monkeypatch.setattr(demo, "_tour", lambda _: [("The jigsaw", "jigsaw", lambda: print("for people"))])
    before, arguments = CASES[name]
    for command in before:
        assert main(command.split()) == 0
    capfd.readouterr()
    assert main([*name.split(), *arguments.split(), "--json"]) == 0, capfd.readouterr().err
    content = json.loads(capfd.readouterr().out, parse_constant=refuse)
    assert (content["schema"], content["kind"]) == (SCHEMA, name)
    assert set(content["versions"]) == {"mjp", "torch", "timm"}
    assert content["settings"]
    out = content["settings"].get("out")
    if out and (home / out / "results.json").is_file():  # then the file says the same
        assert json.loads(read_results(home / out).to_json()) == content
