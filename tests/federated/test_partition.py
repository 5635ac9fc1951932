"""Shares: all pictures, each once, uneven for a small alpha and even for a large one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mjp.common.errors import InputError
from mjp.federated.partition import dirichlet_shares

LABELS = [number % 10 for number in range(500)]


def draw(clients: int, alpha: float, seed: int = 0, least: int = 1) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return dirichlet_shares(LABELS, clients, alpha=alpha, least=least, generator=generator)


@given(st.integers(1, 10), st.floats(0.01, 100), st.integers(0, 50), st.integers(0, 40))
def test_every_picture_has_one_owner_and_nobody_too_few(clients: int, alpha: float, seed: int, least: int) -> None:
    shares = draw(clients, alpha, seed, least)
    assert sorted(number for share in shares for number in share) == list(range(len(LABELS)))
    assert min(map(len, shares)) >= least


def test_alpha_says_how_alike_clients_are() -> None:
    def largest_class(alpha: float) -> float:
        shares = draw(5, alpha)
        return sum(max(sum(LABELS[n] == c for n in s) for c in range(10)) / len(s) for s in shares) / 5

    assert largest_class(0.05) > 0.3 > 0.15 > largest_class(1000)


def test_shares_depend_on_the_generator_alone() -> None:
    assert draw(4, 0.5, seed=1) == draw(4, 0.5, seed=1) != draw(4, 0.5, seed=2)


def test_too_many_clients_are_refused() -> None:
    with pytest.raises(InputError, match="500 pictures are too few for 20 clients with at least 30 each"):
        draw(20, 1.0, least=30)
