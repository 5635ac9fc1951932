"""Who has which pictures: classes spread unevenly over clients, as in hospitals and phones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.validate import number, whole


def dirichlet_shares(
    labels: Sequence[int], clients: int, *, alpha: float = 0.5, least: int = 1, generator: torch.Generator
) -> list[list[int]]:
    """Divide pictures among clients: of every class, each client gets a share that a Dirichlet distribution draws.

    Args:
        labels: The class of every picture.
        clients: How many shares to make.
        alpha: Concentration: small for clients with few classes each, large for clients that are alike.
        least: Pictures that every client has at least; the largest shares give some away.
        generator: Where the randomness comes from.

    Returns:
        For every client the numbers of its pictures; together all of them, each once.
    """
    whole("clients", clients, least=1)
    number("alpha", alpha, least=1e-3, most=1e6)
    if clients * whole("least", least) > len(labels):
        raise InputError(f"{len(labels)} pictures are too few for {clients} clients with at least {least} each")
    classes = torch.tensor(list(labels))
    shares: list[list[int]] = [[] for _ in range(clients)]
    for label in classes.unique().tolist():
        numbers = (classes == label).nonzero().flatten()
        numbers = numbers[torch.randperm(len(numbers), generator=generator)]
        for share, part in zip(shares, _cut(numbers, clients, alpha, generator), strict=True):
            share.extend(part.tolist())
    _fill_up(shares, least)
    return [sorted(share) for share in shares]


def _cut(numbers: Tensor, clients: int, alpha: float, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Consecutive parts whose lengths have Dirichlet proportions: gamma variables divided by their sum."""
    gammas = torch._standard_gamma(torch.full((clients,), alpha, dtype=torch.float64), generator).clamp(min=1e-300)
    ends = (gammas.cumsum(0) / gammas.sum() * len(numbers)).round().long()[:-1]
    return torch.tensor_split(numbers, ends)


def _fill_up(shares: list[list[int]], least: int) -> None:
    """Move pictures from the largest shares to those that have too few."""
    for share in shares:
        while len(share) < least:
            share.append(max(shares, key=len).pop())
