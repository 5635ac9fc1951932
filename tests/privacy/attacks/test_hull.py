"""The hull attack: a model whose tokens carry no position gives its patches away as a set, hidden or not."""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor

import mjp
from clients import normalise, pictures, prior, tiny
from mjp.privacy.attacks import hull
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.network import shared_network
from mjp.privacy.server.view import Refused, View

INFO: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def rotary(**changes: Any) -> mjp.MJP:
    """A rotary ViT of 16 patches."""
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 96, "depth": 2, "num_heads": 3, "init_values": 0.1}
    network = timm.create_model("vit_small_patch16_rope_224", **{**sizes, "num_classes": 10, **changes})
    return mjp.MJP(network, mjp.variant("G", ratio=0.5)).eval()


def view_of(model: mjp.MJP, defence: str, number: int = 3) -> tuple[View, Tensor]:
    """What a server sees of a picture, and its patches."""
    combination = parse(defence)
    network = shared_network(model, combination)
    images = normalise(pictures(start=number)).float()
    generator = torch.Generator().manual_seed(0)
    update, _ = make_update(network, images, torch.tensor([4]), combination, generator=generator, **INFO)
    view = View(update, network, prior())
    return view, view.patches(pictures(start=number)[0].double())


@pytest.mark.parametrize("defence", ["none", "mjp:0.5"])
def test_all_patches_are_in_the_hull(defence: str) -> None:
    view, patches = view_of(rotary(), defence)
    system = hull.patch_hull(view)
    rest = patches - system.origin
    rest = rest - rest @ system.free.T @ system.free
    assert len(system.free) == 15
    assert rest.norm() < 1e-4 * patches.norm()
    other = view_of(rotary(), defence, number=4)[1] - system.origin  # another picture is far from it
    assert (other - other @ system.free.T @ system.free).norm() > 0.1 * patches.norm()


@pytest.mark.parametrize("defence", ["none", "mjp:0.5"])
def test_the_set_of_patches_is_recovered_whatever_is_hidden(defence: str) -> None:
    pytest.importorskip("fpylll")
    view, patches = view_of(rotary(), defence, number=6)
    recovered, gap = hull.patch_set(view, hull.patch_hull(view))
    distances = (recovered.unsqueeze(0) - patches.unsqueeze(1)).abs().amax(2)  # (N, N)
    assert gap > 3
    assert (distances.amin(1) < 1e-6).all()


def test_a_model_with_a_table_is_left_to_the_other_attacks() -> None:
    view, _ = view_of(tiny(dtype=torch.float32), "none")
    with pytest.raises(Refused, match="adds position embeddings to its patches: use direct, span or subspace"):
        hull.run(view)


def test_a_model_without_positions_has_a_hull_too() -> None:
    view, patches = view_of(tiny(dtype=torch.float32), "no-pe")
    system = hull.patch_hull(view)
    rest = patches - system.origin
    assert (rest - rest @ system.free.T @ system.free).norm() < 1e-3 * patches.norm()


def test_more_patches_than_dimensions_are_refused() -> None:
    view, _ = view_of(rotary(patch_size=4), "none")
    with pytest.raises(Refused, match="64 patches fill all 48 dimensions of a patch: their span says nothing"):
        hull.run(view)
