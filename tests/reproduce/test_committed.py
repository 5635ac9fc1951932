"""What the documentation says follows from the committed cells."""

import json
from pathlib import Path

import pytest

from mjp.common.results import plain
from mjp.reproduce.cell_file import read_cells
from mjp.reproduce.collect import summarise
from mjp.reproduce.committed import HOME, committed_results
from mjp.reproduce.document import document
from mjp.reproduce.findings import add_findings
from mjp.reproduce.first_result import first_result
from mjp.reproduce.overview import overview
from mjp.reproduce.scale_file import load_scale

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "results.md"
ORDER = ("finetune_long", "finetune", "scratch", "finetune_search")  # of tools/write_results.py


@pytest.mark.parametrize("folder", committed_results(), ids=lambda folder: folder.name)
def test_results_and_page_follow_from_the_cells(folder: Path) -> None:
    scale = load_scale(folder.name)
    cells = read_cells(folder, scale)
    body = plain(add_findings(summarise(scale, cells), folder))
    results = json.loads((folder / "results.json").read_text())
    assert {name: results[name] for name in body} == body
    assert document(results, level=2) in PAGE.read_text()


def test_the_page_begins_with_all_scales_in_short() -> None:
    folders = {folder.name: folder for folder in committed_results()}
    bodies = [json.loads((folders[name] / "results.json").read_text()) for name in ORDER if name in folders]
    assert overview(bodies) in PAGE.read_text()


def test_the_readme_says_what_the_results_say() -> None:
    results = json.loads((HOME / "finetune_long" / "results.json").read_text())
    assert first_result(results) in (ROOT / "README.md").read_text()
