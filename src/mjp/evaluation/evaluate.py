"""`mjp eval` from its settings to results.json: everything is checked first, then measured model by model."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mjp.common.device import pick_device
from mjp.common.distributed import World
from mjp.common.errors import InputError
from mjp.common.files import check_folder, write_atomically
from mjp.common.results import Results, write_results
from mjp.evaluation.batches import batches, find_pictures
from mjp.evaluation.charts import draw_sweeps
from mjp.evaluation.config import EvalConfig
from mjp.evaluation.robustness.chart import corruption_sheet, draw_corruptions
from mjp.evaluation.robustness.measure import Load, Robustness
from mjp.evaluation.robustness.request import requested_robustness
from mjp.evaluation.robustness.sets import Generated
from mjp.evaluation.subjects import find_subjects
from mjp.evaluation.sweep import Sweep, sweep
from mjp.evaluation.tables import sweep_table
from mjp.models import Subject
from mjp.pictures.sets import Pictures
from mjp.training.evaluate import Unreadable


@dataclass(frozen=True)
class Evaluation:
    """What is measured, after every check."""

    subjects: list[Subject]
    pictures: Pictures | None  # None: only the sets of `robustness` are looked at
    robustness: Robustness
    device: torch.device


def evaluate(config: EvalConfig) -> Results:
    """Measure, print as figures come in, draw, and write results.json."""
    evaluation = prepare(config)
    sweeps: dict[str, Sweep] = {}
    figures: dict[str, dict[str, Any]] = {subject.name: {} for subject in evaluation.subjects}
    for subject in evaluation.subjects:
        load = _loader(config, evaluation.device)
        if evaluation.pictures:
            result = _sweep(config, evaluation, subject, load)
            sweeps[subject.name] = result
            figures[subject.name] |= result.to_dict()
            print(sweep_table(subject.name, result))
        if evaluation.robustness:
            settings: dict[str, Any] = {"seed": config.seed, "device": evaluation.device}
            figures[subject.name]["robustness"] = evaluation.robustness.measure(subject, load, **settings)
    body = {"data": config.data if evaluation.pictures else None, "models": figures}
    results = write_results(config.out, "eval", config, body)
    print(f"figures  {config.out / 'results.json'}")
    _draw(config, evaluation, sweeps, figures)
    return results


def prepare(config: EvalConfig) -> Evaluation:
    """Find models and pictures, and refuse what does not fit together before the first picture is looked at."""
    config.check()
    check_folder(config.out)
    device = pick_device(config.device)
    only_robustness = not config.ratios and (config.imagenet_a or config.imagenet_c or config.imagenet_o)
    pictures = None if only_robustness and not config.corrupt else find_pictures(config.data)
    robustness = requested_robustness(config, pictures)
    subjects = find_subjects(config.models, config.weights)
    for subject in subjects:
        if pictures:
            subject.check_classes(pictures.classes)
        robustness.check(subject)
    return Evaluation(subjects, pictures, robustness, device)


def _loader(config: EvalConfig, device: torch.device) -> Load:
    return partial(
        batches,
        size=config.batch_size,
        limit=config.limit,
        workers=config.workers,
        unreadable=Unreadable(config.max_unreadable, World(0, 1, device)),
    )


def _sweep(config: EvalConfig, evaluation: Evaluation, subject: Subject, load: Load) -> Sweep:
    settings: dict[str, Any] = {"draws": config.draws, "seed": config.seed, "device": evaluation.device}
    try:
        return sweep(subject.model, load(subject, evaluation.pictures), config.ratios, **settings)
    except InputError as error:
        raise InputError(f"{subject.name}: {error}") from error


def _draw(config: EvalConfig, evaluation: Evaluation, sweeps: dict[str, Sweep], figures: dict[str, Any]) -> None:
    grid = evaluation.robustness.grid
    if sweeps and config.ratios:
        draw_sweeps(sweeps, config.out / "sweep.png")
        print(f"curves   {config.out / 'sweep.png'}")
    if grid:
        errors = {name: model["robustness"]["corruptions"] for name, model in figures.items()}
        draw_corruptions(errors, config.out / "robustness.png")
        print(f"errors   {config.out / 'robustness.png'}")
    sheet = corruption_sheet(grid, evaluation.subjects[0]) if isinstance(grid, Generated) else None
    if sheet:
        write_atomically(config.out / "corruptions.png", sheet.save)
        print(f"sheet    {config.out / 'corruptions.png'}")
