"""What the documentation says follows from the committed cells."""

import json
from pathlib import Path

import pytest

from mjp.common.results import plain
from mjp.reproduce.cell_file import read_cells
from mjp.reproduce.collect import summarise
from mjp.reproduce.committed import HOME, committed_results
from mjp.reproduce.document import document
from mjp.reproduce.first_result import first_result
from mjp.reproduce.scale_file import load_scale

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "results.md"


@pytest.mark.parametrize("folder", committed_results(), ids=lambda folder: folder.name)
def test_results_and_page_follow_from_the_cells(folder: Path) -> None:
    scale = load_scale(folder.name)
    cells = read_cells(folder, scale)
    body = plain(summarise(scale, cells))
    results = json.loads((folder / "results.json").read_text())
    assert {name: results[name] for name in ("claims", "tables", "gates", "cells")} == {
        name: body[name] for name in ("claims", "tables", "gates", "cells")
    }
    assert document({**results, "corruptions": body["corruptions"]}, level=2) in PAGE.read_text()


@pytest.mark.parametrize("folder", committed_results(), ids=lambda folder: folder.name)
def test_cells_were_trained_as_the_scale_says(folder: Path) -> None:
    scale = load_scale(folder.name)
    for name, by_seed in read_cells(folder, scale).items():
        for cell in by_seed.values():
            assert cell["train"] == plain(scale.runs[name].train)


def test_the_readme_says_what_the_results_say() -> None:
    results = json.loads((HOME / "finetune" / "results.json").read_text())
    assert first_result(results) in (ROOT / "README.md").read_text()
