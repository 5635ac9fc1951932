"""Client and server apart: what an attack is handed, and what it must not be."""

from clients import MEAN, STD, pictures, prior, tiny  # isort: skip  mjp before timm

from collections.abc import Callable
from typing import Any

import torch

from mjp.evaluation.models import Subject
from mjp.method.model import MJP
from mjp.method.plan import sample_plan
from mjp.privacy.defences import parse
from mjp.privacy.examine import Finding, examine
from mjp.privacy.view import Reconstruction, View, server_seed


class Spy:
    """An attack that keeps what it is handed."""

    NAME, TITLE = "spy", "spy"

    def __init__(self, run: Callable[[View], Any] | None = None) -> None:
        self.view: Any = None
        self.act = run

    def run(self, view: View) -> Reconstruction:
        self.view = view
        if self.act:
            self.act(view)
        return Reconstruction(view.prior.mean.clamp(0, 1).unsqueeze(0), {})


def spied(*spies: Any, defence: str = "mjp:0.5", seed: int = 0) -> list[Finding]:
    subject = Subject("tiny", tiny(dtype=torch.float32), (32, 32), MEAN, STD, 1.0, "bicubic")
    return list(examine(subject, pictures().float(), torch.tensor([4]), parse(defence), spies, prior(), seed=seed))


def test_the_jigsaw_cannot_be_drawn_again_from_what_the_attacker_has() -> None:
    for seed in range(3):
        spy = Spy()
        spied(spy, seed=seed)
        assert spy.view.effort.seed == server_seed(seed)
        own, theirs = (
            sample_plan(1, (4, 4), 0.5, generator=torch.Generator().manual_seed(chosen), device=torch.device("cpu"))
            for chosen in (seed, spy.view.effort.seed)
        )
        assert not torch.equal(own.mask, theirs.mask)
        assert torch.equal(own.mask[0], spy.view.mask)  # the client's own seed would
