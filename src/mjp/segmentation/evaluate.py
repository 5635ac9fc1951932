"""What a network sees in whole pictures, and how many pixels of it are right."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad
from torch.utils.data import DataLoader

from mjp.common.errors import InputError
from mjp.common.progress import track
from mjp.segmentation.config import STRIDE
from mjp.segmentation.metrics import confusion_matrix, pixel_counts
from mjp.segmentation.views import WholePictures


@torch.no_grad()
def predict(network: Any, image: Tensor, size: tuple[int, int]) -> Tensor:
    """The (H, W) classes of `size`, for a normalised (3, h, w) image, which is padded to what the network takes."""
    height, width = image.shape[-2:]
    padded = pad(image, (0, -width % STRIDE, 0, -height % STRIDE))
    logits = network(padded.unsqueeze(0)).float()[..., :height, :width]  # (1, C, h, w)
    if (height, width) != size:
        logits = interpolate(logits, size, mode="bilinear", align_corners=False)
    return logits[0].argmax(0)


def evaluate(network: Any, pictures: WholePictures, *, workers: int, device: torch.device) -> Tensor:
    """(N, 3, C) pixel counts of every picture, in the size of its mask. One at a time: pictures differ in size."""
    was_training = network.training
    network.eval()
    classes = len(pictures.scenes.labels.names)
    counts = [
        pixel_counts(confusion_matrix(predict(network, image, truth_size(truth)), truth, classes))
        for image, truth in _load(pictures, workers, device)
    ]
    network.train(was_training)
    return torch.stack(counts).cpu()


def truth_size(truth: Tensor) -> tuple[int, int]:
    return truth.shape[0], truth.shape[1]


def _load(pictures: WholePictures, workers: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    loader = DataLoader(pictures, batch_size=None, num_workers=workers)
    for image, truth, problem in track(loader, "evaluating", total=len(pictures)):
        if problem:
            raise InputError(problem)
        yield image.to(device, non_blocking=True), truth.to(device, non_blocking=True)
