"""One round with patches that are certain: the others are known better, and a wrong one is noticed."""

import pytest
import torch

from clients import pictures, prior, send, tiny
from mjp.privacy.server.linear import solve_open
from mjp.privacy.server.rounds import (
    Certain,
    Equations,
    contradiction,
    intersect,
    open_round,
    solve_rounds,
)
from mjp.privacy.server.view import View


def narrow() -> tuple[View, torch.Tensor]:
    """A network of 16 dimensions for 16 patches, four of them masked, and the true patches."""
    network, update, _ = send(tiny(embed_dim=16), "mjp:0.25")
    view = View(update, network, prior())
    return view, view.patches(pictures()[0])


def first(view: View, count: int) -> torch.Tensor:
    """(N,) so many of the unmasked patches."""
    return ~view.mask & ((~view.mask).cumsum(0) <= count)


def test_certain_patches_complete_the_span_of_a_narrow_network() -> None:
    view, truth = narrow()
    assert open_round(view).missing > 0
    certain = Certain(truth, first(view, 6))
    single = open_round(view, certain)
    assert single.missing == 0
    rest = truth - single.origin
    assert float((rest - (rest @ single.rows.T) @ single.rows).abs().max()) < 1e-4


def test_masked_patches_that_are_certain_are_the_span() -> None:
    view, truth = narrow()
    single = open_round(view, Certain(truth, view.mask))
    differences = truth[view.mask][1:] - truth[view.mask][:1]
    assert float((differences - (differences @ single.rows.T) @ single.rows).abs().max()) < 1e-9
    assert torch.equal(single.origin[view.mask], truth[view.mask])


def test_rounds_that_agree_are_believed_however_rough_the_picture_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rough picture in two rounds that say nearly everything, for a server that expects smooth ones."""
    monkeypatch.setattr("mjp.privacy.server.rounds.explains", lambda *_: False)  # as for nearly right photographs
    view, _ = narrow()
    noise = torch.rand(pictures()[0].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    truth = view.patches(noise)
    assert not view.prior.plausible(noise)
    hidden = torch.zeros_like(view.mask)
    rounds = [equations(truth, seed, 1e-4) for seed in (1, 2)]
    assert float((solve_rounds(view, rounds, hidden) - truth).abs().max()) < 0.01
    apart = [rounds[0], equations(truth.flip(0), 2, 1e-4)]  # of another picture
    system = intersect(view, rounds)
    assert contradiction(rounds, system, solve_open(view, system.origin, system.free)) < 2
    system = intersect(view, apart)
    assert contradiction(apart, system, solve_open(view, system.origin, system.free)) > 100


def equations(truth: torch.Tensor, seed: int, noise: float) -> Equations:
    """A round that leaves four random dimensions open."""
    generator = torch.Generator().manual_seed(seed)
    size = truth.shape[1]
    rows = torch.linalg.qr(torch.randn(size, 4, dtype=truth.dtype, generator=generator))[0].T
    moved = truth + torch.randn(len(truth), 4, dtype=truth.dtype, generator=generator) @ rows
    return Equations(moved + noise * torch.randn(moved.shape, dtype=moved.dtype, generator=generator), rows, noise)
