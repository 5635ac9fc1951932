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
    **{"title": "Title", "about": "About.", "minutes": 1, "ratios": [0.5, 1.0], "sweep": [0.25]},
    "train": {"recipe": "quickstart"},
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
        (("claims", 0, "quantity"), "step_cost@0.5", "step_cost is not measured by γ: write it without '@0.5'"),
        (("claims", 0, "quantity"), "top1_halfway@0.5", "top1_halfway is not measured by γ"),
        (("claims", 0, "quantity"), "consistency", "consistency is measured by γ: write one behind it, as in"),
        (("claims", 0, "quantity"), "top1@", "must stand a number"),
        (("claims", 0, "quantity"), "top1@0.3", r"is not one at which it is measured \(0.25, 0.5, 1\): add it"),
        (("claims", 0, "quantity"), "top1@nan", "is not one at which it is measured"),
        (("claims", 0, "quantity"), 5, "quantity of the claim 'better' must be text, not 5"),
        (("claims", 0, "id"), 5, "id of the claim 5 must be text"),
        (("claims", 0, "text"), ["Better"], "text of the claim 'better' must be text"),
        (("claims", 0, "published"), 26.2, "published of the claim 'better' must be text, not 26.2"),
        (("claims", 0, "post_hoc"), "no", "post_hoc of better must be true or false"),
        (("tables", "variants", "columns"), ["top1_kept"], "top1_kept is measured by γ"),
        (("tables", "variants", "columns"), [5], "there is no quantity '5'"),
        (("tables", "variants", "published"), {"A": {"consistency@0.3": 64.3}}, "is not one at which it is measured"),
        (("tables", "variants", "published"), {"A": {"top1": "79.8"}}, "the published top1 of A must be a number"),
        (("tables", "variants", "note"), {}, "the note of the table variants must be text"),
        (("tables", "variants", "title"), 5, "the title of the table variants must be text"),
        (("title",), None, "title must be text, not None"),
        (("about",), ["About."], "about must be text"),
        (("gpu",), 100, "gpu must be text"),
        (("ratios",), [0.5], "the gate of the claim better needs γ = 1 among ratios"),
        (("claims", 0, "ours"), "yes", "ours of better must be true or false"),
        (("doubts", 0, "question"), 5, "the question of a doubt must be text"),
        (("seeds",), [], "seeds must hold one seed or more, each once"),
        (("seeds",), [0, 1, 0], "seeds must hold one seed or more, each once"),
        (("ratios",), [], "ratios must hold one γ or more"),
        (("runs", "../../evil"), {}, "'../../evil' cannot name a run: use letters"),
        (("runs", ".hidden"), {}, "'.hidden' cannot name a run"),
        (("runs", "-option"), {}, "'-option' cannot name a run"),
        (("runs", "two words"), {}, "'two words' cannot name a run"),
        (("runs", ""), {}, "'' cannot name a run"),
        (("runs", "J", "title"), 5, "the title of the run J must be text"),
        (("runs", "J", "mjp"), 0.5, "mjp of the run J must hold fields and values, not 0.5"),
        (("runs", "J", "mjp"), None, "mjp of the run J must hold fields and values"),
        (("runs", "J", "recipe"), 5, "the recipe of the run J must be text"),
        (("train",), {}, "the run A has no recipe: name one in the run, or in train"),
    ],
)
def test_what_makes_no_sense_is_refused(path: tuple[Any, ...], value: Any, sentence: str, tmp_path: Path) -> None:
    values = deepcopy(VALUES)
    place: Any = values
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(InputError, match=sentence) as refusal:
        load_scale(write(values, tmp_path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "quantity", ["top1", "top1@.5", "top1_kept@1.0", "consistency_uniform@0.5", "top1@0.25", "top1_halfway"]
)
def test_a_quantity_is_measured_at_the_ratios_and_the_sweep(quantity: str, tmp_path: Path) -> None:
    claims = [{**VALUES["claims"][0], "quantity": quantity}]
    assert load_scale(write({**VALUES, "claims": claims}, tmp_path)).claims[0].quantity == quantity


def test_a_run_may_name_the_recipe_itself_and_have_dots_and_dashes_in_its_name(tmp_path: Path) -> None:
    names = ("A", "J", "J-.032", "swin-ape-MJP", "A-2e-4-50")
    values = {**VALUES, "train": {}, "runs": {name: {"recipe": "quickstart"} for name in names}}
    assert tuple(load_scale(write(values, tmp_path)).runs) == tuple(sorted(names))  # YAML was written in this order


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
