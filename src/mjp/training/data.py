"""Pictures and labels: the embedded set, torchvision's CIFAR, or a folder. Unreadable pictures are named and counted.

A data set gives PIL pictures by number; `Augmented` turns them into tensors. All randomness of a sample comes from a
seed that is handed in with its number, so it depends neither on workers, nor on processes, nor on where a run resumed.
"""

import random
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from mjp.common.errors import InputError
from mjp.method.sticky import digest
from mjp.pictures.preprocessing import Preprocessing
from mjp.pictures.sets import Folder, InMemory, Pictures, embedded, limited
from mjp.training.config import TrainConfig

UNREADABLE = -1  # the label of a picture that could not be read: no prediction equals it


def load_data(config: TrainConfig) -> tuple[Pictures, Pictures]:
    """Training and validation pictures, as many as --limit and --val-limit allow."""
    train, val = _whole_data(config)
    return limited(train, config.limit), limited(val, config.val_limit)


def _whole_data(config: TrainConfig) -> tuple[Pictures, Pictures]:
    if config.data == "embedded":
        return embedded("train"), embedded("val")
    if config.data in ("cifar10", "cifar100"):
        return _cifar(config, train=True), _cifar(config, train=False)
    train, val = Folder(Path(config.data) / "train"), Folder(Path(config.data) / "val")
    if train.classes != val.classes:
        odd = sorted(set(train.classes) ^ set(val.classes))
        raise InputError(f"train and val of {config.data} have different classes: {', '.join(odd[:5])}")
    return train, val


def _cifar(config: TrainConfig, *, train: bool) -> InMemory:
    from torchvision.datasets import CIFAR10, CIFAR100

    kind, root = (CIFAR10 if config.data == "cifar10" else CIFAR100), config.data_dir.expanduser()
    try:
        data = kind(root, train=train, download=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{config.data} is not in {root} and cannot be downloaded ({error}): connect to a network, put "
            "torchvision's archive there, or pass --data a folder with train/CLASS/* and val/CLASS/*"
        ) from error
    return InMemory(data.data, list(data.targets), list(data.classes))


class Augmented(Dataset[tuple[Any, ...]]):
    """(number, seed) → (tensor, label, number of an unreadable picture or −1).

    `hashed` adds the hash of the picture before augmentation, 32 bytes.

    In training an unreadable picture is replaced by the next readable one, in validation by black with a label that no
    answer matches: either way the batch keeps its size and the caller learns which picture it was.
    """

    def __init__(self, pictures: Pictures, transform: Any, *, training: bool, hashed: bool = False) -> None:
        self.pictures, self.transform, self.training, self.hashed = pictures, transform, training, hashed

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Any, ...]:
        number, seed = key
        unreadable = UNREADABLE
        for shift in range(len(self.pictures) if self.training else 1):
            here = (number + shift) % len(self.pictures)
            try:
                picture = self.pictures.load(here)
                break
            except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
                unreadable = number
        else:
            picture, here = Image.new("RGB", (32, 32)), None
        seed_transforms(seed)
        sample = self.transform(picture), UNREADABLE if here is None else self.pictures.labels[here], unreadable
        return (*sample, torch.tensor(list(digest(picture.tobytes())))) if self.hashed else sample


def transforms(config: TrainConfig, mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[Any, Any]:
    """timm's training and evaluation transforms."""
    from timm.data import create_transform
    from torchvision.transforms import InterpolationMode, RandomCrop, Resize

    size = config.input_size
    train: Any = create_transform(
        size,
        is_training=True,
        scale=config.scale,
        hflip=config.hflip,
        color_jitter=config.color_jitter or (0.0, 0.0, 0.0),
        auto_augment=config.aa or None,
        interpolation=config.train_interpolation,
        mean=mean,
        std=std,
        re_prob=config.reprob,
        re_mode=config.remode,
        re_count=config.recount,
    )
    _keep_one_bit(train)
    if size <= 32:  # as DeiT does for CIFAR: pictures of this size are neither resized nor cut, others resized first
        train.transforms[:1] = [Resize(size, InterpolationMode.BICUBIC), RandomCrop(size, padding=4)]
    return train, preprocessing(config, mean, std).transform()


def preprocessing(config: TrainConfig, mean: tuple[float, ...], std: tuple[float, ...]) -> Preprocessing:
    """How validation pictures enter the model; stored with it, so that `mjp eval` sees the same pixels."""
    side = config.input_size
    crop_pct = 1.0 if side <= 32 else config.crop_pct  # pictures of at most 32 px are not cut, see `transforms`
    values = {"size": (side, side), "mean": list(mean), "std": list(std), "crop_pct": crop_pct}
    return Preprocessing.from_dict(values)


def _keep_one_bit(transform: Any) -> None:
    """timm's augmentation policies ask posterize for 0 bits now and then, which pillow refuses: give it 1."""
    for step in transform.transforms:
        policies = getattr(step, "policy", None) or [getattr(step, "ops", None) or ()]
        for operation in chain.from_iterable(policies):
            if operation.name.startswith("Posterize"):
                operation.level_fn = partial(_at_least_one_bit, operation.level_fn)


def _at_least_one_bit(level_fn: Any, level: float, settings: dict[str, Any]) -> tuple[int]:
    (bits,) = level_fn(level, settings)
    return (max(1, bits),)


def seed_transforms(seed: int) -> None:
    """Seed the three global CPU generators that timm's transforms and mixup draw from.

    Training seeds them anew for every sample and every step, so that there is no random state to lose or to restore.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (it is timm that uses it)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would visit every device: slow, and no use here
