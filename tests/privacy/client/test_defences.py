"""Defences: their grammar, what each does to the numbers, and the guarantee that E_unk gives."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clients import normalise, pictures, send, tiny
from mjp.common.errors import InputError
from mjp.method.model import MJP
from mjp.method.plan import Plan, identity_plan
from mjp.privacy.client.defences import Defence, add_noise, disguise, parse, prune
from mjp.privacy.client.victim import _gradients, shared_network
from mjp.privacy.update import plain_name

SINGLE: dict[str, dict[str, Any]] = {
    "none": {},
    "no-pe": {"positions": "none"},
    "frozen-pe": {"positions": "frozen"},
    "withheld-pe": {"positions": "withheld"},
    "jp:0.27": {"jigsaw": "jp", "ratio": 0.27},
    "mjp:1": {"jigsaw": "mjp", "ratio": 1.0},
    "mjp-shared:0.5": {"jigsaw": "mjp", "ratio": 0.5, "one_jigsaw": True},
    "noise:0.01": {"noise": 0.01},
    "dp:0": {"dp": 0.0},
    "prune:0.9": {"prune": 0.9},
    "bf16": {"bf16": True},
    "batch:8": {"batch": 8},
    "fedavg:4": {"steps": 4},
}


@pytest.mark.parametrize("text", SINGLE)
def test_every_defence_says_one_thing(text: str) -> None:
    assert parse(text) == Defence(text=text, **SINGLE[text])


def test_defences_combine_in_any_order() -> None:
    parts = ["mjp:0.27", "bf16", "batch:8", "prune:0.5", "withheld-pe"]
    expected = Defence("withheld", "mjp", 0.27, prune=0.5, bf16=True, batch=8, text="+".join(parts))
    assert parse(expected.text) == expected
    turned = "+".join(reversed(parts))
    assert parse(turned) == Defence("withheld", "mjp", 0.27, prune=0.5, bf16=True, batch=8, text=turned)


SENSELESS = " mpj:0.1 bf16+ mjp mjp: mjp:x mjp:1.1 mjp:-0.1 prune:2 noise:inf batch:0 batch:1.5 batch:nan bf16:3"
SENSELESS += " fedavg fedavg:0 fedavg:1.5"
TWICE = "mjp:0.1+mjp:0.2 jp:0.1+mjp:0.1 bf16+bf16 frozen-pe+withheld-pe no-pe+frozen-pe no-pe+mjp:0.1"


@pytest.mark.parametrize("text", [*SENSELESS.split(" "), *TWICE.split(" ")])
def test_what_makes_no_sense_or_contradicts_itself_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="defence"):
        parse(text)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9, 1.0])
def test_pruning_sets_the_smallest_share_to_zero(share: float) -> None:
    gradient = drawn(20, 50)
    found = prune(gradient, share)
    gone = found == 0
    assert int(gone.sum()) == round(share * 1000)
    assert torch.equal(found[~gone], gradient[~gone])
    if 0 < share < 1:
        assert gradient[gone].abs().max() <= gradient[~gone].abs().min()


def test_a_defended_update_is_pruned_tensor_by_tensor_and_then_rounded() -> None:
    _, update, _ = send(tiny(dtype=torch.float32), "prune:0.75+bf16")
    weight = update.tensors["model.blocks.0.mlp.fc1.weight"]
    assert float((weight == 0).float().mean()) == pytest.approx(0.75, abs=0.01)
    assert any(bool(tensor.any()) for tensor in update.tensors.values())
    for tensor in update.tensors.values():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor.bfloat16().float(), tensor)


@pytest.mark.parametrize("length", [1e-3, 1.0, 50.0])
def test_noise_has_its_norm_after_clipping_to_one(length: float) -> None:
    gradients = {"a": drawn(100, 50), "b": drawn(3000)}
    norm = torch.cat([g.flatten() for g in gradients.values()]).norm()
    gradients = {name: g / norm * length for name, g in gradients.items()}
    noisy = add_noise(gradients, 0.1, torch.Generator().manual_seed(0))
    clipped = {name: g * min(1.0, 1.0 / length) for name, g in gradients.items()}
    noise = torch.cat([(noisy[name] - clipped[name]).flatten() for name in gradients])
    assert float(noise.norm()) == pytest.approx(0.1, rel=0.05)
    again = disguise(gradients, parse("noise:0.1"), torch.Generator().manual_seed(0))
    assert all(torch.equal(again[name], noisy[name]) for name in noisy)


def test_dp_sgd_clips_every_picture_to_norm_one() -> None:
    pytest.importorskip("opacus")
    model = tiny()
    with torch.no_grad():  # a steep head and labels that it finds unlikely, so that clipping has something to do
        model.get_parameter("model.head.weight").mul_(100)
        unlikely = model.eval()(normalise(pictures(4))).argmin(1).tolist()

    def norm(defence: str) -> float:
        labels = unlikely if "batch" in defence else unlikely[:1]
        tensors = send(model, defence, labels=labels)[1].tensors.values()
        return float(torch.cat([g.flatten() for g in tensors]).norm())

    assert norm("none") > 2
    assert norm("dp:0") == pytest.approx(1, abs=1e-6)
    assert norm("dp:0+batch:4") <= 1
    assert norm("dp:1") > 10  # noise on every coordinate


def names(defence: str, model: MJP | None = None) -> set[str]:
    return {plain_name(name) for name in send(model or tiny(), defence)[1].tensors}


@pytest.mark.parametrize("defence", ["frozen-pe", "withheld-pe"])
def test_frozen_and_withheld_positions_stay_at_home(defence: str) -> None:
    whole, kept = names("mjp:0.5"), names(f"mjp:0.5+{defence}")
    about = {name for name in whole if name in ("pos_embed", "unknown") or name.startswith("localizer.")}
    assert len(about) > 2
    assert kept == whole - about


def test_without_position_embeddings_they_have_no_gradient() -> None:
    assert "pos_embed" not in names("no-pe")


def test_a_client_takes_as_many_pictures_as_the_defence_says() -> None:
    with pytest.raises(InputError, match="batch:2"):
        send(tiny(), "batch:2", labels=[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_order_of_masked_patches_is_not_in_the_update(dtype: torch.dtype) -> None:
    """The guarantee of MJP; a jigsaw that keeps its positions does not give it."""

    def difference(text: str) -> float:
        defence = parse(text)
        network = shared_network(tiny(dtype=dtype), defence)
        images, labels = normalise(pictures()).to(dtype), torch.tensor([4])
        found = [flat(network, images, labels, jigsaw(turn), defence) for turn in (0, 1, 3)]
        return max(float((one - found[0]).norm() / found[0].norm()) for one in found[1:])

    assert difference("mjp:0.5") <= (1e-5 if dtype == torch.float32 else 1e-12)
    assert difference("jp:0.5") > 1e-4


def jigsaw(turn: int) -> Plan:
    """The first eight of sixteen patches are masked and turned by some places."""
    plan = identity_plan(1, (4, 4))
    masked = torch.arange(16) < 8
    permutation = torch.where(masked, (torch.arange(16) + turn) % 8, torch.arange(16)).unsqueeze(0)
    return plan._replace(mask=masked.unsqueeze(0), permutation=permutation, inverse=permutation.argsort(1), budget=8)


def flat(network: MJP, images: Tensor, labels: Tensor, plan: Plan, defence: Defence) -> Tensor:
    gradients = _gradients(network, images, labels, plan, defence, torch.Generator())
    return torch.cat([g.flatten() for g in gradients.values()])
