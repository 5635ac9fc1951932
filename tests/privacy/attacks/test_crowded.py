"""More patches than dimensions: what the prior fills, what integers decide, and what noise hides."""

from typing import Any

import pytest
import torch

from clients import attack, normalise, pictures, prior, send, tiny
from mjp.method.model import MJP
from mjp.privacy.metrics import exact_patches, psnr
from mjp.privacy.server.view import Refused

pytest.importorskip("fpylll")
PATCH = 4


def crowded(**changes: Any) -> MJP:
    """64 patches in 60 dimensions, of which LayerNorm takes one."""
    return tiny(**{"patch_size": PATCH, "embed_dim": 60, **changes})


def test_one_update_of_a_plain_network_is_the_picture() -> None:
    network, update, _ = send(crowded())
    picture = pictures()[0]
    filled, whole = (attack(name, network, update).pictures[0] for name in ("direct", "lattice"))
    assert psnr(picture, filled) > psnr(picture, prior().mean) + 15
    assert not bool(exact_patches(picture, filled, PATCH).all())
    assert bool(exact_patches(picture, whole, PATCH).all())


def test_a_jigsaw_without_the_unknown_position_changes_only_the_order() -> None:
    network, update, secret = send(crowded(), "jp:0.25")
    whole = attack("lattice", network, update).pictures[0]
    shuffled, found = secret.shuffled[0], normalise(whole.unsqueeze(0))[0]
    assert torch.allclose(found, shuffled, atol=1e-6)


@pytest.mark.parametrize("start", [3, 5])
def test_masked_patches_hide_behind_the_others_from_linear_equations_but_not_from_integers(start: int) -> None:
    network, update, secret = send(crowded(), "mjp:0.0625", start=start)
    for name in ("direct", "subspace"):
        with pytest.raises(Refused, match="only 60 equations"):
            attack(name, network, update)
    found = attack("lattice", network, update)
    exact = exact_patches(pictures(start=start)[0], found.pictures[0], PATCH)
    assert float(exact[~secret.mask[0]].double().mean()) >= 0.9


def test_more_masked_patches_than_a_reduction_can_take_are_refused() -> None:
    network, update, _ = send(crowded(), "mjp:0.75")
    with pytest.raises(Refused, match=r"48 of them masked.*is not tried"):
        attack("lattice", network, update)


def test_noise_gives_the_answer_of_the_prior_and_no_wrong_integers() -> None:
    network, update, _ = send(crowded(), "noise:0.001")
    filled, whole = (attack(name, network, update) for name in ("direct", "lattice"))
    assert torch.allclose(filled.pictures, whole.pictures, atol=1e-9)
    assert whole.details["integer_patches"] == 0


@pytest.mark.parametrize("change", ["mjp:0.0625+noise:0.001", "between grey levels"])
def test_what_hides_the_integers_is_refused(change: str) -> None:
    between = change == "between grey levels"
    moved = (pictures() * 0.9 + 0.0371) if between else pictures()
    network, update, _ = send(crowded(), "mjp:0.0625" if between else change, pictures=moved)
    with pytest.raises(Refused, match="hide what integers would tell"):
        attack("lattice", network, update)
