"""JPEG compression."""

from io import BytesIO

from torch import Generator, Tensor

from mjp.evaluation.robustness.strengths import Strengths
from mjp.pictures.decode import decode_rgb
from mjp.pictures.tensors import to_image, to_tensor

# JPEG quality
STRENGTHS = Strengths(
    small=((80,), (65,), (58,), (50,), (40,)),
    large=((25,), (18,), (15,), (10,), (7,)),
)


def corrupt(x: Tensor, _: Generator, quality: float) -> Tensor:
    file = BytesIO()
    to_image(x).save(file, "JPEG", quality=round(quality))
    return to_tensor(decode_rgb(file.getvalue()))
