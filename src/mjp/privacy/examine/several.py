"""Several updates, perhaps of several clients: those of one picture are linked and attacked together.

Every update is attacked by itself, and the updates of one picture once more by the attacks on several rounds. A server
links them without help: the rows of ∂L/∂W span the patches of the picture, whatever the jigsaw.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import nn

from mjp.common.errors import InputError
from mjp.privacy.attacks import Attack, rounds
from mjp.privacy.examine.conclusion import EXPOSED, NOT_COVERED, NOT_RECOVERED, Conclusion, Findings, conclude
from mjp.privacy.examine.finding import Finding
from mjp.privacy.examine.sources import Source
from mjp.privacy.examine.update import Info, OpenUpdate, Weights, open_update, try_update
from mjp.privacy.info import UpdateInfo, stated_info
from mjp.privacy.server.needs import require
from mjp.privacy.server.prior import Prior
from mjp.privacy.server.view import Effort, Refused, View

Group = dict[str, OpenUpdate]  # updates of one picture, by name; or one that is linked to no other


Sent = tuple[Weights | None, Weights, Info]  # weights before, the update, what is public about it


def open_sources(
    sources: Sequence[Source],
    model: str,
    stated: Mapping[str, Any],
    *,
    prior: Prior | Path | None = None,
    **options: Any,
) -> tuple[Group, dict[str, str]]:
    """Read and check all updates; `stated` overrides what their json files say, `options` are for open_update.

    Returns the updates, and why others from a folder are left out: what one client sent must not keep an auditor from
    the rest. If none can be read, or one that was named cannot, that is an error.
    """
    opened = _Opened(model, prior, options)
    left_out: dict[str, str] = {}
    for source in sources:
        try:
            info = stated_info(source.file, **stated)
            opened.add(source.name, (source.weights, source.file, info))
        except InputError as error:
            if not source.is_optional:
                raise InputError(f"{source.name}: {error}") if len(sources) > 1 else error from error
            left_out[source.name] = str(error)
    if not opened.targets:
        name, reason = next(iter(left_out.items()))
        raise InputError(f"no update can be attacked; {name}: {reason}")
    return opened.targets, left_out


def open_updates(
    sent: Mapping[str, Sent], model: nn.Module | str, *, prior: Prior | Path | None = None, **options: Any
) -> Group:
    """Check all updates, by name; an error says which one it is about."""
    opened = _Opened(model, prior, options)
    for name, one in sent.items():
        try:
            opened.add(name, one)
        except InputError as error:
            raise InputError(f"{name}: {error}") if len(sent) > 1 else error from error
    return opened.targets


class _Opened:
    """Updates that were read so far; those with pictures of one size share a prior."""

    def __init__(self, model: nn.Module | str, prior: Prior | Path | None, options: dict[str, Any]) -> None:
        self.model = model
        self.prior = prior
        self.options = options
        self.targets: Group = {}
        self.priors: dict[Any, Prior] = {}  # by the size of the pictures

    def add(self, name: str, sent: Sent) -> None:
        before, after, info = sent
        size = (vars(info) if isinstance(info, UpdateInfo) else info).get("size")
        prior = self.priors.get(size, self.prior)
        target = open_update(before, after, info, self.model, prior=prior, **self.options)
        _refuse_copy(name, target, self.targets)
        self.targets[name] = target
        self.priors[size] = target.prior


def _refuse_copy(name: str, target: OpenUpdate, others: Group) -> None:
    """An update that is there twice would pass for two rounds."""
    tensors = target.update.tensors
    for other, first in others.items():
        twin = first.update.tensors
        if twin.keys() == tensors.keys() and all(torch.equal(tensor, twin[n]) for n, tensor in tensors.items()):
            raise InputError(f"{other} holds the same update, bit for bit: name one of them")


def link(targets: Group) -> list[Group]:
    """The updates in groups, each of one picture."""
    views = {name: view for name, target in targets.items() if (view := _linkable(target)) is not None}
    left = list(targets)
    groups = []
    while left:
        members = _linked(left, views)
        groups.append({name: targets[name] for name in members})
        left = [name for name in left if name not in members]
    return groups


def _linkable(target: OpenUpdate) -> View | None:
    """What a server sees of an update that can be compared with others."""
    if target.is_empty:
        return None
    view = View(target.update, target.network, target.prior)
    try:
        require(view, "one", "step", "projection")
    except Refused:
        return None
    return view


def _linked(names: Sequence[str], views: Mapping[str, View]) -> list[str]:
    """The first update and those of the same picture."""
    first = names[0]
    if first not in views:
        return [first]
    views[first].others = tuple(views[name] for name in names[1:] if name in views)
    try:
        members = rounds.linked(views[first])
        return [n for n in names if n == first or (views.get(n) in members and _may_share(first, n, views))]
    except Refused:  # in many small patches the equations decide, and some of them are missing
        return [first]


def _may_share(first: str, second: str, views: Mapping[str, View]) -> bool:
    """Where the numbers cannot tell pictures apart, the names in a log can: ROUND/CLIENT.safetensors."""
    view = views[first]
    if len(view.table) < view.projection.shape[1]:
        return True
    if rounds.can_contradict(rounds.read_round(view), rounds.read_round(views[second])):
        return True
    clients = [PurePosixPath(name).name for name in views]
    return len(set(clients)) == len(clients) or PurePosixPath(first).name == PurePosixPath(second).name


def attack_group(
    group: Group,
    attacks: Sequence[Attack],
    *,
    effort: Effort | None = None,
    watch: Callable[[Finding], object] = lambda finding: None,
) -> Findings:
    """Every attack on every update of a group; those on several rounds once, on all of them."""
    findings = Findings()
    for number, (name, target) in enumerate(group.items()):
        others = [other for other in group.values() if other is not target]
        for attack in attacks:
            if number and "rounds" in attack.NEEDS:
                continue
            finding = replace(try_update(attack, target, others, effort), update=name)
            watch(finding)
            findings.append(finding)
    gaps = dict.fromkeys(gap for target in group.values() for gap in target.gaps)
    findings.conclusion = conclude(findings, tuple(gaps))
    return findings


def conclude_all(conclusions: Sequence[Conclusion]) -> Conclusion:
    """The verdict on all groups: the worst of theirs."""
    if len(conclusions) == 1:
        return conclusions[0]
    verdicts = [conclusion.verdict for conclusion in conclusions]
    verdict = next(verdict for verdict in (EXPOSED, NOT_COVERED, NOT_RECOVERED) if verdict in verdicts)
    worst = [conclusion for conclusion in conclusions if conclusion.verdict == verdict]
    where = f"{len(worst)} of {len(conclusions)} groups of linked updates"
    reason = worst[0].sentence.removeprefix(f"{verdict}: ")
    return Conclusion(
        verdict,
        f"{verdict}: {where}; the first: {reason}",
        tuple(dict.fromkeys(name for one in worst for name in one.by)),
        tuple(dict.fromkeys(name for one in conclusions for name in one.ran)),
        {name: reason for one in conclusions for name, reason in one.could_not_run.items()},
        conclusions[0].not_tried,
        tuple(dict.fromkeys(gap for one in conclusions for gap in one.gaps)),
    )
