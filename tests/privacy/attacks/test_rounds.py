"""The rounds attack: several updates of one picture, each with a jigsaw and weights of its own."""

from typing import Any

import pytest
import torch

from clients import normalise, pictures, prior, tiny
from mjp.privacy.attacks import rounds, subspace
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.examine.federation import networks_of_rounds
from mjp.privacy.metrics import psnr
from mjp.privacy.network import shared_network
from mjp.privacy.server.view import Refused, View

INFO: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def views(defence: str, numbers: list[int], *, between: float = 0.0, dtype: torch.dtype = torch.float32) -> list[View]:
    """What a server sees of these pictures, one in every round; `between`: levels by which they are off the grid."""
    combination = parse(defence)
    others = normalise(pictures(8, start=40)).to(dtype)
    labels = torch.arange(8)
    generator = torch.Generator().manual_seed(0)
    network = shared_network(tiny(dtype=dtype), combination)
    seen = []
    for turn, model in enumerate(networks_of_rounds(network, others, labels, len(numbers), generator)):
        image = normalise((pictures(start=numbers[turn]) + between / 255).clamp(0, 1)).to(dtype)
        jigsaw = torch.Generator().manual_seed(100 + turn)
        update, _ = make_update(model, image, torch.tensor([4]), combination, generator=jigsaw, **INFO)
        seen.append(View(update, model, prior()))
    return seen


def run(all_views: list[View]) -> rounds.Reconstruction:
    all_views[0].others = tuple(all_views[1:])
    return rounds.run(all_views[0])


def test_rounds_undo_what_one_update_hides() -> None:
    mine = views("mjp:0.25", [3] * 5, between=0.37)
    rebuilt = run(mine)
    assert psnr(pictures(start=3)[0], subspace.run(mine[0]).pictures[0]) < 40
    assert psnr((pictures(start=3)[0] + 0.37 / 255).clamp(0, 1), rebuilt.pictures[0]) > 60


def test_updates_of_other_clients_are_told_apart() -> None:
    mine = views("mjp:0.25", [3, 7, 3, 8, 3, 9])
    mine[0].others = tuple(mine[1:])
    assert rounds.linked(mine[0]) == [mine[0], mine[2], mine[4]]


def test_withheld_position_gradients_in_two_rounds() -> None:
    mine = views("mjp:0.25+withheld-pe", [3] * 2, dtype=torch.float64)
    assert psnr(pictures(start=3)[0], run(mine).pictures[0]) > 60


def test_one_update_is_refused() -> None:
    mine = views("mjp:0.25", [3, 7])
    with pytest.raises(Refused, match="only one update"):
        rounds.run(mine[0])
    with pytest.raises(Refused, match="same picture"):
        run(mine)
