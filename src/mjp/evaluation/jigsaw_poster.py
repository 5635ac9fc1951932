"""The jigsaw as a picture: the original, and for several mask ratios what is masked and what the network receives."""

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from mjp.method.plan import Plan, sample_plan
from mjp.method.shuffle import shuffle_image
from mjp.pictures.tensors import to_image

RATIOS = (0.09, 0.27, 0.5, 0.9)
TITLE = "Masked jigsaw puzzle"
SUBTITLE = (
    "Masked patches trade places and share one unknown position embedding; "
    "the network still has to recognise the picture."
)
ROWS = ("masked", "what the network receives")

PAPER, INK, QUIET, ORANGE = (253, 252, 250), (29, 31, 33), (90, 95, 101), (224, 122, 31)
TILE = 280  # pixels, about: a whole number for every patch
MARGIN, GAP, LABEL, HEAD = 36, 14, 34, 112


def tile_side(grid: tuple[int, int]) -> int:
    """Pixels of a tile, so that every patch of a square grid has a whole number of them."""
    return grid[0] * max(1, round(TILE / grid[0]))


def draw_poster(picture: Tensor, original: Tensor, grid: tuple[int, int], *, seed: int) -> Image.Image:
    """(1, 3, S, S) picture of `tile_side` and (1, 3, L, L) original of `original_side`, in [0, 1]."""
    side, large = picture.shape[-1], original.shape[-1]
    width = 2 * MARGIN + large + len(RATIOS) * (side + GAP)
    sheet = Image.new("RGB", (width, HEAD + LABEL + large + LABEL + MARGIN // 2), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, 30), TITLE, INK, ImageFont.load_default(34))
    draw.text((MARGIN, 74), SUBTITLE, QUIET, ImageFont.load_default(20))
    top = HEAD + LABEL
    sheet.paste(to_image(original[0]), (MARGIN, top))
    font = ImageFont.load_default(20)
    draw.text((MARGIN + large / 2, top + large + 8), "original", QUIET, font, anchor="ma")
    for column, ratio in enumerate(RATIOS):
        left = MARGIN + large + GAP + column * (side + GAP)
        draw.text((left + side / 2, top - 8), f"mask ratio {ratio:g}", INK, font, anchor="md")
        _draw_column(sheet, draw, picture, grid, ratio, seed=seed, place=(left, top))
    middle = MARGIN + large + GAP + (len(RATIOS) * (side + GAP) - GAP) / 2
    draw.text((middle, top + side + (large - 2 * side) / 2), ROWS[0], QUIET, font, anchor="mm")
    draw.text((middle, top + large + 8), ROWS[1], QUIET, font, anchor="ma")
    return sheet


def original_side(side: int) -> int:
    """The original is as high as two tiles with a line of text between them."""
    return 2 * side + LABEL


def _draw_column(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    picture: Tensor,
    grid: tuple[int, int],
    ratio: float,
    *,
    seed: int,
    place: tuple[int, int],
) -> None:
    left, top = place
    side = picture.shape[-1]
    patch = side // grid[0]
    plan = sample_plan(1, grid, ratio, generator=torch.Generator().manual_seed(seed))
    sheet.paste(to_image(_tinted(picture, plan, patch)[0]), (left, top))
    sheet.paste(to_image(shuffle_image(picture, plan, patch)[0]), (left, top + side + LABEL))
    for cell in plan.mask[0].nonzero().flatten().tolist():
        x, y = left + patch * (cell % grid[1]), top + patch * (cell // grid[1])
        for shift in (0, side + LABEL):
            draw.rectangle((x, y + shift, x + patch - 1, y + shift + patch - 1), outline=ORANGE)


def _tinted(picture: Tensor, plan: Plan, patch: int) -> Tensor:
    """Masked patches in orange, the others pale."""
    mask = plan.mask.view(1, 1, *plan.grid).repeat_interleave(patch, 2).repeat_interleave(patch, 3)
    orange, paper = (picture.new_tensor(colour).view(1, 3, 1, 1) / 255 for colour in (ORANGE, PAPER))
    return torch.where(mask, 0.3 * picture + 0.7 * orange, 0.6 * picture + 0.4 * paper)
