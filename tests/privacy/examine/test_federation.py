"""Audits over several rounds: what a client sends again and again."""

from typing import Any

import torch

from clients import normalise, pictures, prior, tiny
from mjp.models import as_subject
from mjp.privacy.attacks import rounds
from mjp.privacy.combination import parse
from mjp.privacy.examine.federation import Federation
from mjp.privacy.examine.pictures import examine


def test_rounds_go_on_until_the_picture_is_exact() -> None:
    subject = as_subject(tiny(dtype=torch.float32))
    federation = Federation(6, normalise(pictures(8, start=40)).float(), torch.arange(8))
    setup: dict[str, Any] = {"attacks": [rounds], "prior": prior(), "seed": 1, "federation": federation}
    _, finding = examine(subject, pictures(), torch.tensor([4]), parse("mjp:0.25"), **setup)
    assert finding.scores["c"][0].exact == 1
    assert 2 <= finding.details["rounds_until_exact"] == finding.details["rounds"] <= 6


def test_a_jigsaw_for_life_adds_nothing_in_later_rounds() -> None:
    subject = as_subject(tiny(dtype=torch.float32))
    federation = Federation(4, normalise(pictures(8, start=40)).float(), torch.arange(8))
    setup: dict[str, Any] = {"attacks": [rounds], "prior": prior(), "seed": 1, "federation": federation}
    _, finding = examine(subject, pictures(), torch.tensor([4]), parse("mjp-sticky:0.25"), **setup)
    assert finding.details["rounds_until_exact"] is None
