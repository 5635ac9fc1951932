"""Coarse pixels."""

from PIL import Image
from torch import Generator, Tensor

from mjp.evaluation.robustness.strengths import Strengths
from mjp.pictures.tensors import to_image, to_tensor

# side of the coarse picture, as a share
STRENGTHS = Strengths(
    small=((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    large=((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
)


def corrupt(x: Tensor, _: Generator, share: float) -> Tensor:
    height, width = x.shape[1:]
    coarse = to_image(x).resize((int(width * share), int(height * share)), Image.Resampling.BOX)
    return to_tensor(coarse.resize((width, height), Image.Resampling.BOX))
