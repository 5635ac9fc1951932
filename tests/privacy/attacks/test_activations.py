"""The activations attack: whole pictures where the linear equations leave dimensions open."""

import pytest
import torch
from torch import Tensor

from clients import attack, normalise, pictures, prior, tiny
from mjp.privacy.attacks import activations
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.metrics import best_permutation_psnr, patch_psnr, psnr
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
    info = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    update, secret = make_update(network, images, torch.tensor([4]), combination, generator=generator, **info)
    return View(update, network, prior()), picture[0], secret.mask[0]


@pytest.mark.parametrize("defence", ["mjp:0.25", "mjp:0.5"])
def test_patches_are_solved_where_linear_equations_leave_them_open(defence: str) -> None:
    view, picture, mask = view_of(defence)
    rebuilt = activations.run(view).pictures[0]
    plain = attack_subspace(view)
    assert float(patch_psnr(picture, plain, 8)[~mask].median()) < 40
    assert float(patch_psnr(picture, rebuilt, 8)[~mask].min()) > 60
    assert best_permutation_psnr(picture, rebuilt, 8) > 60  # the masked ones too, in some order


def attack_subspace(view: View) -> Tensor:
    from mjp.privacy.attacks import subspace

    return subspace.run(view).pictures[0]


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
    assert float(misfit(wrong)[2]) > 1e-4


def test_withheld_positions_of_a_narrow_network() -> None:
    network_view, picture, _ = view_of("withheld-pe")
    rebuilt = activations.run(network_view).pictures[0]
    assert psnr(picture, rebuilt) > 60


def test_nothing_masked_is_left_to_direct() -> None:
    from clients import send

    network, update, _ = send(tiny(), "none")
    with pytest.raises(Refused, match="direct"):
        attack("activations", network, update)
