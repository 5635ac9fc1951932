"""Pictures of classes that no training picture shows: tokens of real pictures, in which a class is made likely.

A classifier W says which direction in feature space *detects* a class; what a class *looks like* there is the
covariance of features and logit, a_c = Σ w_c / (w_cᵀ Σ w_c): the mean change of a cell's features when the logit of c
grows by one (Haufe et al., NeuroImage 2014). In a rectangle of a real picture's cells the logit of c is raised along
a_c to that of a clear picture. The rest of the picture stays, so a class appears in all kinds of surroundings.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mjp.aladin.data.corpus import Corpus
from mjp.aladin.data.token_file import Rows, fill, token_file
from mjp.aladin.model.class_codes import ClassCodes
from mjp.aladin.model.tokens import Tokens
from mjp.common.progress import say
from mjp.common.seeds import derive_seed

SAMPLE = 1000  # pictures from which the covariance is estimated
LOGIT = (10.0, 30.0)  # of the class, in the cells of the rectangle: as in real pictures
ROUNDS = 4  # activations are clamped, which takes back a part of every change
SIDE = (0.4, 1.0)  # of the rectangle, as a share of the picture's
MAX_ACTIVATION = 6.0  # of the backbone's last layer (ReLU6)
BATCH = 64


class ClassPictures:
    """`variants` pictures of every class, on disk."""

    def __init__(self, cache: Path, corpus: Corpus, classes: ClassCodes, *, variants: int) -> None:
        self.classes, self.corpus = classes, corpus
        self.count = classes.classifier.out_features
        self.features = classes.classifier.in_features
        key: dict[str, Any] = {
            "kind": "class-pictures",
            "pictures": corpus.features.key,
            "recipe": [*LOGIT, *SIDE, ROUNDS],
        }
        self.file = token_file(cache, key, corpus.features.file.width)
        self.variants = variants
        if len(self.file) < self.count * variants:
            say("computing how classes look in the backbone's features")
            self.patterns = patterns(self._sample(), classes)
            fill(self.file, self.count * variants, self._pictures, BATCH, "class pictures")

    def read(self, numbers: list[int], variants: list[int]) -> Tokens:
        """The tokens of pictures of these classes."""
        cls, patches, valid = self.file.read([v * self.count + n for n, v in zip(numbers, variants, strict=True)])
        return Tokens(cls, patches, valid, torch.zeros_like(valid))

    def _sample(self) -> Tensor:
        """(N, D) features of cells."""
        step = max(1, len(self.corpus.items) // SAMPLE)
        tokens = self.corpus.tokens(list(range(0, len(self.corpus.items), step)))
        return tokens.patches[tokens.valid][:, : self.features]

    def _pictures(self, start: int, stop: int) -> Rows:
        """Variant by variant, so that more variants extend the file."""
        generator = torch.Generator().manual_seed(derive_seed(start))
        places = torch.arange(start, stop)
        backgrounds = torch.randint(len(self.corpus.items), (len(places),), generator=generator).tolist()
        cells = self.corpus.tokens(backgrounds).patches[..., : self.features]
        cells = with_class(cells, places % self.count, self.classes, self.patterns, generator)
        return list(self.classes(torch.cat([cells.mean(1, keepdim=True), cells], 1)))


def patterns(cells: Tensor, classes: ClassCodes) -> Tensor:
    """(classes, D): how a cell changes, on average, when the logit of a class grows by one."""
    centred = (cells - cells.mean(0)).double()
    weight = classes.classifier.weight.detach().double()
    moved = weight @ (centred.T @ centred / len(centred))  # (classes, D): covariance of logits and features
    return (moved / (moved * weight).sum(1, keepdim=True)).float()


@torch.no_grad()
def with_class(
    cells: Tensor, numbers: Tensor, classes: ClassCodes, looks: Tensor, generator: torch.Generator
) -> Tensor:
    """(B, R, D) cells in which a rectangle shows a class; `numbers` (B,), `looks` from `patterns`."""
    batch, count, _ = cells.shape
    low, high = LOGIT
    wanted = low + (high - low) * torch.rand(batch, 1, generator=generator)
    wanted = wanted + torch.randn(batch, count, generator=generator)
    inside = rectangles(batch, round(count**0.5), generator)
    weight, bias = classes.classifier.weight[numbers].unsqueeze(-1), classes.classifier.bias[numbers].unsqueeze(1)
    for _ in range(ROUNDS):
        logits = (cells @ weight).squeeze(-1) + bias  # (B, R)
        missing = (wanted - logits).clamp(min=0) * inside
        cells = (cells + missing.unsqueeze(-1) * looks[numbers].unsqueeze(1)).clamp(0, MAX_ACTIVATION)
    return cells


def rectangles(batch: int, side: int, generator: torch.Generator) -> Tensor:
    """(B, side²): 1 inside a random rectangle."""
    return (_interval(batch, side, generator).unsqueeze(2) * _interval(batch, side, generator).unsqueeze(1)).flatten(1)


def _interval(batch: int, side: int, generator: torch.Generator) -> Tensor:
    least, most = SIDE
    length, start = torch.rand(2, batch, 1, generator=generator)
    length = least + (most - least) * length
    start = start * (1 - length)
    middle = (torch.arange(side) + 0.5) / side
    return ((middle >= start) & (middle <= start + length)).float()
