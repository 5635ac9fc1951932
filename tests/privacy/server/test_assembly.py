"""Patches of several pictures are put together: by their borders, then by what explains the update."""

from clients import pictures  # isort: skip  mjp before timm

import torch
from torch import Tensor

from mjp.pictures.patches import patchify
from mjp.privacy.server.assembly import Assembly, refine


def levels(count: int) -> Tensor:
    """(B, N, P)."""
    return torch.stack([patchify(picture, (8, 8)) * 255 for picture in pictures(count)])


def test_borders_put_mixed_patches_together() -> None:
    truth = levels(3)
    generator = torch.Generator().manual_seed(0)
    mixed = torch.stack([truth[torch.randperm(3, generator=generator), cell] for cell in range(16)])  # (N, B, P)
    rebuilt = Assembly(mixed, (4, 4), (8, 8)).pictures
    right = max(float((rebuilt[k] == truth[0]).all(1).double().mean()) for k in range(3))
    assert right > 0.6
    assert torch.equal(rebuilt.sum(0), truth.sum(0))  # no patch is lost or doubled


def test_exchanges_and_other_candidates_lead_to_what_explains_the_update() -> None:
    truth = levels(2)
    mixed = truth.clone()
    mixed[:, [3, 4, 9]] = truth.flip(0)[:, [3, 4, 9]]
    mixed[1, 6] = 0
    spare = [truth[:0, 0]] * 16
    spare[6] = truth[1:, 6]
    groups = [[cell] for cell in range(16)]
    rebuilt = refine(mixed, groups, spare, lambda one: -float((one - truth).abs().mean()))
    assert torch.equal(rebuilt, truth)
