"""The lattice attack: exact patches where the closed forms leave dimensions open, and never worse than they are."""

import sys
from typing import Any

import pytest
import torch

from clients import attack, normalise, pictures, prior, send, tiny
from mjp.privacy.attacks import activations, lattice, subspace
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.metrics import exact_patches, psnr
from mjp.privacy.network import shared_network
from mjp.privacy.server.choice import choose_points
from mjp.privacy.server.cosets import Cosets
from mjp.privacy.server.integers import can_reduce, to_levels
from mjp.privacy.server.view import Refused, View

DEFENCE = parse("mjp:0.25")


def view_of(number: int, *, offset: float = 0.0) -> tuple[View, torch.Tensor, torch.Tensor]:
    """What a server sees of one picture, the picture (moved by a part of a grey level), and the mask."""
    network = shared_network(tiny(dtype=torch.float32), DEFENCE)
    picture = (pictures(start=number) + offset / 255).clamp(0, 1)
    generator = torch.Generator().manual_seed(number)
    info: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    images = normalise(picture).float()
    update, secret = make_update(network, images, torch.tensor([4]), DEFENCE, generator=generator, **info)
    return View(update, network, prior()), picture[0], secret.mask[0]


@pytest.mark.parametrize("number", range(3, 9))
def test_most_unmasked_patches_are_exact_and_no_picture_is_worse_than_without(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lattice, "_activations", lambda *_: None)  # integers alone
    view, picture, mask = view_of(number)
    plain = subspace.run(view).pictures[0]
    found = lattice.run(view)
    assert psnr(picture, found.pictures[0]) >= psnr(picture, plain)
    assert float(exact_patches(picture, plain, 8)[~mask].double().mean()) < 0.2
    assert float(exact_patches(picture, found.pictures[0], 8)[~mask].double().mean()) >= 0.9
    assert found.details["integer_patches"] > 0


def test_pictures_between_grey_levels_keep_the_answer_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activations, "MIN_GAIN", float("inf"))  # without the help of the first MLP
    view, picture, _ = view_of(3, offset=0.37)
    found = lattice.run(view)
    assert found.details["integer_patches"] == 0
    assert torch.allclose(found.pictures, subspace.run(view).pictures, atol=1e-9)


def test_behind_the_activations_every_patch_is_exact() -> None:
    view, picture, mask = view_of(3)
    found = lattice.run(view)
    assert bool(exact_patches(picture, found.pictures[0], 8)[~mask].all())
    assert found.details["integer_patches"] == len(mask)


def test_direct_is_rounded_to_the_bit() -> None:
    network, update, _ = send(tiny(dtype=torch.float32))
    found = attack("lattice", network, update)
    assert torch.allclose(found.pictures[0] * 255, (pictures()[0] * 255).round(), atol=1e-6)


def test_noise_beyond_rounding_changes_nothing() -> None:
    network, update, _ = send(tiny(), "noise:0.1")
    rounded, plain = (attack(name, network, update).pictures for name in ("lattice", "direct"))
    assert torch.allclose(rounded, plain, atol=1e-9)


def test_impossible_points_are_rejected() -> None:
    view, picture, _ = view_of(3)
    answer = to_levels(view, view.patches(picture)).round() + 0.3
    wild = answer.round() - 300  # integer, and below 0
    cosets = Cosets(wild, wild[:0], torch.ones_like(view.mask), torch.zeros_like(view.mask))
    levels, exact = choose_points(view, cosets, answer)
    assert not exact.any()
    assert torch.equal(levels, answer)


def test_a_point_far_rougher_than_the_answer_is_rejected() -> None:
    """A patch whose points are all wrong has a best one too; patches beside it are unaffected."""
    view, picture, _ = view_of(3)
    truth = to_levels(view, view.patches(picture)).round()
    points = truth.clone()
    points[5] = torch.randint(0, 256, points[5].shape, generator=torch.Generator().manual_seed(0)).double()
    basis = (truth[:1] - truth[1:2]).abs() + 256  # so long that no other point is possible
    cosets = Cosets(points, basis, torch.ones_like(view.mask), torch.zeros_like(view.mask))
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(1), dtype=truth.dtype)
    levels, exact = choose_points(view, cosets, truth + 2 * noise)
    assert exact.nonzero()[:, 0].tolist() == [number for number in range(len(truth)) if number != 5]
    assert torch.equal(levels[exact], truth[exact])


def test_without_fpylll_it_refuses_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "can_reduce", lambda: False)
    network, update, _ = send(tiny())
    with pytest.raises(Refused, match=r"pip install 'mjp\[lattice\]'"):
        attack("lattice", network, update)


def test_an_fpylll_that_does_not_load_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fpylll", None)  # importing it raises ImportError
    assert not can_reduce.__wrapped__()
