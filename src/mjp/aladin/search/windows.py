"""Where in a picture a word is answered: how well windows of a few patches match it, each as if it were the picture.

A single patch sees too little to be named, the whole picture says nothing about a place; a window of 3×3 patches is
between the two. The value of a patch is the mean over the windows that contain it. Backbones that take any size see the
picture at twice their size, so that things which fill a quarter of it are as large as in training.
"""

import math

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, fold

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.tokens import Tokens

WINDOW = 3  # patches in a row
ZOOM = 2


@torch.no_grad()
def word_maps(model: Aladin, picture: Image.Image, words: Codes, grid: tuple[int, int]) -> Tensor:
    """(C, R) how well the places of a picture match each of C texts; R places on a grid of rows and columns."""
    vision = model.vision.enlarged(ZOOM)
    tokens = vision.tokens(vision.prepare(picture).unsqueeze(0))
    rows = round(math.sqrt(tokens.patches.shape[1] * vision.size[0] / vision.size[1]))
    fine = (rows, tokens.patches.shape[1] // rows)
    codes = model.codes(windows(tokens, fine))
    scores = model.alignment(Codes(*(part.cpu() for part in codes)), Codes(*(part.cpu() for part in words)))  # (W, C)
    return adaptive_avg_pool2d(spread(scores.T, fine), grid).flatten(1)


def windows(tokens: Tokens, grid: tuple[int, int]) -> Tokens:
    """The windows of one picture as pictures of their own, (W, 9, D)."""
    side = window_side(grid)
    patches = tokens.patches[0].view(*grid, -1)
    parts = patches.unfold(0, side, 1).unfold(1, side, 1).flatten(3).flatten(0, 1).transpose(1, 2)  # (W, side², D)
    valid = torch.ones(parts.shape[:2], dtype=torch.bool, device=parts.device)
    return Tokens(parts.mean(1), parts, valid, ~valid)


def spread(scores: Tensor, grid: tuple[int, int]) -> Tensor:
    """(C, rows, columns): for every patch the mean of the (C, W) scores of the windows that contain it."""
    side = window_side(grid)
    columns = torch.stack([scores, torch.ones_like(scores)]).unsqueeze(2).expand(-1, -1, side * side, -1)
    total, count = fold(columns.flatten(0, 1), grid, side).view(2, len(scores), *grid)
    return total / count


def window_side(grid: tuple[int, int]) -> int:
    return min(WINDOW, *grid)
