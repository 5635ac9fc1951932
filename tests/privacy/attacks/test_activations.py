"""The activations attack: whole pictures where the linear equations leave dimensions open."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clients import attack, normalise, pictures, prior, send, tiny
from mjp.privacy.attacks import activations, subspace
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.metrics import best_permutation_psnr, patch_psnr
from mjp.privacy.network import shared_network
from mjp.privacy.server.first_block import FirstBlock
from mjp.privacy.server.view import Refused, View

BETWEEN = 0.37 / 255  # of a grey level: no help from integers


def view_of(defence: str, *, number: int = 3, dtype: torch.dtype = torch.float32) -> tuple[View, Tensor, Tensor]:
    """What a server sees of one picture, the picture, and the mask."""
    combination = parse(defence)
    network = shared_network(tiny(dtype=dtype), combination)
    picture = (pictures(start=number) + BETWEEN).clamp(0, 1)
    generator = torch.Generator().manual_seed(number)
    images = normalise(picture).to(dtype)
    info: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    update, secret = make_update(network, images, torch.tensor([4]), combination, generator=generator, **info)
    return View(update, network, prior()), picture[0], secret.mask[0]


def test_patches_are_solved_where_linear_equations_leave_them_open() -> None:
    view, picture, mask = view_of("mjp:0.25")
    rebuilt = activations.run(view).pictures[0]
    plain = subspace.run(view).pictures[0]
    assert float(patch_psnr(picture, plain, 8)[~mask].median()) < 40
    assert float(patch_psnr(picture, rebuilt, 8)[~mask].min()) > 55
    assert best_permutation_psnr(picture, rebuilt, 8) > 55  # the masked ones too, in some order


def test_masked_patches_are_put_back_the_same_way_whatever_order_they_come_in() -> None:
    view, picture, mask = view_of("mjp:0.6")
    assert int(mask.sum()) > 7  # fewer are ordered by trying all orders
    noise = torch.rand(picture.shape, generator=torch.Generator().manual_seed(0))  # whose borders decide nothing
    patches = view.patches(noise)
    mixed = patches.clone()
    mixed[mask] = patches[mask].flip(0)
    assert torch.equal(activations.put_back(view, patches, mask), activations.put_back(view, mixed, mask))


def test_without_a_solution_the_answer_is_that_of_subspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mjp.privacy.server.bend.MAX_STEPS", 1)
    view, _, _ = view_of("mjp:0.5")
    rebuilt = activations.run(view)
    assert rebuilt.details["open_dimensions"] == 7
    assert torch.allclose(rebuilt.pictures, subspace.run(view).pictures, atol=1e-9)


def test_true_activations_are_in_the_span_of_the_gradient() -> None:
    view, picture, mask = view_of("mjp:0.25", dtype=torch.float64)
    block = FirstBlock(view, mask)
    patches = view.patches(picture)
    tokens = len(patches) + len(block.prefix)
    rows = torch.linalg.svd(block.gradient, full_matrices=False)[2][:tokens]

    def misfit(content: Tensor) -> Tensor:
        bent = block.bent(block.mixed(content))
        return (bent - bent @ rows.T @ rows).norm(dim=1) / bent.norm(dim=1)

    assert float(misfit(patches).max()) < 1e-6  # masked patches in any order: the order is not in the gradient
    wrong = patches.clone()
    wrong[2] += 0.05
    assert float(misfit(wrong)[2 + len(block.prefix)]) > 1e-4


def test_nothing_masked_is_left_to_direct() -> None:
    network, update, _ = send(tiny(), "none")
    with pytest.raises(Refused, match="direct"):
        attack("activations", network, update)
