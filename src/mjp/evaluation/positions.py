"""What position embeddings have learned: how well they tell their position, and how they are arranged.

regression     ordinary least squares from embedding to position, cross-validated: mean absolute error in patches
projection     principal components
similarity     cosine similarity of every embedding to every other
spectrum       singular values of the centred table: how many directions it uses
umap           a plane that keeps neighbours together, by umap-learn
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.model import MJP


@dataclass(frozen=True)
class Regression:
    """Mean absolute error over the folds, and its standard deviation between folds."""

    index_mae: float  # 1-D: the number of the patch in reading order
    index_std: float
    place_mae: float  # 2-D: (row, column), averaged over both
    place_std: float
    folds: int
    seed: int


def position_table(model: MJP) -> tuple[Tensor, tuple[int, int]]:
    """(N, D) position embeddings of the patches and their grid; refuses a model that has none."""
    table = model.position_table()
    if table is None:
        raise InputError(
            f"this {type(model.model).__name__} has no absolute position embeddings to study: choose a ViT, or a Swin "
            "with ape=True"
        )
    inner: Any = model.model
    height, width = inner.patch_embed.grid_size
    return table[0].detach().double().cpu(), (height, width)


def regress(table: Tensor, grid: tuple[int, int], *, folds: int = 5, seed: int = 0) -> Regression:
    """Least squares with intercept on all folds but one, error on that one; positions are dealt to folds at random."""
    rows, columns = grid
    index = torch.arange(rows * columns, dtype=table.dtype)
    place = torch.stack([index // columns, index % columns], 1)
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    parts = order.tensor_split(folds)
    errors = []
    for k in range(folds):
        train = torch.cat([part for i, part in enumerate(parts) if i != k])
        errors.append([_error(table, target, train, parts[k]) for target in (index.unsqueeze(1), place)])
    means = torch.tensor(errors, dtype=table.dtype)
    (index_mae, place_mae), (index_std, place_std) = means.mean(0).tolist(), means.std(0, correction=0).tolist()
    return Regression(index_mae, index_std, place_mae, place_std, folds, seed)


def _error(table: Tensor, target: Tensor, train: Tensor, test: Tensor) -> float:
    """With fewer positions than dimensions the fit is not unique; the shortest solution is taken."""
    centre, middle = table[train].mean(0), target[train].mean(0)
    weights = torch.linalg.lstsq(table[train] - centre, target[train] - middle, driver="gelsd").solution
    return ((table[test] - centre) @ weights + middle - target[test]).abs().mean().item()


def principal_components(table: Tensor, count: int = 3) -> tuple[Tensor, Tensor]:
    """(N, count) scores and the share of the variance that each component explains; signs made unique."""
    left, values, _ = torch.linalg.svd(table - table.mean(0), full_matrices=False)
    scores = left[:, :count] * values[:count]
    largest = scores.gather(0, scores.abs().argmax(0, keepdim=True))  # its sign decides the sign of the component
    return scores * largest.sign(), values[:count] ** 2 / (values**2).sum()


def spectrum(table: Tensor) -> Tensor:
    """Singular values of the centred table, the largest as 1."""
    values = torch.linalg.svdvals(table - table.mean(0))
    return values / values[0].clamp(min=1e-300)


def similarity(table: Tensor) -> Tensor:
    """(N, N) cosine similarities."""
    unit = torch.nn.functional.normalize(table, dim=1)
    return unit @ unit.T


def umap(table: Tensor, seed: int) -> Tensor | None:
    """(N, 2) UMAP coordinates, if umap-learn is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorFlow, which it could use, and of tables with few rows
        try:
            from umap import UMAP
        except ImportError:
            return None
        return torch.from_numpy(UMAP(n_components=2, random_state=seed, n_jobs=1).fit_transform(table.numpy()))
