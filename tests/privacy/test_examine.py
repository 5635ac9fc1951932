"""Client and server apart: what an attack is handed, and what it must not be."""

from clients import MEAN, STD, pictures, prior, tiny  # isort: skip  mjp before timm

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from mjp.common.errors import InputError
from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.method.plan import sample_plan
from mjp.models import Subject
from mjp.pictures.preprocessing import Preprocessing
from mjp.pictures.sets import embedded
from mjp.privacy.attacks import april
from mjp.privacy.audit.cells import QUANTITIES, Cells, Key, smallest_ratio, summarise
from mjp.privacy.client.defences import disguise, parse
from mjp.privacy.examine import Finding, examine
from mjp.privacy.server.prior import fit_prior
from mjp.privacy.server.public_pictures import spread
from mjp.privacy.server.view import Reconstruction, View, server_seed
from mjp.privacy.update import Facts


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
    subject = Subject("tiny", tiny(dtype=torch.float32), Preprocessing((32, 32), MEAN, STD, 1.0))
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


def test_a_share_of_masked_patches_counts_however_it_is_written() -> None:
    texts = {"mjp:.3": 4.0, "mjp:0.90": 0.5, "mjp:1.0": 0.2, "mjp:0.1+bf16": 0.0, "mjp-shared:0.2": 0.0}
    rows = [{"model": "m", "defence": text, "gain_psnr": {"db": (gain, 0, 9)}} for text, gain in texts.items()]
    assert smallest_ratio(rows, "m", "psnr") == 0.9


def test_noise_of_size_zero_still_clips() -> None:
    found = disguise({"w": torch.full((4,), 2.0)}, parse("noise:0"), torch.Generator())
    assert float(found["w"].norm()) == 1


def test_no_attacked_picture_is_in_the_prior() -> None:
    source = embedded("val")
    every = spread(source, 8, (32, 32))
    left = spread(source, 8, (32, 32), without=[0, len(source) // 2])
    assert torch.equal(left, every[[1, 2, 3, 5, 6, 7]])
    with pytest.raises(InputError, match="none is left"):
        spread(source, 8, (32, 32), without=range(len(source)))


@pytest.mark.parametrize("error", [ZeroDivisionError(), torch.linalg.LinAlgError()])
def test_numbers_that_cannot_be_solved_for_are_a_refusal(error: Exception) -> None:
    def fail(view: View) -> None:
        raise error

    assert "too small" in str(spied(Spy(fail), defence="none")[1].refused)


def test_absurd_facts_are_named() -> None:
    for absurd in ({"std": (1e-300, 1, 1)}, {"mean": (1e200, 0, 0)}, {"localize_weight": 1e30}):
        with pytest.raises(InputError, match="at most 1000"):
            Facts(**absurd)


@pytest.mark.parametrize("line", [b'{"sett', b"null", b"\xff\n"])
def test_a_torn_first_line_is_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_bytes(line)
    with pytest.raises(InputError, match="other settings"):
        Cells(tmp_path / "cells.jsonl", {})


def test_lines_that_are_no_cells_are_left_out(tmp_path: Path) -> None:
    path, key = tmp_path / "cells.jsonl", Key("m", "none", 0)
    Cells(path, {}).add(key, [])
    with path.open("ab") as file:
        file.write(b'null\n7\n[1]\n{"model": "m"}\n{"model": "m\xff", "defence": "none"}\n\xff\n{"mod')
    assert list(Cells(path, {}).found) == [key]
    Cells(path, {}).add(Key("m", "none", 1), [])  # the torn end does not swallow what comes next
    assert len(Cells(path, {}).found) == 2


def test_an_attack_says_what_it_attacks() -> None:
    (_, found) = spied(Spy(), defence="none")
    assert found.facts["attack_title"] == "spy"


def test_a_batch_is_shown_in_the_order_in_which_it_is_scored() -> None:
    class Swapped(Spy):
        def run(self, view: View) -> Reconstruction:
            return Reconstruction(pictures(2).flip(0), {})

    subject = Subject("tiny", tiny(dtype=torch.float32), Preprocessing((32, 32), MEAN, STD, 1.0))
    both, labels = pictures(2).float(), torch.tensor([4, 5])
    (_, found) = examine(subject, both, labels, parse("batch:2"), [Swapped()], prior(), seed=0)
    assert found.pictures is not None
    assert torch.allclose(found.pictures, pictures(2))


def test_an_attack_that_refuses_one_picture_gets_the_guess_for_it(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "cells.jsonl", {})

    def finding(name: str, psnr: float, refused: str | None = None) -> dict[str, Any]:
        score = {**dict.fromkeys(QUANTITIES), "psnr": psnr}
        scores = {} if refused else {"a": [score]}
        return {"attack": name, "refused": refused, "scores": scores, "facts": {}, "seconds": 0.0}

    for k, other in enumerate((finding("direct", 40.0), finding("direct", 0.0, "no"))):
        cells.add(Key("m", "none", k), [finding("guess", 10.0), other, finding("span", 0.0, "never")])
    (row,) = summarise(cells, ["m"], ["none"], seed=0)
    assert row["attacks"]["direct"]["psnr"][0] == 25
    assert row["attacks"]["direct"]["refusals"] == 1
    assert row["gain_psnr"]["db"][0] == 15
    assert row["refused"] == {"span": "never"}


@pytest.mark.parametrize("name", ["resnet18", "vit_relpos_small_patch16_224"])
def test_april_refuses_another_kind_of_network_beside_the_guess(name: str) -> None:
    sizes: dict[str, Any] = {"img_size": 32} if "vit" in name else {}
    model = MJP(timm.create_model(name, num_classes=10, **sizes), variant("A")).eval()
    subject = Subject("other", model, Preprocessing((32, 32), MEAN, STD, 1.0))
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    public = fit_prior(images)
    found = list(examine(subject, images[:1], torch.tensor([4]), parse("none"), [april], public, seed=0))
    assert [one.attack for one in found] == ["guess", "april"]
    assert found[1].refused is not None
    assert "timm's ViT" in found[1].refused
