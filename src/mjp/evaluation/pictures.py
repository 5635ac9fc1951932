"""Batches of pictures as a model under evaluation wants them."""

from collections.abc import Iterator
from pathlib import Path

from timm.data import create_transform
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from mjp.errors import InputError
from mjp.evaluation.models import Subject
from mjp.training.data import Augmented, Folder, Pictures, embedded
from mjp.training.evaluate import Unreadable


def find_pictures(text: str) -> Pictures:
    """`embedded`, or a folder of classes, or a folder with such a folder `val`."""
    if text == "embedded":
        return embedded("val")
    folder = Path(text)
    return Folder(folder / "val" if (folder / "val").is_dir() else folder)


def batches(
    subject: Subject, pictures: Pictures, *, size: int, limit: int | None, workers: int, unreadable: Unreadable
) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, labels) in the order of the pictures, spread evenly over them if there is a limit."""
    if limit is not None and limit < 1:
        raise InputError(f"--limit must be at least 1, not {limit}")
    transform = create_transform(
        subject.size,
        mean=subject.mean,
        std=subject.std,
        crop_pct=subject.crop_pct,
        interpolation=subject.interpolation,
    )
    count = min(limit or len(pictures), len(pictures))
    numbers = [(k * len(pictures) // count, 0) for k in range(count)]
    keys = [numbers[i : i + size] for i in range(0, count, size)]
    data = Augmented(pictures, transform, training=False)
    loader = DataLoader(data, batch_sampler=keys, num_workers=workers)
    for images, labels, bad in tqdm(loader, desc=subject.name, unit="batch", disable=None):
        unreadable.note(bad, pictures)
        yield images, labels
