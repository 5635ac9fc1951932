"""What is measured on a trained model of the grid."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from mjp.common.distributed import World
from mjp.evaluation.attention import class_attention
from mjp.evaluation.batches import batches, find_pictures
from mjp.evaluation.positions import position_table, principal_components, regress, umap
from mjp.evaluation.robustness.corruptions import CORRUPTIONS, SEVERITIES
from mjp.evaluation.robustness.measure import corruptions
from mjp.evaluation.robustness.sets import Generated
from mjp.method.config import SamplerName
from mjp.models import Subject, find_model
from mjp.pictures.sets import Pictures
from mjp.privacy.samples import sample_pictures
from mjp.reproduce.cost import step_cost
from mjp.reproduce.leakage import measure_leakage
from mjp.reproduce.outcomes import measure_outcomes
from mjp.reproduce.scale import Scale
from mjp.training.evaluate import Unreadable

BATCH = 50
CORRUPTED = 200  # pictures in each of the 75 cells of corruption and severity
CPU = torch.device("cpu")


def measure_model(
    model: str, data: str, scale: Scale, measurements: tuple[str, ...], device: torch.device
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(outcomes of every picture, figures) of a trained model, named as people name it."""
    subject, pictures = find_model(model), find_pictures(data)
    subject.model.eval()
    samplers: list[SamplerName] = ["blockwise"]
    if "uniform" in measurements:
        samplers.append("uniform")
    stream = _load(subject, pictures, limit=scale.pictures)
    outcomes = measure_outcomes(subject.model, stream, scale.ratios, samplers=samplers, device=device)
    if scale.sweep:
        stream = _load(subject, pictures, limit=scale.sweep_pictures)
        sweep = measure_outcomes(subject.model, stream, scale.sweep, samplers=["blockwise"], device=device, kept=False)
        outcomes["points"] += sweep["points"]
    figures: dict[str, Any] = {}
    if "corruption" in measurements:
        figures |= _corruption(subject, pictures, device)
    subject.model.to("cpu")  # the rest is small
    for name in measurements:
        if name in MEASURES:
            figures |= MEASURES[name](subject, pictures)
    if "leakage" in measurements:
        figures |= measure_leakage(subject, sample_pictures(pictures, scale.attacked, subject.size))
    return outcomes, figures


def _load(subject: Subject, pictures: Pictures, **changes: Any) -> Any:
    settings: dict[str, Any] = {"size": BATCH, "workers": 0, "unreadable": Unreadable(0, World(0, 1, CPU))}
    return batches(subject, pictures, **{**settings, **changes})


def _positions(subject: Subject, _: Pictures) -> dict[str, Any]:
    """How well position embeddings tell their place, and where their principal components put them."""
    table, grid = position_table(subject.model)
    result = regress(table, grid)
    points = principal_components(table, 2)[0]
    plane = umap(table, 0)
    planes = {"pca": points.tolist(), "umap": None if plane is None else plane.tolist()}
    return {"index_error": result.index_mae, "place_error": result.place_mae, **planes}


def _corruption(subject: Subject, pictures: Pictures, device: torch.device) -> dict[str, Any]:
    """Mean error over the 15 corruptions and 5 severities, and by corruption."""
    grid = Generated(pictures, CORRUPTIONS, SEVERITIES, 0)
    load = partial(_load, limit=CORRUPTED)
    result = corruptions(subject, grid, load, seed=0, device=device)
    by_name = {name: interval[0] for name, interval in result.means.items()}
    return {"corruption": sum(by_name.values()) / len(by_name), "corruption_by_name": by_name}


def _attention(subject: Subject, pictures: Pictures) -> dict[str, Any]:
    """Attention of the class token in the last block, for the first picture of two classes."""
    batch = next(iter(_load(subject, pictures, limit=2)))
    maps = class_attention(subject.model, batch.images)  # (2, heads, h, w)
    return {"attention": maps.mean(1).tolist()}


def _cost(subject: Subject, _: Pictures) -> dict[str, Any]:
    return {"step_cost": step_cost(subject.model, subject.size[0])}


MEASURES: dict[str, Callable[[Subject, Pictures], dict[str, Any]]] = {
    "positions": _positions,
    "attention": _attention,
    "cost": _cost,
}
