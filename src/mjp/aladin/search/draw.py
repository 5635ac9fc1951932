"""Explanations as pictures: a frame around the patch of each word, or a map of one word."""

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from mjp.aladin.search.explain import PEAK, Word
from mjp.pictures.sheet import fit_text

# from Okabe and Ito's colours, which most people can distinguish; dark enough for white letters
COLOURS = ("#b34700", "#005a8c", "#00664b", "#8c3a6b", "#5b4b00", "#3d3d8f", "#7a1f1f", "#2f5d62")
LABEL = 17  # height of a label in pixels


def box(patch: int, grid: tuple[int, int], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a patch in a picture of that width and height."""
    (rows, columns), (width, height) = grid, size
    y, x = divmod(patch, columns)
    return x * width / columns, y * height / rows, (x + 1) * width / columns, (y + 1) * height / rows


def draw_frames(picture: Image.Image, words: list[Word], grid: tuple[int, int]) -> Image.Image:
    """A frame around the best patch of every word that points somewhere, with the words on it."""
    drawn = picture.copy()
    font = ImageFont.load_default(13)
    draw = ImageDraw.Draw(drawn)
    words_of_patch: dict[int, list[str]] = {}
    for word in words:
        if word.place is not None:
            words_of_patch.setdefault(word.place, []).append(word.text)
    for number, patch in enumerate(words_of_patch):
        draw.rectangle(box(patch, grid, picture.size), outline=COLOURS[number % len(COLOURS)], width=3)
    labels: list[tuple[float, float, float]] = []
    for number, (patch, names) in enumerate(words_of_patch.items()):  # after all frames, so that none crosses a label
        label = fit_text(" ".join(names), font, picture.width - 6)
        width = draw.textbbox((0, 0), label, font)[2] + 6
        left, top = _place(box(patch, grid, picture.size), width, picture.size, labels)
        labels.append((left, top, width))
        draw.rectangle((left, top, left + width, top + LABEL), fill=COLOURS[number % len(COLOURS)])
        draw.text((left + 3, top), label, "white", font)
    return drawn


def _place(
    frame: tuple[float, float, float, float],
    width: float,
    size: tuple[int, int],
    labels: list[tuple[float, float, float]],
) -> tuple[float, float]:
    """Left and top of a label: above its frame, below it, or at the nearest height where it covers no other."""
    left, above = max(0.0, min(frame[0], size[0] - width)), frame[1] - LABEL
    near = [y for x, y, w in labels if x <= left + width and left <= x + w]  # others in the same columns
    lowest = size[1] - LABEL
    tops = (above, frame[3], *sorted(range(lowest), key=lambda top: abs(top - above)))
    free = (top for top in tops if 0 <= top <= lowest and all(abs(top - other) > LABEL for other in near))
    return left, next(free, max(above, 0.0))


def draw_heat(picture: Image.Image, word: Word, grid: tuple[int, int], hidden: Tensor) -> Image.Image:
    """The picture, bright where it matches the word; patches without a place stay dark.

    A map without a peak is not stretched: differences that mean nothing are not made visible.
    """
    heat = word.heat.masked_fill(hidden, -torch.inf)
    finite = heat[heat.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    share = (1 - (high - heat) / max(high - low, PEAK)).clamp(0, 1)
    levels = (255 * (0.15 + 0.85 * share)).round().byte().view(grid)
    light = Image.fromarray(levels.numpy()).resize(picture.size, Image.Resampling.BICUBIC)
    lit = Image.composite(picture, Image.new("RGB", picture.size), light)
    if word.place is not None:
        ImageDraw.Draw(lit).rectangle(box(word.place, grid, picture.size), outline="#ffb454", width=3)
    return lit
