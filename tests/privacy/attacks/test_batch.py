"""The batch attack: several pictures in one update, each rebuilt to the bit, or a refusal that says why."""

from clients import attack, pictures, prior, send, tiny  # isort: skip  mjp before timm

import pytest
import torch
from torch import Tensor

from mjp.method.model import MJP
from mjp.privacy.attacks import batch
from mjp.privacy.examine.conclusion import EXPOSED, conclude
from mjp.privacy.examine.trial import try_attack
from mjp.privacy.metrics import exact_patches, match_batch
from mjp.privacy.server.batch import open_system
from mjp.privacy.server.view import Refused, View

LABELS = [4, 1, 7]


def model(dtype: torch.dtype = torch.float32) -> MJP:
    """Wide enough for three pictures of 16 patches."""
    return tiny(dtype=dtype, embed_dim=96)


def exact(rebuilt: Tensor, truth: Tensor) -> float:
    """Share of patches that are right to the bit, in their place and picture."""
    order = match_batch(truth, rebuilt)
    return sum(
        exact_patches(one, rebuilt[k], 8).double().mean().item() for one, k in zip(truth, order, strict=True)
    ) / len(truth)


def test_every_picture_of_a_batch_is_rebuilt_to_the_bit() -> None:
    network, update, _ = send(model(torch.float64), "batch:3", labels=LABELS)
    finding = try_attack(batch, network, update, prior())
    assert finding.pictures is not None
    assert exact(finding.pictures, pictures(3)) == 1
    assert finding.details["integer_patches"] == 48
    assert finding.verdict is not None
    assert finding.verdict.outcome == "explains"
    assert conclude([finding]).verdict == EXPOSED


def test_all_patches_of_a_place_satisfy_the_equations() -> None:
    network, update, _ = send(model(), "batch:3", labels=LABELS)
    view = View(update, network, prior())
    system = open_system(view)
    assert len(system.free) == 32
    for picture in pictures(3):
        rest = view.patches(picture) - system.origin
        assert (rest - rest @ system.free.T @ system.free).abs().max() < 0.01


def test_without_whole_grey_levels_it_claims_nothing() -> None:
    between = (pictures(2) + 0.37 / 255).clamp(0, 1) * 0.99
    network, update, _ = send(model(), "batch:2", pictures=between)
    rebuilt = attack("batch", network, update)
    assert rebuilt.details["integer_patches"] == 0
    assert rebuilt.details["open_dimensions"] == 16


@pytest.mark.parametrize(
    ("defence", "reason"),
    [
        ("none", "the update is of one picture"),
        ("batch:6", "6 pictures of 16 patches are more than 96 dimensions"),
        ("batch:2+withheld-pe", "lacks the gradient of pos_embed"),
        ("mjp:0.25+batch:2", "some patches share E_unk"),
    ],
)
def test_what_it_cannot_attack_is_refused(defence: str, reason: str) -> None:
    network, update, _ = send(model(), defence)
    with pytest.raises(Refused, match=reason):
        batch.run(View(update, network, prior()))
