"""Defences: their grammar, what each does to the numbers, and the guarantee that E_unk gives."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mjp.privacy.defences as room
from clients import normalise, pictures, send, tiny
from mjp.common.errors import InputError
from mjp.common.parameter_names import plain_name
from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.method.plan import Plan, identity_plan
from mjp.privacy.client.victim import Secret, _gradients
from mjp.privacy.combination import Combination, parse
from mjp.privacy.defence import Accuracy, Defence, LocalSteps, Number
from mjp.privacy.defences import defences, defences_help
from mjp.privacy.defences.noise import add_noise
from mjp.privacy.defences.prune import prune
from mjp.privacy.names import is_positional
from mjp.privacy.network import shared_network

EXAMPLES = [
    *("none", "no-pe", "frozen-pe", "withheld-pe", "jp:0.27", "mjp:1", "mjp-shared:0.5"),
    *("mjp-sticky:0.27", "dither"),
    *("noise:0.01", "dp:0", "prune:0.9", "bf16", "batch:8", "fedavg:4"),
]


def test_the_examples_are_all_defences() -> None:
    assert {text.partition(":")[0] for text in EXAMPLES} == defences().keys()


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_defence_describes_itself(text: str) -> None:
    (part,) = parse(text).parts
    assert part.defence.name == text.partition(":")[0]
    assert (part.defence.number is not None) == (":" in text)
    assert part.number == float(text.partition(":")[2] or 0)
    assert f"  {part.defence.grammar} " in defences_help()
    assert part.defence.help in defences_help()


def test_one_combination_has_one_text() -> None:
    assert parse("dp:.5").canonical == "dp:0.5" == parse("dp:0.50").canonical
    assert parse("dp:5").canonical == "dp:5" == parse("dp:5.0").canonical
    assert parse("batch:2+mjp:0.27").canonical == parse("mjp:.27+batch:2").canonical
    assert parse("bf16").canonical == "bf16"


def test_what_leaves_where_and_when_is_public() -> None:
    assert parse("batch:8").batch == 8
    assert parse("none").batch == 1
    assert parse("fedavg:4").local_steps == LocalSteps(4, 0.1)
    assert parse("mjp:0.5").local_steps is None
    assert [parse(text).jigsaw is not None for text in ("jp:0.2", "mjp:0.2", "mjp-shared:0.2", "no-pe")] == [1, 1, 1, 0]
    plain, trained = variant("A"), variant("J", localize_weight=7.0)
    assert parse("bf16+batch:2").config(trained) == trained
    assert parse("no-pe").config(plain).position == "none"
    assert parse("no-pe+jp:0.5").config(plain) == parse("jp:0.5+no-pe").config(plain) == variant("B")
    assert parse("jp:0.5").config(trained).position == "keep"
    assert parse("mjp:0.5").config(trained).localize_weight == 7.0
    assert (parse("mjp:0.5").config(plain).ratio, parse("mjp:0.5").config(plain).shared) == (0.5, False)
    assert parse("mjp-shared:0.5").config(plain).shared


UNCHANGED = ("none", "withheld-pe", "batch:2", "batch:2+withheld-pe+none")
NOT_CLAIMED = (
    "no-pe",
    "frozen-pe",
    "noise:0",
    "dp:0",
    "prune:0",
    "bf16",
    "fedavg:1",
    "mjp:0.5+bf16",
    "jp:0.5+fedavg:2",
    "mjp-sticky:0.5",
    "dither",
)


@pytest.mark.parametrize(
    ("text", "accuracy"),
    [
        *((text, Accuracy.UNCHANGED) for text in UNCHANGED),
        *((text, Accuracy.NOT_CLAIMED) for text in NOT_CLAIMED),
        ("jp:0.5", Accuracy.JIGSAW),
        ("mjp:0.5+batch:2", Accuracy.MASKED_JIGSAW),
        ("mjp-shared:0.5+withheld-pe", Accuracy.MASKED_JIGSAW),
    ],
)
def test_accuracy_is_claimed_only_beside_what_it_was_measured_for(text: str, accuracy: Accuracy) -> None:
    assert parse(text).accuracy is accuracy


def test_a_defence_that_says_nothing_about_accuracy_claims_none() -> None:
    assert Defence(name="new", help="…").accuracy is Accuracy.NOT_CLAIMED


def test_a_new_file_is_a_new_defence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shrink.py").write_text(
        "from mjp.privacy.defence import Defence, Number\n"
        "DEFENCE = Defence(name='shrink', help='times s', number=Number('s', 0, 1),\n"
        "    perturb=lambda tensors, s, _: {name: s * t for name, t in tensors.items()})\n"
    )
    monkeypatch.setattr(room, "__path__", [*room.__path__, str(tmp_path)])
    defences.cache_clear()
    try:
        assert "  shrink:s      times s" in defences_help()
        (tensor,) = parse("shrink:0.5").perturb({"w": torch.ones(3)}, torch.Generator()).values()
        assert torch.equal(tensor, torch.full((3,), 0.5))
        with pytest.raises(InputError, match="twice"):
            parse("shrink:0.5+shrink:0.6")
    finally:
        defences.cache_clear()
        sys.modules.pop(f"{room.__name__}.shrink", None)


def test_defences_combine_in_any_order() -> None:
    words = ["mjp:0.27", "bf16", "batch:8", "prune:0.5", "withheld-pe"]
    combination, turned = parse("+".join(words)), parse("+".join(reversed(words)))
    names = ["withheld-pe", "mjp", "prune", "bf16", "batch"]  # the order in which they act
    assert [part.defence.name for part in combination.parts] == names
    assert [part.defence.name for part in turned.parts] == names
    assert turned.text == "withheld-pe+prune:0.5+batch:8+bf16+mjp:0.27"


SENSELESS = " mpj:0.1 bf16+ mjp mjp: mjp:x mjp:1.1 mjp:-0.1 prune:2 noise:inf batch:0 batch:1.5 batch:nan bf16:3"
SENSELESS += " fedavg fedavg:0 fedavg:1.5"
TWICE = (
    "mjp:0.1+mjp:0.2 jp:0.1+mjp:0.1 bf16+bf16 frozen-pe+withheld-pe no-pe+frozen-pe no-pe+mjp:0.1 no-pe+mjp-shared:0.1"
    " no-pe+mjp-sticky:0.1 mjp:0.1+mjp-sticky:0.1 dither+dither"
)


@pytest.mark.parametrize("text", [*SENSELESS.split(" "), *TWICE.split(" ")])
def test_what_makes_no_sense_or_contradicts_itself_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="defence"):
        parse(text)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mjp.privacy.combination.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"the defence dp needs the package opacus: pip install 'mjp\[dp\]'"):
        parse("dp:0.1").check_installed()
    parse("none").check_installed()


def test_numbers_know_their_range() -> None:
    assert Number("B", 1, 4, whole=True).allows(4.0)
    assert not any(Number("B", 1, 4, whole=True).allows(value) for value in (0.0, 5.0, 1.5, float("nan"), float("inf")))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9, 1.0])
def test_pruning_sets_the_smallest_share_to_zero(share: float) -> None:
    gradient = drawn(20, 50)
    pruned = prune(gradient, share)
    gone = pruned == 0
    assert int(gone.sum()) == round(share * 1000)
    assert torch.equal(pruned[~gone], gradient[~gone])
    if 0 < share < 1:
        assert gradient[gone].abs().max() <= gradient[~gone].abs().min()


def test_a_defended_update_is_pruned_tensor_by_tensor_and_then_rounded() -> None:
    _, update, _ = send(tiny(dtype=torch.float32), "bf16+prune:0.75")
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
    again = parse("noise:0.1").perturb(gradients, torch.Generator().manual_seed(0))
    assert all(torch.equal(again[name], noisy[name]) for name in noisy)


def test_noise_of_size_zero_still_clips() -> None:
    clipped = parse("noise:0").perturb({"w": torch.full((4,), 2.0)}, torch.Generator())
    assert float(clipped["w"].norm()) == 1


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


@pytest.mark.parametrize("defence", ["frozen-pe", "withheld-pe", "frozen-pe+fedavg:2", "withheld-pe+fedavg:2"])
def test_frozen_and_withheld_positions_do_not_leave(defence: str) -> None:
    everything, sent = names("mjp:0.5"), names(f"mjp:0.5+{defence}")
    positional = {name for name in everything if is_positional(name)}
    assert len(positional) > 2
    assert sent == everything - positional


def test_local_steps_train_withheld_positions_and_leave_frozen_ones() -> None:
    """What happens to positions at home shows in the weights that leave."""
    plain, withheld, frozen = (
        send(tiny(), defence)[1].tensors["model.head.weight"]
        for defence in ("fedavg:3", "fedavg:3+withheld-pe", "fedavg:3+frozen-pe")
    )
    assert torch.equal(plain, withheld)
    assert not torch.equal(plain, frozen)


def test_without_position_embeddings_they_have_no_gradient() -> None:
    assert "pos_embed" not in names("no-pe")


def test_one_jigsaw_for_the_batch_is_one() -> None:
    shared = send(tiny(), "mjp-shared:0.5+batch:4")[2].plans[0]
    own = send(tiny(), "mjp:0.5+batch:4")[2].plans[0]
    assert all(torch.equal(mask, shared.mask[0]) for mask in shared.mask)
    assert not all(torch.equal(mask, own.mask[0]) for mask in own.mask)


def test_a_client_takes_as_many_pictures_as_the_defence_says() -> None:
    with pytest.raises(InputError, match="batch:2"):
        send(tiny(), "batch:2", labels=[1])


def test_a_patch_that_is_unmasked_once_counts_as_unmasked() -> None:
    """Several local steps have several masks; what one of them shows has leaked."""
    masks = torch.tensor([[[True, True, False, False]], [[True, False, True, False]]])
    plan = identity_plan(1, (2, 2))
    secret = Secret(torch.zeros(1, 3, 4, 4), torch.tensor([0]), tuple(plan._replace(mask=mask) for mask in masks))
    assert secret.mask.tolist() == [[True, False, False, False]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_order_of_masked_patches_is_not_in_the_update(dtype: torch.dtype) -> None:
    """The guarantee of MJP; a jigsaw that keeps its positions does not give it."""

    def difference(text: str) -> float:
        defence = parse(text)
        network = shared_network(tiny(dtype=dtype), defence)
        images, labels = normalise(pictures()).to(dtype), torch.tensor([4])
        first, *others = [flat(network, images, labels, jigsaw(turn), defence) for turn in (0, 1, 3)]
        return max(float((other - first).norm() / first.norm()) for other in others)

    assert difference("mjp:0.5") <= (1e-5 if dtype == torch.float32 else 1e-12)
    assert difference("jp:0.5") > 1e-4


def jigsaw(turn: int) -> Plan:
    """The first eight of sixteen patches are masked and turned by some places."""
    plan = identity_plan(1, (4, 4))
    masked = torch.arange(16) < 8
    permutation = torch.where(masked, (torch.arange(16) + turn) % 8, torch.arange(16)).unsqueeze(0)
    return plan._replace(mask=masked.unsqueeze(0), permutation=permutation, inverse=permutation.argsort(1), budget=8)


def flat(network: MJP, images: Tensor, labels: Tensor, plan: Plan, defence: Combination) -> Tensor:
    gradients: dict[str, Any] = _gradients(network, images, labels, plan, defence, torch.Generator())
    return torch.cat([g.flatten() for g in gradients.values()])
