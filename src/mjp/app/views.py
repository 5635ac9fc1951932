"""What the jigsaw view shows of a picture: what every model says before and after, and how often."""

from typing import Any

from mjp.app.jigsaw import draw_jigsaw
from mjp.app.models import DRAWS, Answer, Models, plans, some
from mjp.app.parameters import Jigsaw
from mjp.app.pictures import Uploads
from mjp.pictures.thumbnails import as_jpeg


def jigsaw_picture(jigsaw: Jigsaw, models: Models, uploads: Uploads) -> bytes:
    """The shuffled picture as a JPEG, on the grid of the model that is attacked."""
    plan = plans(models.grid(models.default), jigsaw.ratio, jigsaw.sampler, jigsaw.seed)
    return as_jpeg(draw_jigsaw(uploads.find(jigsaw.picture).square, plan))


def jigsaw_answers(jigsaw: Jigsaw, models: Models, uploads: Uploads) -> dict[str, Any]:
    """What every model says about the picture, and about it under the jigsaw that is shown."""
    picture = uploads.find(jigsaw.picture)
    rows = []
    for name, subject in models.subjects.items():
        plan = some(plans(models.grid(name), jigsaw.ratio, jigsaw.sampler, jigsaw.seed), 0, 1)
        pixels = picture.inputs[subject.size]
        before, after = (models.answers(name, pixels, choice)[0] for choice in (None, plan))
        rows.append({"model": name, "before": _answer(before), "after": _answer(after)})
    grid = models.grid(models.default)
    shown = some(plans(grid, jigsaw.ratio, jigsaw.sampler, jigsaw.seed), 0, 1)
    return {"models": rows, "masked": int(shown.mask.sum()), "cells": grid[0] * grid[1]}


def consistency(jigsaw: Jigsaw, models: Models, uploads: Uploads, first: int, count: int) -> dict[str, Any]:
    """In how many of these jigsaws every model still gives its answer of the picture itself."""
    picture = uploads.find(jigsaw.picture)
    rows = []
    for name, subject in models.subjects.items():
        plan = some(plans(models.grid(name), jigsaw.ratio, jigsaw.sampler, jigsaw.seed), first, count)
        pixels = picture.inputs[subject.size]
        before = models.answers(name, pixels, None)[0].label
        same = sum(answer.label == before for answer in models.answers(name, pixels, plan))
        rows.append({"model": name, "same": same})
    return {"models": rows, "first": first, "count": count, "draws": DRAWS}


def _answer(answer: Answer) -> dict[str, Any]:
    return answer._asdict()
