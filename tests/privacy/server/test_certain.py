"""Patches that are certain: a wrong one among them is noticed."""

import torch

from clients import pictures, prior, send, tiny
from mjp.privacy.server.certain import suspects, trusted
from mjp.privacy.server.rounds import Certain
from mjp.privacy.server.view import View


def views(width: int, rounds: int) -> tuple[list[View], torch.Tensor]:
    """Updates of one picture of 16 patches, four of them masked, from a network of this width, and the true patches."""
    sent = [send(tiny(embed_dim=width), "mjp:0.25", seed=seed) for seed in range(rounds)]
    seen = [View(update, network, prior()) for network, update, _ in sent]
    return seen, seen[0].patches(pictures()[0])


def test_an_update_contradicts_wrong_patches() -> None:
    (view,), truth = views(16, 1)
    certain = Certain(truth.clone(), torch.ones_like(view.mask))
    assert not bool(suspects(view, certain).any())
    wrong = int((~view.mask).nonzero()[2])
    certain.patches[wrong] += 0.1 * torch.linspace(-1, 1, truth.shape[1], dtype=truth.dtype)
    assert bool(suspects(view, certain)[wrong])  # and perhaps patches with nearly the same gradient


def test_wrong_patches_are_left_out_where_that_makes_the_others_whole() -> None:
    seen, truth = views(24, 4)
    rows = torch.arange(16) < 8
    assert torch.equal(trusted(seen, Certain(truth, rows)).rows, rows)
    wrong = torch.tensor([2, 5])  # by one vector: only the sum of their gradients shows
    patches = truth.clone()
    patches[wrong] += 2 - 4 * (torch.arange(truth.shape[1]) % 2)
    part = trusted(seen, Certain(patches, rows)).rows
    assert bool(part.any())
    assert not bool(part[wrong].any())
