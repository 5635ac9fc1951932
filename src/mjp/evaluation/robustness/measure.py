"""Measure and print a model's robustness: one forward pass over every corrupted, adversarial or outlier set."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.progress import track
from mjp.common.stats import interval, resample
from mjp.evaluation.batches import Batch
from mjp.evaluation.robustness.metrics import (
    CorruptionErrors,
    aurra,
    average_precision,
    corruption_errors,
    rate_replicates,
)
from mjp.evaluation.robustness.sets import Grid, ImageNetSubset
from mjp.evaluation.robustness.tables import corruption_table, natural_line, outlier_line
from mjp.models import Subject

Load = Callable[..., Iterator[Batch]]  # `batches`, settings filled in


class Answers(NamedTuple):
    """(N,) each, on the CPU; the label of an unreadable picture is below 0."""

    confidence: Tensor
    classes: Tensor
    labels: Tensor

    @property
    def right(self) -> Tensor:
        return self.classes == self.labels


@dataclass(frozen=True)
class Robustness:
    """What to measure; the parts that are None are left out."""

    grid: Grid | None = None
    imagenet_a: ImageNetSubset | None = None
    imagenet_o: tuple[ImageNetSubset, ImageNetSubset] | None = None  # outliers, ordinary pictures

    def __bool__(self) -> bool:
        return any((self.grid, self.imagenet_a, self.imagenet_o))

    def check(self, subject: Subject) -> None:
        """Refuse a model that these pictures do not fit."""
        if self.grid:
            self.grid.gaps(subject)
        for subset in (self.imagenet_a, *(self.imagenet_o or ())):
            if subset:
                subset.columns(subject)

    def measure(self, subject: Subject, load: Load, *, seed: int, device: torch.device) -> dict[str, Any]:
        """Figures by set, printed as they come in."""
        subject.model.to(device).eval()
        figures: dict[str, Any] = {}
        if self.grid:
            result = corruptions(subject, self.grid, load, seed=seed, device=device)
            if self.grid.source == "generated":  # AlexNet's errors are those on ImageNet-C
                result = replace(result, mce=None)
            missing = self.grid.gaps(subject)
            figures["corruptions"] = {"source": self.grid.source, "missing": missing, **asdict(result)}
            print(corruption_table(subject.name, result, self.grid.source, missing))
        if self.imagenet_a:
            figures["imagenet_a"] = natural(subject, self.imagenet_a, load, seed=seed, device=device)
            print(natural_line(subject.name, figures["imagenet_a"]))
        if self.imagenet_o:
            figures["imagenet_o"] = outliers(subject, *self.imagenet_o, load, seed=seed, device=device)
            print(outlier_line(subject.name, figures["imagenet_o"]))
        return figures


@torch.no_grad()
def answer(
    subject: Subject, stream: Iterator[Batch], device: torch.device, columns: list[int] | None = None
) -> Answers:
    """The model's answers, among some of its outputs only if `columns` says which."""
    rows = []
    for images, labels, _ in stream:
        logits = subject.model(images.to(device, non_blocking=True)).float()
        best = (logits if columns is None else logits[:, columns]).softmax(1).max(1)
        rows.append((best.values.cpu(), best.indices.cpu(), labels))
    return Answers(*(torch.cat(parts) for parts in zip(*rows, strict=True)))


def corruptions(subject: Subject, grid: Grid, load: Load, *, seed: int, device: torch.device) -> CorruptionErrors:
    """The error in every cell of the grid. The pictures are cut already: they are not cut again."""
    wrong = {}
    for cell in track(grid.cells(), f"{subject.name}, corruptions"):
        stream = load(subject, grid.pictures(subject, cell), crop_pct=1.0, part=f"{cell[0]} {cell[1]}")
        wrong[cell] = ~answer(subject, stream, device).right
    return corruption_errors(wrong, grid.severities, seed=seed)


def natural(subject: Subject, subset: ImageNetSubset, load: Load, *, seed: int, device: torch.device) -> dict[str, Any]:
    """Accuracy and AURRA among the classes of the set."""
    stream = load(subject, subset.pictures(), part="ImageNet-A")
    answers = answer(subject, stream, device, subset.columns(subject))
    area = resample(aurra, torch.stack([answers.confidence, answers.right], 1), seed=seed)
    return {
        "source": str(subset.root),
        "pictures": len(answers.right),
        "missing": subset.missing,
        "seed": seed,
        "accuracy": interval(rate_replicates(answers.right.unsqueeze(1), seed=seed)[:, 0]),
        "aurra": area,
    }


def outliers(
    subject: Subject,
    strange: ImageNetSubset,
    ordinary: ImageNetSubset,
    load: Load,
    *,
    seed: int,
    device: torch.device,
) -> dict[str, Any]:
    """How well −confidence tells outliers from ordinary pictures; unreadable ones are left out, as they are neither."""
    scores = []
    for name, subset in (("ImageNet-O", strange), ("ordinary pictures", ordinary)):
        stream = load(subject, subset.pictures(), part=name)
        answers = answer(subject, stream, device, subset.columns(subject))
        scores.append(-answers.confidence[answers.labels >= 0])
        if not len(scores[-1]):
            raise InputError(f"none of the pictures in {subset.root} can be read")
    return {
        "source": str(strange.root),
        "ordinary": str(ordinary.root),
        "outliers": len(scores[0]),
        "ordinary_pictures": len(scores[1]),
        "missing": strange.missing + [f"ordinary {name}" for name in ordinary.missing],
        "seed": seed,
        "aupr": resample(average_precision, *scores, seed=seed),
    }
