"""Audit an update from elsewhere: what a server could rebuild from it, checked against the update itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mjp.common.weights import read_tensors
from mjp.method.model import MJP
from mjp.models import Subject, as_subject
from mjp.privacy.arrays import is_list, name_list, plain_tensors
from mjp.privacy.attacks import Attack, find_attacks
from mjp.privacy.combination import parse
from mjp.privacy.examine.conclusion import Findings, conclude, explains_update
from mjp.privacy.examine.coverage import (
    Gap,
    batch_gaps,
    broken_gaps,
    check_kind,
    drop_adapters,
    optimizer_gaps,
    parameter_gaps,
)
from mjp.privacy.examine.finding import Finding, Verdict
from mjp.privacy.examine.subject import public_model
from mjp.privacy.examine.trial import try_attack
from mjp.privacy.info import UpdateInfo, check_stated, stated_info
from mjp.privacy.network import as_mjp, shared_network
from mjp.privacy.server.prior import Prior
from mjp.privacy.server.public_pictures import find_prior
from mjp.privacy.server.view import Effort, View
from mjp.privacy.update import Update, changes_of, check_tensors, read_update, split_finite

Weights = Mapping[str, Tensor] | Sequence[Any] | Path | str
Info = UpdateInfo | Mapping[str, Any]


@dataclass(frozen=True)
class OpenUpdate:
    """An update that was read and checked, with all that a server has beside it."""

    update: Update
    subject: Subject  # the public model
    network: MJP  # the same as client and server share it under the stated defence
    prior: Prior
    weights_known: bool  # the model's weights are the client's, as far as the caller said
    gaps: tuple[Gap, ...] = ()  # what no attack here is made for

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the update belongs to the public model."""
        return not self.update.tensors


def audit_update(
    before: Weights | None,
    after: Weights,
    info: Info | None,
    model: nn.Module | str,
    *,
    attacks: Sequence[str] = ("direct", "span", "subspace", "activations", "lattice", "batch"),
    prior: Path | None = None,
    effort: Effort | None = None,
) -> Findings:
    """Try to rebuild the pictures behind an update.

    Args:
        before: The weights at which the update was made: a state dict, a list of arrays in its order, or a file of
            either (safetensors, .pt, .pth, .npz). None: those of `model`, which for `timm:NAME` are random, so that
            reconstructions cannot be verified.
        after: What left the client: gradients (`kind` "gradient"), the weights after its local steps ("fedavg") or
            their change ("delta"); in the same forms.
        info: An UpdateInfo, or a dictionary with some of its fields; the others are the model's own. None: what the
            json file beside `after` states.
        model: The public model: a timm or MJP module, or what `mjp attack-update --model` takes.
        attacks: Names of attacks.
        prior: Folder of public pictures (with subfolders) on which the attacker's prior is measured; by default the
            embedded CIFAR-10 pictures.
        effort: How much the attacks that search may spend.

    Returns:
        One finding per attack, with pictures; `.conclusion` is the verdict on the update.

    Raises:
        InputError: if the inputs do not fit together; nothing has been attacked then.
    """
    modules = find_attacks(attacks)
    return attack_update(open_update(before, after, info, model, prior=prior), modules, effort=effort)


def open_update(
    before: Weights | None,
    after: Weights,
    info: Info | None,
    model: nn.Module | str,
    *,
    prior: Prior | Path | None = None,
    pretrained: bool = False,
    seed: int = 0,
) -> OpenUpdate:
    """Read and check an update; `pretrained` and `seed` are for the weights of `timm:NAME`."""
    stated = _stated(after, info)
    combination = parse(stated.get("defence", "none"))
    tensors = _tensors(after, "update")
    weights = None if before is None else _tensors(before, "weights")
    seed_or_none = None if pretrained else seed
    if weights is not None and is_list(weights):
        weights = name_list(weights, _subject(model, None, weights, stated, seed_or_none).model, "file of weights")
    subject = _subject(model, weights, tensors, stated, seed_or_none)
    network = shared_network(subject.model, combination)
    tensors = name_list(tensors, network, "update") if is_list(tensors) else plain_tensors(tensors)
    finite, broken = split_finite(tensors)
    tensors = finite or tensors  # if nothing is finite, the view says so
    localizes = network.localizer is not None and any(name.startswith("localizer.") for name in tensors)
    defaults = {
        "batch": combination.batch,
        "size": subject.size,
        "mean": subject.mean,
        "std": subject.std,
        "localize_weight": network.config.localize_weight if localizes else 0.0,
    }
    full_info = UpdateInfo(**{**defaults, **stated})
    update = _without_adapters(tensors, full_info, network)
    weights_known = before is not None or pretrained or not (isinstance(model, str) and model.startswith("timm:"))
    prior = prior if isinstance(prior, Prior) else find_prior(prior, subject.size)
    target = OpenUpdate(update, subject, network, prior, weights_known)
    if target.is_empty:
        adapters = {name: tensor for name, tensor in tensors.items() if name not in drop_adapters(tensors)}
        return replace(target, gaps=tuple(parameter_gaps(adapters)))
    view = View(update, network, target.prior)  # checks names, shapes and numbers before anything is tried
    changes = changes_of(update, network)
    if weights_known:
        check_kind(update, changes, network)
    gaps = [*parameter_gaps({**tensors, **changes}), *optimizer_gaps(view.gradients, full_info)]
    return replace(target, gaps=(*gaps, *batch_gaps(view), *broken_gaps(broken)))


def _without_adapters(tensors: dict[str, Tensor], info: UpdateInfo, network: MJP) -> Update:
    """What the update says about the public model: nothing where frozen weights are sent along with adapters."""
    update = Update(drop_adapters(tensors), info)
    if not 0 < len(update.tensors) < len(tensors):
        return update
    frozen = not any(bool(change.any()) for change in changes_of(update, network).values())
    return Update({}, info) if frozen else update


def attack_update(
    target: OpenUpdate,
    attacks: Sequence[Attack],
    *,
    effort: Effort | None = None,
    watch: Callable[[Finding], object] = lambda finding: None,
    both_signs: bool = True,
) -> Findings:
    """One finding per attack, then the conclusion.

    `watch` is called with each finding as soon as it is there. `both_signs`: whoever stated the update may have
    mistaken its sign, so try the other one too.
    """
    findings = Findings()
    for attack in attacks:
        finding = try_update(attack, target, (), effort, both_signs=both_signs)
        watch(finding)
        findings.append(finding)
    findings.conclusion = conclude(findings, target.gaps)
    return findings


def try_update(
    attack: Attack,
    target: OpenUpdate,
    others: Sequence[OpenUpdate] = (),
    effort: Effort | None = None,
    *,
    both_signs: bool = True,
) -> Finding:
    """The finding on the update, or on its negative if only that is explained: w_after − w_before is one.

    `others`: further updates that the server has, for attacks on several of them.
    """
    if target.is_empty:
        reason = "the update holds nothing of the public model but adapters"
        return Finding(attack.NAME, None, reason, verdict=Verdict("refused", "refused", f"refuses: {reason}"))

    def attempt(change: Callable[[Update], Update]) -> Finding:
        rest = [(other.network, change(other.update)) for other in others]
        known = all(one.weights_known for one in (target, *others))
        update = change(target.update)
        return try_attack(attack, target.network, update, target.prior, effort, weights_known=known, others=rest)

    finding = attempt(lambda update: update)
    certain = not both_signs or target.update.info.kind == "fedavg"
    if certain or finding.refused or explains_update(finding):
        return finding
    other = attempt(_negative)
    if not explains_update(other):
        return finding
    return replace(other, details={**other.details, "sign": "opposite to the stated one"})


def _negative(update: Update) -> Update:
    return replace(update, tensors={name: -tensor for name, tensor in update.tensors.items()})


def _tensors(source: Weights, what: str) -> dict[str, Tensor]:
    if not isinstance(source, str | Path):
        return check_tensors(source, what)
    return read_update(Path(source)) if what == "update" else read_tensors(Path(source))


def _stated(after: Weights, info: Info | None) -> dict[str, Any]:
    """What is stated about the update; the rest is the model's own."""
    if isinstance(info, UpdateInfo):
        return vars(info)
    if info is not None:
        return check_stated(dict(info), source="info")
    return stated_info(Path(after)) if isinstance(after, str | Path) else {}


def _subject(
    model: nn.Module | str,
    weights: dict[str, Tensor] | None,
    tensors: dict[str, Tensor],
    stated: dict[str, Any],
    seed: int | None,
) -> Subject:
    if isinstance(model, str):
        return public_model(model, weights=weights, update=tensors, size=stated.get("size"), seed=seed)
    return as_subject(as_mjp(model), weights=None if weights is None else plain_tensors(weights))
