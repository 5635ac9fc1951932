"""What the jigsaw view shows of a picture: what every model says before and after, and how often."""

from typing import Any

from mjp.app.jigsaw import draw_jigsaw
from mjp.app.models import DRAWS, Answer, Models, plans, some
from mjp.app.parameters import Jigsaw
from mjp.app.pictures import Picture, Uploads
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
        after = models.answers(name, picture.inputs[subject.size], plan)[0]
        rows.append({"model": name, "before": _before(name, picture, models)._asdict(), "after": after._asdict()})
    grid = models.grid(models.default)
    shown = some(plans(grid, jigsaw.ratio, jigsaw.sampler, jigsaw.seed), 0, 1)
    return {"models": rows, "masked": int(shown.mask.sum()), "cells": grid[0] * grid[1]}


def consistency(jigsaw: Jigsaw, models: Models, uploads: Uploads, first: int, count: int) -> dict[str, Any]:
    """In how many of these jigsaws every model still gives its answer of the picture itself."""
    picture = uploads.find(jigsaw.picture)
    rows = []
    for name, subject in models.subjects.items():
        plan = some(plans(models.grid(name), jigsaw.ratio, jigsaw.sampler, jigsaw.seed), first, count)
        answers = models.answers(name, picture.inputs[subject.size], plan)
        before = _before(name, picture, models)
        rows.append({"model": name, "same": sum(answer.label == before.label for answer in answers)})
    return {"models": rows, "first": first, "count": count, "draws": DRAWS}


def _before(name: str, picture: Picture, models: Models) -> Answer:
    """What a model says about the picture itself: asked once, since a slider asks again and again."""
    if name not in picture.answers:
        picture.answers[name] = models.answers(name, picture.inputs[models[name].size], None)[0]
    return picture.answers[name]
