"""Client and server apart: what an attack is handed, and what it must not be."""

from clients import MEAN, STD, pictures, prior, tiny  # isort: skip  mjp before timm

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch

from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.method.plan import sample_plan
from mjp.models import Subject
from mjp.pictures.preprocessing import Preprocessing
from mjp.privacy.attacks import april
from mjp.privacy.combination import parse
from mjp.privacy.examine.finding import Finding
from mjp.privacy.examine.pictures import examine
from mjp.privacy.server.prior import fit_prior
from mjp.privacy.server.view import Reconstruction, View, server_seed


class Spy:
    """An attack that keeps what it is handed."""

    NAME = TITLE = HELP = "spy"
    NEEDS = ()

    def __init__(self, run: Callable[[View], Any] | None = None) -> None:
        self.view: Any = None
        self.act = run

    def run(self, view: View) -> Reconstruction:
        self.view = view
        if self.act:
            self.act(view)
        return Reconstruction(view.prior.mean.clamp(0, 1).unsqueeze(0), {})


def spied(*spies: Any, defence: str = "mjp:0.5", seed: int = 0) -> list[Finding]:
    subject = Subject("tiny", tiny(dtype=torch.float32), Preprocessing((32, 32), MEAN, STD, 1.0))
    return list(
        examine(subject, pictures().float(), torch.tensor([4]), parse(defence), attacks=spies, prior=prior(), seed=seed)
    )


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


class Tapped(torch.nn.Module):
    """A first layer that remembers its input, as an attack might put into its own network."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        out: torch.Tensor = self.inner(x)
        return out


def test_client_and_attacks_run_networks_of_their_own() -> None:
    class Tapping(Spy):
        def network(self, model: MJP) -> MJP:
            model.model.blocks[0].norm1 = Tapped(model.model.blocks[0].norm1)  # type: ignore[union-attr, index]
            return model

    seen: list[int] = []
    tapping = Tapping(lambda view: seen.append(len(view.vit.blocks[0].norm1.seen)))
    spies = tapping, Spy(), Spy()
    spied(*spies)
    first, second, third = (spy.view.model for spy in spies)
    assert seen == [0]
    assert not isinstance(second.model.blocks[0].norm1, Tapped)
    assert len({id(model) for model in (first, second, third)}) == 3


def divide_by_zero(view: View) -> None:
    raise ZeroDivisionError


def decompose_nan(view: View) -> None:
    torch.linalg.svd(torch.full((3, 3), torch.nan))


def solve_nan(view: View) -> None:
    torch.linalg.lstsq(torch.full((3, 2), torch.nan), torch.ones(3, 1))


@pytest.mark.parametrize("fail", [divide_by_zero, decompose_nan, solve_nan])
def test_numbers_that_cannot_be_solved_for_are_a_refusal(fail: Callable[[View], None]) -> None:
    assert "too small" in str(spied(Spy(fail), defence="none")[1].refused)


def test_a_mistake_in_an_attack_is_not_taken_for_a_refusal() -> None:
    def fail(view: View) -> None:
        torch.ones(2) @ torch.ones(3)

    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        spied(Spy(fail), defence="none")


def test_an_attack_says_what_it_attacks() -> None:
    (_, found) = spied(Spy(), defence="none")
    assert found.details["attack_title"] == "spy"


def test_a_batch_is_shown_in_the_order_in_which_it_is_scored() -> None:
    class Swapped(Spy):
        def run(self, view: View) -> Reconstruction:
            return Reconstruction(pictures(2).flip(0), {})

    subject = Subject("tiny", tiny(dtype=torch.float32), Preprocessing((32, 32), MEAN, STD, 1.0))
    both, labels = pictures(2).float(), torch.tensor([4, 5])
    (_, found) = examine(subject, both, labels, parse("batch:2"), attacks=[Swapped()], prior=prior(), seed=0)
    assert found.pictures is not None
    assert torch.allclose(found.pictures, pictures(2))


@pytest.mark.parametrize("name", ["resnet18", "vit_relpos_small_patch16_224"])
def test_april_refuses_another_kind_of_network_beside_the_guess(name: str) -> None:
    sizes: dict[str, Any] = {"img_size": 32} if "vit" in name else {}
    model = MJP(timm.create_model(name, num_classes=10, **sizes), variant("A")).eval()
    subject = Subject("other", model, Preprocessing((32, 32), MEAN, STD, 1.0))
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    public = fit_prior(images)
    found = list(examine(subject, images[:1], torch.tensor([4]), parse("none"), attacks=[april], prior=public, seed=0))
    assert [one.attack for one in found] == ["guess", "april"]
    assert found[1].refused is not None
    assert "timm's ViT" in found[1].refused
