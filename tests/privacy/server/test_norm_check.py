"""The first LayerNorm: it holds for true patches as well as noise lets it, and for no others of an open system."""

from typing import Any

import pytest
import torch

from clients import normalise, pictures, prior, tiny
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.network import shared_network
from mjp.privacy.server.norm_check import NormCheck
from mjp.privacy.server.view import View

DEFENCE = parse("mjp:0.25")
INFO: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def view_of(number: int, *, withheld: str | None = None) -> tuple[View, torch.Tensor, torch.Tensor]:
    network = shared_network(tiny(dtype=torch.float32), DEFENCE)
    generator = torch.Generator().manual_seed(number)
    images = normalise(pictures(start=number)).float()
    update, secret = make_update(network, images, torch.tensor([4]), DEFENCE, generator=generator, **INFO)
    tensors = {name: tensor for name, tensor in update.tensors.items() if name != withheld}
    view = View(type(update)(tensors, update.info), network, prior())
    picture = secret.shuffled[0].double() * torch.tensor(INFO["std"]).view(3, 1, 1)
    return view, view.patches(picture + torch.tensor(INFO["mean"]).view(3, 1, 1)), secret.mask[0]


@pytest.mark.parametrize("number", [4, 5])
def test_noise_explains_the_misfit_of_true_patches_alone(number: int) -> None:
    view, truth, mask = view_of(number)
    check = NormCheck(view, mask)
    assert check.usable
    wrong = truth + (truth[mask][1] - truth[mask][0])  # satisfies the linear equations as well
    misfit = check.deviations(torch.stack([truth, wrong], 1))[0] / check.spare
    assert 0.2 < float(misfit[:, 0].median()) < 5
    assert float(misfit[~mask, 1].median()) > 3 * float(misfit[~mask, 0].median())


def test_without_the_gradient_of_the_bias_there_is_no_such_equation() -> None:
    view, _, mask = view_of(3, withheld="model.blocks.0.attn.qkv.bias")
    assert not NormCheck(view, mask).usable
