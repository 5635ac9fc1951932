"""Why a picture was found: what each word adds to the score, and which patch answers it.

A word may be several pieces to the model, each of which chooses its own token. A word's score is the sum over its
pieces, so that under MrSw the scores of the words add up to the alignment score. The token that a word chose says
little about where: the encoders have mixed patches with patches and words with words. So its map is of the word read
alone and of patches seen alone, each as if it were the whole picture, which takes the picture's file; its best patch is
what is drawn. Without the file, and with hidden positions, the map is of the mixed tokens.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn.functional import normalize

from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.tokenizer import words_of
from mjp.aladin.model.tokens import Tokens
from mjp.pictures.decode import first_readable

# from Okabe and Ito's colours, which most people can tell apart; dark enough for white letters
COLOURS = ("#b34700", "#005a8c", "#00664b", "#8c3a6b", "#5b4b00", "#3d3d8f", "#7a1f1f", "#2f5d62")


LABEL = 17  # height of a label in pixels


class Word(NamedTuple):
    """A word of a query, in the eyes of one picture."""

    text: str
    score: float  # what it adds to MrSw
    heat: Tensor  # (R,) cosines with every patch
    patch: int  # the best one
    hidden: bool  # that patch has no place: it was encoded under E_unk


def explain(index: Index, model: Aladin, text: str, query: Codes, row: int) -> list[Word]:
    """What each word of a query found in a picture."""
    picture, names = index.codes(torch.tensor([row])), list(pieces_of_words(model, text))
    unreal = ~picture.valid[0].unsqueeze(1)
    stored = normalize(picture.tokens[0], dim=-1)  # float16 has left them not quite of length 1
    cosines = (stored @ query.tokens[0][query.valid[0]].cpu().T).masked_fill(unreal, -torch.inf)  # (R, L)
    scores = [float(cosines[:, pieces].max(0).values.sum()) for _, pieces in names]
    alone = _alone(index, model, row)
    if alone is None:
        maps = [cosines[:, pieces].max(1).values for _, pieces in names]
    else:
        words = model.encode_texts([name for name, _ in names])
        maps = [(alone @ w[real].cpu().T).amax(1) for w, real in zip(words.tokens, words.valid, strict=True)]
        maps = [heat.masked_fill(unreal[:, 0], -torch.inf) for heat in maps]
    best = [int(heat.argmax()) for heat in maps]
    return [
        Word(name, score, heat, patch, bool(picture.unknown[0, patch]))
        for (name, _), score, heat, patch in zip(names, scores, maps, best, strict=True)
    ]


def _alone(index: Index, model: Aladin, row: int) -> Tensor | None:
    """(R, A) tokens of patches that have not seen each other; None if places are hidden, or no file can be read."""
    if index.facts.mask_ratio:
        return None
    picture = first_readable(index.catalogue.paths(index.id(row)))
    if picture is None:
        return None
    return patches_alone(model, model.vision.tokens(model.vision.prepare(picture).unsqueeze(0)))[0].cpu()


def patches_alone(model: Aladin, tokens: Tokens) -> Tensor:
    """(B, R, A): every patch encoded as the only one of its picture."""
    batch, count, _ = tokens.patches.shape
    each = [part.to(model.log_scale.device).flatten(0, 1).unsqueeze(1) for part in tokens[1:]]  # (B·R, 1, ...)
    cls = tokens.cls.to(model.log_scale.device).repeat_interleave(count, 0)
    return model.codes(Tokens(cls, *each)).tokens.view(batch, count, -1)


def pieces_of_words(model: Aladin, text: str) -> Iterator[tuple[str, list[int]]]:
    """The words of a text, and which pieces each is made of, as far as the model reads."""
    start, total = 0, len(model.piece_names(text))
    for word in words_of(text):
        end = min(start + len(model.piece_names(word)), total)
        if end > start:
            yield word, list(range(start, end))
        start = end


def unread_words(model: Aladin, text: str) -> int:
    """How many words at the end of a text the model does not read."""
    return len(words_of(text)) - sum(1 for _ in pieces_of_words(model, text))


def box(patch: int, grid: tuple[int, int], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a patch in a picture of that width and height."""
    (rows, columns), (width, height) = grid, size
    y, x = divmod(patch, columns)
    return x * width / columns, y * height / rows, (x + 1) * width / columns, (y + 1) * height / rows


def draw_choices(picture: Image.Image, words: list[Word], grid: tuple[int, int]) -> Image.Image:
    """A frame around every chosen patch, with the words that chose it. Hidden patches have no place to be drawn at."""
    drawn, font = picture.copy(), ImageFont.load_default(13)
    draw = ImageDraw.Draw(drawn)
    chosen: dict[int, list[str]] = {}
    for word in words:
        if not word.hidden:
            chosen.setdefault(word.patch, []).append(word.text)
    for number, patch in enumerate(chosen):
        draw.rectangle(box(patch, grid, picture.size), outline=COLOURS[number % len(COLOURS)], width=3)
    labels: list[tuple[float, float, float]] = []
    for number, (patch, names) in enumerate(chosen.items()):  # after all frames, so that none crosses a word
        label = fitting(" ".join(names), font, picture.width - 6)
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
    """Left and top of a label: above its frame, below it, or the nearest height at which it covers no other."""
    left, above = max(0.0, min(frame[0], size[0] - width)), frame[1] - LABEL
    near = [y for x, y, w in labels if x <= left + width and left <= x + w]  # others in the same columns
    lowest = size[1] - LABEL
    tops = (above, frame[3], *sorted(range(lowest), key=lambda top: abs(top - above)))
    free = (top for top in tops if 0 <= top <= lowest and all(abs(top - other) > LABEL for other in near))
    return left, next(free, max(above, 0.0))


def draw_heat(picture: Image.Image, word: Word, grid: tuple[int, int], hidden: Tensor) -> Image.Image:
    """The picture, bright where it answers the word; patches without a place stay dark."""
    heat = word.heat.masked_fill(hidden, -torch.inf)
    seen = heat[heat.isfinite()]
    low, high = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 1.0)
    share = ((heat - low) / max(high - low, 1e-6)).clamp(0, 1)
    levels = (255 * (0.15 + 0.85 * share)).round().byte().view(grid)
    light = Image.fromarray(levels.numpy()).resize(picture.size, Image.Resampling.BICUBIC)
    shown = Image.composite(picture, Image.new("RGB", picture.size), light)
    if not word.hidden:
        ImageDraw.Draw(shown).rectangle(box(word.patch, grid, picture.size), outline="#ffb454", width=3)
    return shown


def fitting(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """As much of a text as fits into a width in pixels."""
    shown = text[: width // 3]  # hardly a letter is narrower than three pixels
    while font.getlength(shown + "…" * (shown != text)) > width:
        shown = shown[:-1]
    return shown + "…" * (shown != text)
