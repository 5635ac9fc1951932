"""Batches of pictures as a model under evaluation wants them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timm.data import create_transform
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from mjp.models import Subject
from mjp.pictures.sets import Folder, Pictures, embedded
from mjp.training.data import Augmented
from mjp.training.evaluate import Unreadable


def find_pictures(text: str) -> Pictures:
    """`embedded`, or a folder of classes, or a folder with such a folder `val`."""
    if text == "embedded":
        return embedded("val")
    folder = Path(text)
    return Folder(folder / "val" if (folder / "val").is_dir() else folder)


def transform_for(subject: Subject, crop_pct: float | None = None) -> Any:
    """timm's evaluation transform: resize, cut the middle out, make a tensor, normalise."""
    return create_transform(
        subject.size,
        mean=subject.mean,
        std=subject.std,
        crop_pct=subject.crop_pct if crop_pct is None else crop_pct,
        interpolation=subject.interpolation,
    )


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
) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, labels) in the order of the pictures, spread evenly over them if there is a limit.

    `crop_pct` replaces the model's own (1 for pictures that are cut already); the progress bar of a `part` of a longer
    measurement disappears when it is done.
    """
    count = min(limit or len(pictures), len(pictures))
    numbers = [(k * len(pictures) // count, 0) for k in range(count)]
    keys = [numbers[i : i + size] for i in range(0, count, size)]
    data = Augmented(pictures, transform_for(subject, crop_pct), training=False)
    loader = DataLoader(data, batch_sampler=keys, num_workers=workers)
    for images, labels, bad in tqdm(loader, desc=part or subject.name, unit="batch", disable=None, leave=part is None):
        unreadable.note(bad, pictures)
        yield images, labels
