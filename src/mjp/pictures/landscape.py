"""The default picture: a synthetic landscape."""

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from mjp.pictures.tensors import to_tensor


def landscape(size: int) -> Tensor:
    """(1, 3, size, size) in [0, 1]: sky, sun, hills and a house, so that moved patches stand out."""
    big = 4 * size
    rows = np.linspace(0, 1, big)[:, None, None]
    sky = np.array([70, 130, 200]) * (1 - rows) + np.array([250, 215, 170]) * rows
    picture = Image.fromarray(np.broadcast_to(sky, (big, big, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(picture)

    def at(*points: tuple[float, float]) -> list[tuple[float, float]]:
        return [(x * big, y * big) for x, y in points]

    draw.ellipse(at((0.66, 0.1), (0.84, 0.28)), fill=(255, 236, 150))
    draw.polygon(
        at((0, 0.62), (0.2, 0.34), (0.36, 0.52), (0.55, 0.28), (0.8, 0.55), (1, 0.42), (1, 1), (0, 1)), (95, 110, 150)
    )
    draw.polygon(at((0.2, 0.34), (0.15, 0.42), (0.21, 0.4), (0.26, 0.42)), fill=(240, 244, 250))
    draw.polygon(at((0.55, 0.28), (0.48, 0.37), (0.55, 0.35), (0.62, 0.37)), fill=(240, 244, 250))
    draw.ellipse(at((-0.4, 0.62), (0.75, 1.6)), fill=(70, 140, 80))
    draw.ellipse(at((0.35, 0.68), (1.5, 1.7)), fill=(95, 165, 85))
    draw.rectangle(at((0.56, 0.62), (0.76, 0.8)), fill=(225, 200, 165))
    draw.polygon(at((0.53, 0.63), (0.66, 0.5), (0.79, 0.63)), fill=(170, 60, 50))
    draw.rectangle(at((0.63, 0.7), (0.69, 0.8)), fill=(110, 70, 50))
    draw.rectangle(at((0.58, 0.66), (0.62, 0.7)), fill=(120, 180, 220))
    draw.rectangle(at((0.7, 0.66), (0.74, 0.7)), fill=(120, 180, 220))
    for x in (0.08, 0.2, 0.32, 0.9):
        draw.rectangle(at((x - 0.012, 0.76), (x + 0.012, 0.86)), fill=(100, 70, 50))
        draw.polygon(at((x - 0.07, 0.78), (x, 0.58), (x + 0.07, 0.78)), fill=(35, 95, 60))
    small = picture.resize((size, size), Image.Resampling.LANCZOS)
    return to_tensor(small).unsqueeze(0)
