"""The verdict on an update: one of three, and never an all-clear."""

from clients import MEAN, STD, attack, normalise, pictures, send, tiny  # isort: skip  mjp before timm

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.model import MJP
from mjp.pictures.tensors import to_tensor
from mjp.privacy import Findings, audit_update
from mjp.privacy.examine.conclusion import ThreeVerdicts, conclude
from mjp.privacy.examine.coverage import Gap
from mjp.privacy.examine.finding import Finding, Outcome, Verdict
from mjp.privacy.metrics import psnr

INFO: dict[str, Any] = {"size": (32, 32), "mean": MEAN, "std": STD}
Optimizer = Callable[..., torch.optim.Optimizer]


def gradient(model: Any, picture: Tensor) -> dict[str, Tensor]:
    images = normalise(picture).to(next(model.parameters()))
    torch.nn.functional.cross_entropy(model(images), torch.tensor([4])).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def plain_gradient() -> dict[str, Tensor]:
    return gradient(tiny().unwrap(), pictures())


def audit(
    after: Any, *, attacks: tuple[str, ...] = ("direct", "span"), model: MJP | None = None, **info: Any
) -> Findings:
    target = (model or tiny()).unwrap()
    weights = copy.deepcopy(target.state_dict())
    return audit_update(weights, after, {**INFO, **info}, target, attacks=attacks)


def trained(optimizer: Optimizer, *, steps: int = 1, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The weights of a client after local steps on one picture."""
    model = copy.deepcopy(tiny(dtype=dtype).unwrap())
    local = optimizer(model.parameters())
    for _ in range(steps):
        local.zero_grad()
        gradient(model, pictures())
        local.step()
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def change(after: dict[str, Tensor], factor: float, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    before = tiny(dtype=dtype).unwrap().state_dict()
    return {name: factor * (tensor - before[name]) for name, tensor in after.items()}


def finding(outcome: Outcome, name: str = "direct", **details: Any) -> Finding:
    reason = "it cannot" if outcome == "refused" else None
    return Finding(name, torch.zeros(1, 3, 8, 8), reason, Verdict(outcome, "", ""), details=details)


EXPOSED, NOT_RECOVERED, NOT_COVERED = get_args(ThreeVerdicts)


@pytest.mark.parametrize(
    ("findings", "gaps", "verdict"),
    [
        ([finding("explains")], [], EXPOSED),
        ([finding("equations hold")], [], EXPOSED),
        ([finding("explains in part")], [], EXPOSED),
        ([finding("not recovered"), finding("explains", "span")], [], EXPOSED),
        ([finding("explains")], [Gap("a", "b")], EXPOSED),
        ([finding("not recovered", integer_patches=3)], [], EXPOSED),
        ([finding("not recovered"), finding("refused", "span")], [], NOT_RECOVERED),
        ([finding("not recovered", integer_patches=0)], [], NOT_RECOVERED),
        ([finding("not recovered")], [Gap("a", "b")], NOT_COVERED),
        ([finding("refused")], [], NOT_COVERED),
        ([finding("unverified")], [], NOT_COVERED),
        ([finding("not recovered"), finding("unverified", "span")], [], NOT_COVERED),
    ],
)
def test_there_are_three_verdicts(findings: list[Finding], gaps: list[Gap], verdict: str) -> None:
    conclusion = conclude(findings, gaps)
    assert conclusion.verdict == verdict
    assert conclusion.sentence.startswith(f"{verdict}: ")
    assert "safe" not in conclusion.sentence


def test_it_lists_what_ran_what_could_not_and_what_nobody_tried() -> None:
    conclusion = conclude([finding("not recovered"), finding("refused", "span")])
    assert conclusion.ran == ("direct",)
    assert conclusion.could_not_run == {"span": "it cannot"}
    assert {"subspace", "lattice", "matching"} <= set(conclusion.not_tried)
    assert "ran: direct. could not run: span (it cannot). not tried: " in conclusion.sentence


@pytest.mark.parametrize("factor", [1.0, -1.0, 1e-4, -250.0])
@pytest.mark.parametrize("kind", ["gradient", "delta"])
def test_a_gradient_or_a_change_of_weights_is_understood_with_either_sign_and_any_scale(
    kind: str, factor: float
) -> None:
    findings = audit({name: factor * tensor for name, tensor in plain_gradient().items()}, kind=kind)
    assert findings.conclusion.verdict == EXPOSED
    assert findings.conclusion.by == ("direct", "span")
    assert psnr(pictures()[0], findings[0].pictures[0]).item() > 100  # type: ignore[index]


@pytest.mark.parametrize("factor", [0.02, -0.02])
def test_the_localization_loss_is_subtracted_at_the_scale_of_the_change(factor: float) -> None:
    """Its part of the position gradient is public, but only up to the factor of the change."""
    network, update, _ = send(tiny(), "mjp:0.0625")
    tensors = {name: factor * tensor for name, tensor in update.tensors.items()}
    info = {**vars(update.info), "kind": "delta"}
    (result,) = audit_update(network.state_dict(), tensors, info, network, attacks=["subspace"])
    assert psnr(pictures()[0], result.pictures[0]).item() > 60  # type: ignore[index]


@pytest.mark.parametrize("prefix", ["module.", "net.vit.", "_orig_mod.model.backbone."])
def test_names_may_have_a_prefix(prefix: str) -> None:
    findings = audit({prefix + name: tensor for name, tensor in plain_gradient().items()}, attacks=("direct",))
    assert findings.conclusion.verdict == EXPOSED


SGD = torch.optim.SGD
LOCAL: dict[str, tuple[Optimizer, int, dict[str, Any]]] = {
    "sgd": (lambda p: SGD(p, 0.01), 2, {"lr": 0.01}),
    "decay": (lambda p: SGD(p, 0.01, weight_decay=0.5), 1, {"lr": 0.01, "weight_decay": 0.5}),
    "momentum": (lambda p: SGD(p, 0.01, momentum=0.9), 3, {"lr": 0.01, "optimizer": "momentum"}),
    "adam": (lambda p: torch.optim.Adam(p, 1e-3), 1, {"lr": 1e-3, "optimizer": "adam"}),
    "adamw": (
        lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1),
        1,
        {"lr": 1e-3, "optimizer": "adamw", "weight_decay": 0.1},
    ),
}


@pytest.mark.parametrize("name", LOCAL)
def test_local_optimizers_are_undone(name: str) -> None:
    optimizer, steps, info = LOCAL[name]
    findings = audit(trained(optimizer, steps=steps), attacks=("direct",), kind="fedavg", steps=steps, **info)
    assert findings.conclusion.verdict == EXPOSED
    assert psnr(pictures()[0], findings[0].pictures[0]).item() > 60  # type: ignore[index]


@pytest.mark.parametrize(
    "info",
    [
        {"optimizer": "adamw", "lr": 1e-3, "steps": 3},
        {"optimizer": "unknown", "lr": 1e-3, "steps": 3},
        {"optimizer": "sgd", "lr": 1e-3, "steps": 3},  # which it is not, and the numbers show it
    ],
)
def test_several_steps_of_adam_are_not_covered(info: dict[str, Any]) -> None:
    after = trained(lambda p: torch.optim.AdamW(p, 1e-3), steps=3)
    findings = audit(after, attacks=("direct",), kind="fedavg", **info)
    assert findings.conclusion.verdict == NOT_COVERED
    assert "what remains exploitable: the span of the patches" in findings.conclusion.sentence


def test_one_step_of_adam_whose_magnitudes_were_rounded_away_is_not_covered() -> None:
    signs = {name: tensor.sign() for name, tensor in plain_gradient().items()}
    findings = audit(signs, attacks=("direct",), kind="delta")
    assert findings.conclusion.verdict == NOT_COVERED
    assert "steps of Adam or signed SGD" in findings.conclusion.sentence


def only(*starts: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in plain_gradient().items() if name.startswith(starts)}


@pytest.mark.parametrize(
    ("after", "what", "remains"),
    [
        (lambda: only("head."), "only the last layers left", "the classes of the pictures"),
        (lambda: only("blocks.1.", "norm.", "head."), "only the last layers left", "the span of the tokens that enter"),
        (lambda: only("blocks.1."), "only the last layers left", "the span of the tokens that enter"),
        (
            lambda: only("blocks.", "head.", "pos_embed"),
            "the patch embedding did not leave",
            "which patches are masked",
        ),
        (
            lambda: {f"blocks.{n}.attn.qkv.lora_{m}.weight": torch.randn(4, 64) for n in (0, 1) for m in "AB"},
            "only matrices of LoRA left",
            "r mixtures of the tokens",
        ),
        (
            lambda: {"blocks.0.attn.qkv.lora_A.weight": torch.randn(4, 64), **only("head.")},
            "only matrices of LoRA left",
            "the classes of the pictures",
        ),
    ],
)
def test_what_no_attack_is_made_for_is_named_with_what_remains(
    after: Callable[[], dict[str, Tensor]], what: str, remains: str
) -> None:
    findings = audit(after())
    assert findings.conclusion.verdict == NOT_COVERED
    assert what in findings.conclusion.sentence
    assert remains in findings.conclusion.sentence


@pytest.mark.parametrize(
    ("trains", "what"),
    [
        (lambda name: name.startswith("head."), "only the last layers left"),
        (lambda name: name.startswith(("blocks.1.", "norm.", "head.")), "only the last layers left"),
        (lambda name: not name.startswith("patch_embed."), "the patch embedding did not leave"),
    ],
)
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_what_was_frozen_is_seen_in_weights_that_are_sent_whole(
    trains: Callable[[str], bool], what: str, decay: float
) -> None:
    """Also if the client states a weight decay, which its frozen parameters did not feel."""
    before = tiny().unwrap().state_dict()
    after = {name: tensor if trains(name) else before[name] for name, tensor in trained(lambda p: SGD(p, 0.1)).items()}
    findings = audit(after, kind="fedavg", lr=0.1, weight_decay=decay)
    assert findings.conclusion.verdict == NOT_COVERED
    assert what in findings.conclusion.sentence
    assert "what remains exploitable: " in findings.conclusion.sentence


@pytest.mark.parametrize("kind", ["gradient", "delta"])
def test_weights_that_are_called_gradients_are_refused_and_the_reverse(kind: str) -> None:
    with pytest.raises(InputError, match=f"stated as a {kind}, but it holds the weights themselves: state kind fedavg"):
        audit(trained(lambda p: SGD(p, 0.01)), kind=kind)
    with pytest.raises(InputError, match="nothing in common with the weights before: state kind gradient or delta"):
        audit(plain_gradient(), kind="fedavg", lr=0.01)


def test_names_of_peft_are_understood() -> None:
    """Adapters, layers that are trained whole beside them, and the state dict of the whole model."""
    lora = {f"base_model.model.blocks.0.attn.qkv.lora_{m}.default.weight": torch.randn(4, 64) for m in "AB"}
    head = {
        f"base_model.model.head.modules_to_save.default.{n.removeprefix('head.')}": t for n, t in only("head.").items()
    }
    copies = {f"base_model.model.head.original_module.{n.removeprefix('head.')}": t for n, t in only("head.").items()}
    findings = audit({**lora, **head, **copies})
    assert findings.conclusion.verdict == NOT_COVERED
    assert "only matrices of LoRA left" in findings.conclusion.sentence
    assert "the classes of the pictures" in findings.conclusion.sentence
    whole = {f"base_model.model.{n.replace('qkv.', 'qkv.base_layer.')}": t for n, t in plain_gradient().items()}
    assert audit({**whole, **lora}, attacks=("direct",)).conclusion.verdict == EXPOSED
    frozen = audit({**tiny().unwrap().state_dict(), **lora}, kind="fedavg", lr=0.1)
    assert "only matrices of LoRA left" in frozen.conclusion.sentence


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_a_list_of_arrays_in_the_order_of_the_state_dict_is_read(tmp_path: Path, suffix: str) -> None:
    """As Flower has it: no names, before and after in files of their own."""
    after = trained(lambda p: SGD(p, 0.01))
    paths: list[Path] = []
    for name, tensors in (("before", tiny().unwrap().state_dict()), ("after", after)):
        paths.append(tmp_path / f"{name}{suffix}")
        if suffix == ".npz":
            np.savez(paths[-1], *(tensor.numpy() for tensor in tensors.values()))
        else:
            torch.save(list(tensors.values()), paths[-1])
    info = {**INFO, "kind": "fedavg", "lr": 0.01}
    findings = audit_update(paths[0], paths[1], info, tiny().unwrap(), attacks=["direct"])
    assert findings.conclusion.verdict == EXPOSED


def test_a_list_from_memory_and_named_arrays_of_a_file_are_read(tmp_path: Path) -> None:
    order = [plain_gradient()[name] for name in tiny().unwrap().state_dict()]
    assert audit([tensor.numpy() for tensor in order], attacks=("direct",)).conclusion.verdict == EXPOSED
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in plain_gradient().items()}
    np.savez(tmp_path / "update.npz", **arrays)
    assert audit(tmp_path / "update.npz", attacks=("direct",)).conclusion.verdict == EXPOSED


def test_a_list_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a list of 3 arrays, which are not those of the model's state dict"):
        audit([np.zeros(3), np.zeros((2, 2)), np.zeros(2)])
    np.savez(tmp_path / "objects.npz", np.array([{}], dtype=object))
    (tmp_path / "damaged.npz").write_bytes(b"PK\x03\x04 and no more")
    for name in ("objects", "damaged"):
        with pytest.raises(InputError, match=r"not a complete \.npz file of plain arrays"):
            audit(tmp_path / f"{name}.npz")


def text() -> Tensor:
    page = Image.new("RGB", (32, 32), "white")
    ImageDraw.Draw(page).text((1, 8), "SECRET", fill="black")
    return to_tensor(page)


ODD: dict[str, Callable[[], Tensor]] = {
    "constant": lambda: torch.full((3, 32, 32), 77 / 255),
    "black": lambda: torch.zeros(3, 32, 32),
    "grey": lambda: pictures()[0].mean(0, keepdim=True).mul(255).round().div(255).expand(3, -1, -1),
    "text": text,
    "saturated": lambda: (pictures()[0] > 0.5).double(),
    "checkerboard": lambda: ((torch.arange(32).view(-1, 1) + torch.arange(32)) % 2).double().expand(3, -1, -1),
    "noise": lambda: torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0)).mul(255).round() / 255,
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_odd_pictures_are_exposed_like_others(name: str, dtype: torch.dtype) -> None:
    """A prior that expects photographs must not turn a perfect copy of something else into an all-clear."""
    picture = ODD[name]().unsqueeze(0)
    model = tiny(dtype=dtype)
    findings = audit(gradient(copy.deepcopy(model.unwrap()), picture), attacks=("direct",), model=model)
    assert findings.conclusion.verdict == EXPOSED
    assert psnr(picture[0].double(), findings[0].pictures[0].double()).item() > 30  # type: ignore[index]


@pytest.mark.parametrize("name", ["grey", "text", "saturated", "checkerboard"])
def test_odd_pictures_behind_one_masked_patch_are_exposed(name: str) -> None:
    picture = ODD[name]().unsqueeze(0)
    network, update, _ = send(tiny(), "mjp:0.0625", pictures=picture)
    result = attack("subspace", network, update)
    assert psnr(picture[0].double(), result.pictures[0].double()).item() > 60


@pytest.mark.parametrize("stated", [1, 3])
def test_a_wrong_number_of_pictures_is_noticed_in_the_classifier(stated: int) -> None:
    """Attacks are made for the stated number: with another one that they find nothing says nothing."""
    _, update, _ = send(tiny(), "batch:2", labels=[4, 7])
    conclusion = audit(update.tensors, batch=stated).conclusion
    assert conclusion.verdict == "not covered"
    assert "state --batch" in conclusion.sentence
    assert "state --batch" not in audit(update.tensors, batch=2).conclusion.sentence


def test_noise_that_is_stated_is_not_taken_for_more_pictures() -> None:
    _, update, _ = send(tiny(), "noise:1")
    assert not audit(update.tensors, defence="noise:1").conclusion.gaps


def test_a_broken_layer_hides_nothing_of_the_others() -> None:
    broken = {**plain_gradient(), "head.bias": torch.full((10,), torch.nan)}
    findings = audit(broken)
    assert findings.conclusion.verdict == "exposed"
    assert findings.conclusion.gaps[-1].what == "NaN or infinity is in head.bias, which was left out"
    broken["patch_embed.proj.weight"] = broken["patch_embed.proj.weight"] / 0
    assert audit(broken).conclusion.verdict == "not covered"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kept", [torch.float32, None])
def test_equations_that_hold_as_well_as_a_short_format_allows_count(
    dtype: torch.dtype, kept: torch.dtype | None
) -> None:
    """Masked patches leave the others open in three dimensions; rounding, whatever the file is in, adds little."""
    network, update, _ = send(tiny(), "mjp:0.27")
    rounded = {name: tensor.to(dtype).to(kept or dtype) for name, tensor in update.tensors.items()}
    info = {**INFO, "defence": "mjp:0.27"}
    findings = audit_update(network.state_dict(), rounded, info, network, attacks=["subspace"])
    assert findings.conclusion.verdict == "exposed", findings.conclusion.sentence
