"""Dense absolute localization (DAL): the position embeddings must tell where they are.

A head g: R^D → R² reads (row, column) off the position table itself, not off features:

    L = mean over visible positions of |(i, j) − g(E_pos[i, j])|₁

Positions hidden by a mask do not count in the images that hide them. The table is the same for all images, so each
position is read once and weighted by the number of images that see it.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from mjp.common.errors import InputError

ITERATIONS = 20  # of the orthogonal iteration below; position tables have two dominant directions, it settles in a few


class Localizer(nn.Module):
    """The head g that reads a position off its embedding.

    Args:
        width: D of the position embeddings.
        kind: "ln", a linear layer; "nln", one hidden layer of width D with ReLU; "pca", the two main principal
            components, without parameters.
        generator: Where the initial weights come from.
    """

    def __init__(self, width: int, kind: Literal["ln", "nln", "pca"], *, generator: torch.Generator) -> None:
        super().__init__()
        self.kind = kind
        if kind == "ln":
            self.head: nn.Module = _linear(width, 2, generator)
        elif kind == "nln":
            self.head = nn.Sequential(_linear(width, width, generator), nn.ReLU(), _linear(width, 2, generator))
        elif kind == "pca":
            self.head = nn.Identity()
        else:
            raise InputError(f"kind must be one of ln, nln, pca, not {kind!r}")

    def forward(self, table: Tensor, targets: Tensor) -> Tensor:
        """(N, D) position embeddings → (N, 2) predictions. Only `pca` looks at the (N, 2) targets."""
        return read_principal(table, targets) if self.kind == "pca" else self.head(table)


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer drawn from the generator; its usual initialisation would draw from torch's global one."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    nn.init.trunc_normal_(layer.weight, std=0.02, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def localization_loss(
    predictions: Tensor, targets: Tensor, mask: Tensor, *, reduction: Literal["sum", "mean"] = "sum"
) -> Tensor:
    """Mean L1 distance between predicted and true positions, over the positions that are visible.

    Args:
        predictions: (N, 2), as a Localizer gives them.
        targets: (N, 2), the true rows and columns.
        mask: (B, N) bool, True = hidden in that image.
        reduction: Over the two coordinates: "sum" as the paper writes it, "mean" as the authors' code has it.

    Returns:
        A scalar; zero when no position is visible.
    """
    error = (predictions - targets).abs()  # (N, 2)
    distance = error.sum(-1) if reduction == "sum" else error.mean(-1)
    visible = (~mask).sum(0).to(distance.dtype)  # (N,) how many images see each position
    return (distance * visible).sum() / visible.sum().clamp(min=1)


def grid_targets(grid: tuple[int, int], *, unit: bool, device: torch.device) -> Tensor:
    """(N, 2) rows and columns in reading order: 0, 1, 2, ... or scaled to [0, 1]."""
    rows = torch.arange(grid[0], device=device, dtype=torch.float32)
    columns = torch.arange(grid[1], device=device, dtype=torch.float32)
    if unit:
        rows, columns = rows / max(grid[0] - 1, 1), columns / max(grid[1] - 1, 1)
    return torch.cartesian_prod(rows, columns)


def read_principal(table: Tensor, targets: Tensor) -> Tensor:
    """Predict positions from the table's two main principal components.

    As published, the projection itself is the prediction, so the loss depends on the arbitrary sign and rotation of the
    components. Here the prediction is the best linear readout of the targets from the two components, which does not
    change when they are flipped or rotated. Directions and readout are constants for the gradient: no derivative of an
    eigenvector, which explodes where eigenvalues meet.
    """
    table = table.float() if table.dtype.itemsize < 4 else table  # the solver knows no half precision
    targets = targets.to(table.dtype)
    centred = table - table.mean(0)
    with torch.no_grad():
        offset = targets.mean(0)
        directions = principal_directions(centred, centred.T @ (targets - offset))  # (D, 2)
        scores = centred @ directions
        gram = scores.T @ scores
        # a little ridge: a table of equal rows (a Swin's at the start) has no components, and then predicts the mean
        ridge = 1e-6 * gram.diagonal().mean() + 1e-12
        gram = gram + ridge * torch.eye(2, device=gram.device, dtype=gram.dtype)
        # solve_ex leaves its error code on the device; solve and eigh would wait for it
        readout = torch.linalg.solve_ex(gram, scores.T @ (targets - offset))[0]  # (2, 2)
    return centred @ (directions @ readout) + offset


def principal_directions(centred: Tensor, start: Tensor) -> Tensor:
    """The two main principal directions of (N, D) rows, orthonormal (D, 2), by orthogonal iteration from (D, 2)."""
    directions = torch.linalg.qr(start).Q
    for _ in range(ITERATIONS):
        directions = torch.linalg.qr(centred.T @ (centred @ directions)).Q
    return directions
