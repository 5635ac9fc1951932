"""Batches of pictures as a model under evaluation wants them."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torch import Tensor
from torch.utils.data import DataLoader

from mjp.common.progress import track
from mjp.models import Subject
from mjp.pictures.sets import Folder, Pictures, embedded, spread_over_classes
from mjp.training.data import Augmented
from mjp.training.evaluate import Unreadable


class Batch(NamedTuple):
    images: Tensor  # (B, 3, H, W), preprocessed
    labels: Tensor  # (B,), below 0 for a picture that cannot be read
    numbers: list[int]  # the places of the pictures in their set: what is drawn for a picture depends on its number


def find_pictures(text: str) -> Pictures:
    """`embedded`, a folder of classes, or a folder that has one named `val`."""
    if text == "embedded":
        return embedded("val")
    folder = Path(text)
    return Folder(folder / "val" if (folder / "val").is_dir() else folder)


def batches(
    subject: Subject,
    pictures: Pictures,
    *,
    size: int,
    limit: int | None,
    workers: int,
    unreadable: Unreadable,
    crop_pct: float | None = None,
    part: str | None = None,
) -> Iterator[Batch]:
    """Batches in the order of the pictures, spread over their classes if there is a limit.

    `crop_pct` replaces the model's own (1 for pictures that are cut already); `part` names a part of a longer
    measurement in the progress lines.
    """
    numbers = spread_over_classes(pictures.labels, limit)
    groups = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    data = Augmented(pictures, subject.preprocessing.transform(crop_pct), training=False)
    loader = DataLoader(data, batch_sampler=[[(n, 0) for n in group] for group in groups], num_workers=workers)
    for (images, labels, bad), group in zip(track(loader, part or subject.name), groups, strict=True):
        unreadable.note(bad, pictures)
        yield Batch(images, labels, group)
