"""One round with patches that are certain: the others are known better, and a wrong one is noticed."""

import torch

from clients import pictures, prior, send, tiny
from mjp.privacy.server.rounds import Certain, open_round, suspects
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


def test_an_update_contradicts_wrong_patches() -> None:
    view, truth = narrow()
    certain = Certain(truth.clone(), torch.ones_like(view.mask))
    assert not bool(suspects(view, certain).any())
    wrong = int((~view.mask).nonzero()[2])
    certain.patches[wrong] += 0.1 * torch.linspace(-1, 1, truth.shape[1], dtype=truth.dtype)
    assert bool(suspects(view, certain)[wrong])  # and perhaps patches with nearly the same gradient
