"""`mjp study` from its settings to results.json: what position embeddings have learned, where the class token looks."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mjp.common.errors import InputError
from mjp.common.files import check_folder
from mjp.common.results import Results, write_results
from mjp.evaluation.attention import class_attention, has_class_token
from mjp.evaluation.config import StudyConfig
from mjp.evaluation.positions import Regression, position_table, principal_components, regress, umap
from mjp.evaluation.study_charts import draw_attention, draw_positions
from mjp.evaluation.subjects import find_subjects
from mjp.models import Subject
from mjp.pictures.crop import open_square
from mjp.pictures.sets import embedded
from mjp.pictures.tensors import normalise, to_tensor

Table = tuple[Tensor, tuple[int, int]]  # position embeddings (N, D), their grid


def study(config: StudyConfig) -> Results:
    """Study every model, print as figures come in, draw, and write results.json."""
    subjects, tables = prepare(config)
    maps, pictures = attention_maps(subjects, config.pictures)
    config.out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    for number, (subject, table) in enumerate(zip(subjects, tables, strict=True), 1):
        target = config.out / f"positions-{number}.png"
        figures[subject.name] = _study_positions(config, subject, table, target)
    if maps:
        draw_attention(maps, pictures, config.out / "attention.png")
        print(f"attention  {config.out / 'attention.png'}")
    results = write_results(config.out, "study", config, {"attention": list(maps), "models": figures})
    print(f"figures    {config.out / 'results.json'}")
    return results


def prepare(config: StudyConfig) -> tuple[list[Subject], list[Table]]:
    """The models and their position tables; refuses before anything is written."""
    config.check()
    subjects = find_subjects(config.models, config.weights)
    tables = [position_table(subject.model) for subject in subjects]
    fewest = min(len(table) for table, _ in tables)
    if fewest < config.folds:
        raise InputError(f"--folds {config.folds} is more than the {fewest} positions of a model")
    check_folder(config.out)
    return subjects, tables


def _study_positions(config: StudyConfig, subject: Subject, table: Table, target: Path) -> dict[str, Any]:
    embeddings, grid = table
    result = regress(embeddings, grid, folds=config.folds, seed=config.seed)
    plane = umap(embeddings, config.seed)
    draw_positions(subject.model, embeddings, grid, plane, f"Position embeddings of {subject.name}", target)
    print(f"{_line(subject.name, result)}  →  {target}")
    shares = principal_components(embeddings)[1].tolist()
    return {**asdict(result), "grid": grid, "variance": shares, "umap": plane is not None}


def _line(name: str, result: Regression) -> str:
    return (
        f"{name}: position from embedding, {result.folds}-fold mean absolute error (± std between folds): index "
        f"{result.index_mae:.3f} ± {result.index_std:.3f}, row and column {result.place_mae:.3f} ± "
        f"{result.place_std:.3f} patches"
    )


def attention_maps(subjects: Sequence[Subject], paths: Sequence[Path]) -> tuple[dict[str, Tensor], Tensor]:
    """Attention maps of the models that have a class token, and the (B, 3, S, S) pictures in [0, 1]."""
    side = max(max(subject.size) for subject in subjects)
    pictures = torch.cat([open_square(path, side) for path in paths]) if paths else _embedded_pictures(side)
    maps = {}
    for subject in subjects:
        if has_class_token(subject.model):
            images = interpolate(pictures, size=subject.size, mode="bicubic", antialias=True).clamp(0, 1)
            maps[subject.name] = class_attention(subject.model, normalise(images, subject.mean, subject.std))
    return maps, pictures


def _embedded_pictures(side: int) -> Tensor:
    source = embedded("val")
    pictures = torch.stack([to_tensor(source.load(number)) for number in (0, 1)])
    return interpolate(pictures, size=side, mode="bicubic").clamp(0, 1)
