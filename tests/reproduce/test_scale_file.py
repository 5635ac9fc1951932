"""A scale file that makes no sense is refused with one sentence."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from mjp.common.errors import InputError
from mjp.reproduce.cell import Place, training_values
from mjp.reproduce.scale_file import load_scale
from mjp.training.arguments import config_from

VALUES: dict[str, Any] = {
    **{"title": "Title", "about": "About.", "minutes": 1, "ratios": [0.5, 1.0], "train": {"recipe": "quickstart"}},
    "runs": {"A": {"preset": "A", "epochs": 3}, "J": {"like": "A", "preset": "J", "family": "masked"}},
    "tables": {"variants": {"title": "Variants", "runs": ["A", "J"], "columns": ["top1"]}},
    "claims": [
        {
            "id": "better",
            "table": "variants",
            "text": "Better",
            "published": "–",
            "quantity": "top1",
            "of": "J",
            "than": "A",
        }
    ],
    "doubts": [{"question": "Really?", "claims": ["better"]}],
}


def write(values: dict[str, Any], folder: Path) -> str:
    path = folder / "scale.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def test_a_run_starts_from_the_fields_of_all_runs_and_of_the_one_it_is_like(tmp_path: Path) -> None:
    scale = load_scale(write(VALUES, tmp_path))
    assert scale.runs["J"].train == {"recipe": "quickstart", "preset": "J", "epochs": 3}
    assert [run.family for run in scale.runs.values()] == ["main", "masked"]
    assert scale.seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("claims", 0, "baseline"), "Z", "there is no run 'Z'"),
        (("claims", 0, "of"), "Z", "there is no run 'Z'"),
        (("claims", 0, "table"), "nowhere", "there is no table 'nowhere'"),
        (("claims", 0, "quantity"), "nosuch", "there is no quantity 'nosuch'"),
        (("claims", 0, "quantity"), "top1@half", "must stand a number"),
        (("claims", 0, "margin"), "much", "the margin of better must be a number"),
        (("claims", 0, "colour"), "red", "cannot be read"),
        (("doubts", 0, "claims"), ["worse"], "there is no claim 'worse'"),
        (("runs", "J", "like"), "Q", "there is no run 'Q'"),
        (("runs", "J", "measure"), ["weather"], "there is no measurement 'weather'"),
        (("minutes",), "long", "minutes must be a number"),
        (("minutes",), -5, "minutes must be a number of at least 0"),
        (("ratios",), [0.5, 7], "must lie between 0 and 1"),
        (("seeds",), "zero", "a seed must be a whole number"),
        (("curves",), ["Z"], "there is no run 'Z'"),
        (("weather",), "fine", "there is no field 'weather'"),
    ],
)
def test_what_makes_no_sense_is_refused(path: tuple[Any, ...], value: Any, sentence: str, tmp_path: Path) -> None:
    values = deepcopy(VALUES)
    place: Any = values
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(InputError, match=sentence):
        load_scale(write(values, tmp_path))


def test_a_missing_field_and_a_repeated_claim_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lacks the field 'tables'"):
        load_scale(write({name: value for name, value in VALUES.items() if name != "tables"}, tmp_path))
    with pytest.raises(InputError, match="two claims have the id better"):
        load_scale(write({**VALUES, "claims": [VALUES["claims"][0], dict(VALUES["claims"][0])]}, tmp_path))


def test_the_example_of_the_documentation_is_a_scale(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "reproduce.md").read_text()
    example = page.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "my.yaml").write_text(example)
    scale = load_scale(str(tmp_path / "my.yaml"))
    for cell in scale.cells((0,)):
        config_from(training_values(Place(scale.name, tmp_path, "embedded", tmp_path), cell, torch.device("cpu")))
