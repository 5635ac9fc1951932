"""A run of a scale becomes the backbone of UPerNet, and its mIoU stands in the tables."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from mjp.cli.main import main
from mjp.reproduce.cell import Place, compute
from segmentation.scenes import TINY_SWIN, write_scenes


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    train = {"recipe": "quickstart", "epochs": 1, "limit": 40, "val_limit": 10, "batch_size": 20, "workers": 0}
    model = {"model": "swin_tiny_patch4_window7_224", "model_kwargs": list(TINY_SWIN[:-1]), "mjp": {"cell": 8}}
    values = {
        **{"title": "Scenes", "about": "A toy.", "minutes": 0.1, "pictures": 20, "ratios": [1.0]},
        "train": {**train, **model, "warmup_epochs": 0},
        "segment": {"decoder_channels": 16, "crop": 64, "epochs": 1, "batch_size": 2, "lr": 3e-3, "warmup_epochs": 0},
        "runs": {"A": {"preset": "A", "measure": ["segment"]}},
        "tables": {"scenes": {"title": "Scenes", "runs": ["A"], "columns": ["miou", "macc"]}},
        "claims": [],
    }
    path = tmp_path / "scenes.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def test_scenes_are_measured_with_the_backbone_of_the_run(scale: Path, tmp_path: Path) -> None:
    scenes = write_scenes(tmp_path / "camvid", count=4)
    compute(Place(str(scale), tmp_path / "out", "embedded", None, scenes), "A", 0, torch.device("cpu"))
    assert main(["reproduce", str(scale), "--collect", "--out", str(tmp_path / "out")]) == 0
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["tables"]["scenes"]["rows"]
    assert 0 < row["figures"]["miou"]["mean"] <= row["figures"]["macc"]["mean"] <= 1


def test_a_scale_with_scenes_needs_a_folder_of_them(
    scale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", str(scale), "--data", "embedded", "--out", str(tmp_path / "out")]) == 2
    assert "name a folder with --scenes DIR" in capsys.readouterr().err
