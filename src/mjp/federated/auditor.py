"""The auditor of one client: built once, asked about every update that is about to leave.

The model, its prior and the attacks are kept between rounds; only the weights change. An audit never raises: an update
that cannot be audited gives a report that says so, since a training run must not stop for it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from mjp.common.errors import InputError, first_line
from mjp.common.parameter_names import plain_name
from mjp.common.validate import fraction
from mjp.method.model import MJP
from mjp.models import Subject, as_subject
from mjp.privacy.attacks import find_attacks
from mjp.privacy.combination import parse
from mjp.privacy.examine.conclusion import EXPOSED, NOT_COVERED, NOT_RECOVERED, Findings, ThreeVerdicts
from mjp.privacy.examine.finding import Finding
from mjp.privacy.examine.subject import public_model
from mjp.privacy.examine.update import attack_update, open_update
from mjp.privacy.network import as_mjp, shared_network
from mjp.privacy.server.prior import Prior
from mjp.privacy.server.public_pictures import find_prior

ATTACKS = ("direct", "span", "subspace")  # closed forms that take a fraction of a second on a small model
PREFIX = "leak_"  # of every figure, so that none meets a metric of the training
NOT_AUDITED: Literal["not audited"] = "not audited"

Status = ThreeVerdicts | Literal["not audited"]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class LeakReport:
    """What the attacks made of one update.

    Attributes:
        status: One of the three verdicts of `mjp.privacy`, or `not audited` for an update that cannot be read. None of
            them means that the update is safe.
        match: Cosine between the update and the gradient of the best reconstruction; 0 if there is none.
        attack: The attack with that match; "" if none ran.
        sentence: The verdict in words.
        matches: The match of every attack, 0 for those that cannot run.
        withheld: Whether the update must stay with the client.
        seconds: What the audit took.
        findings: One finding per attack, with the reconstructions.
    """

    status: Status
    match: float = 0.0
    attack: str = ""
    sentence: str = ""
    matches: dict[str, float] = field(default_factory=dict)
    withheld: bool = False
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()

    def figures(self) -> dict[str, float]:
        """Finite numbers under names that depend on the attacks alone, for the metrics that a client sends."""
        numbers = {
            "exposed": float(self.status == EXPOSED),
            "covered": float(self.status in (EXPOSED, NOT_RECOVERED)),
            "audited": float(self.status != NOT_AUDITED),
            "match": self.match,
            "seconds": round(self.seconds, 3),
            **{f"match_{name}": match for name, match in self.matches.items()},
        }
        return {f"{PREFIX}{name}": value for name, value in numbers.items()}


class LeakAuditor:
    """Says what an update gives away before it leaves.

    Args:
        model: The model that client and server share: a timm or MJP module, or what `mjp attack-update --model` takes.
        defence: What the client does in training, as `mjp attack --defences` writes it.
        attacks: Names of attacks to try on every update.
        limit: Withhold an update whose match is above this, and one that is exposed; None withholds nothing. With a
            limit every update is also attacked as one step on one picture, whatever is stated about it.
        strict: With a limit, withhold also what no attack covers and what cannot be audited.
        prior: The attacker's prior, or a folder of public pictures to measure it on; by default the embedded ones.
    """

    def __init__(
        self,
        model: nn.Module | str,
        *,
        defence: str = "none",
        attacks: Sequence[str] = ATTACKS,
        limit: float | None = None,
        strict: bool = False,
        prior: Prior | Path | None = None,
    ) -> None:
        self.attacks = find_attacks(attacks)
        self.defence = parse(defence)
        self.limit = None if limit is None else fraction("limit", limit)
        self.strict = strict
        self._model = model
        self._prior = prior
        self._shared: tuple[MJP, Subject, Prior] | None = None
        if not (isinstance(model, str) and model.startswith("timm:")):
            self._shared = self._build(model, None, None)

    @property
    def guess(self) -> Tensor:
        """(3, H, W) in [0, 1]: what an attacker would say without an update."""
        if self._shared is None:
            raise InputError("the model is built with the first audit: there is no guess before it")
        return self._shared[2].mean.clamp(0, 1)

    def audit(self, before: Tensors, after: Tensors, info: Mapping[str, Any] | None = None) -> LeakReport:
        """Attack an update.

        Args:
            before: The weights that came, by parameter name.
            after: What is about to leave: the weights after the local steps, or gradients (`kind` "gradient").
            info: Fields of an UpdateInfo: `batch` (distinct pictures in the update), `steps`, `lr`, `optimizer`, …;
                `kind` is "fedavg" by default.

        Returns:
            A report, whatever happens.
        """
        began = time.perf_counter()
        try:
            report = self._report(before, after, dict(info or {}))
        except Exception as error:  # an audit must not end a training run, whatever is wrong with it
            return self.refuse(error, time.perf_counter() - began)
        return self._decided(report, time.perf_counter() - began)

    def refuse(self, error: Exception, seconds: float = 0.0) -> LeakReport:
        """The report on an update that cannot be audited, and why."""
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {first_line(error)}"
        return self._decided(LeakReport(status=NOT_AUDITED, sentence=reason, matches=self._nothing()), seconds)

    def _report(self, before: Tensors, after: Tensors, stated: dict[str, Any]) -> LeakReport:
        """With a limit, what is stated is a claim: more pictures, more steps or another rate hide a single picture."""
        if self.limit is None:
            return self._judge(self._attack(before, after, stated))
        blunt = self._judge(self._attack(before, *_as_single_step(before, after, stated)))
        single = max(stated.get("batch", self.defence.batch), stated.get("steps", 1)) == 1
        if single or self._is_above(blunt):
            return blunt
        return self._judge(self._attack(before, after, stated))

    def _build(
        self, model: nn.Module | str, before: Tensors | None, size: tuple[int, int] | None
    ) -> tuple[MJP, Subject, Prior]:
        subject = (
            public_model(model, weights=before, size=size) if isinstance(model, str) else as_subject(as_mjp(model))
        )
        network = shared_network(subject.model, self.defence)
        prior = self._prior if isinstance(self._prior, Prior) else find_prior(self._prior, subject.size)
        return network, subject, prior

    def _attack(self, before: Tensors, after: Tensors, stated: dict[str, Any]) -> Findings:
        if self._shared is None:  # timm:NAME gets its classes from the first weights that come
            self._shared = self._build(self._model, before, stated.get("size"))
        network, subject, prior = self._shared
        defaults: dict[str, Any] = {
            "kind": "fedavg",
            "defence": self.defence.text,
            "batch": self.defence.batch,
            "size": subject.size,
            "mean": subject.mean,
            "std": subject.std,
        }
        target = open_update(before, after, {**defaults, **stated}, network, prior=prior)
        return attack_update(target, self.attacks, both_signs=False)  # here it is known what is a change of what

    def _nothing(self) -> dict[str, float]:
        return {attack.NAME: 0.0 for attack in self.attacks}

    def _judge(self, findings: Findings) -> LeakReport:
        conclusion = findings.conclusion
        matches = self._nothing() | {f.attack: max(0.0, float(f.details.get("match") or 0.0)) for f in findings}
        best = max(conclusion.by or conclusion.ran, key=lambda name: matches[name], default="")
        return LeakReport(
            status=conclusion.verdict,
            match=matches.get(best, 0.0),
            attack=best,
            sentence=conclusion.sentence,
            matches=matches,
            findings=tuple(findings),
        )

    def _is_above(self, report: LeakReport) -> bool:
        return self.limit is not None and (report.status == EXPOSED or report.match > self.limit)

    def _decided(self, report: LeakReport, seconds: float) -> LeakReport:
        uncertain = report.status in (NOT_COVERED, NOT_AUDITED)
        withheld = self._is_above(report) or (self.limit is not None and self.strict and uncertain)
        return replace(report, withheld=withheld, seconds=seconds)


def _as_single_step(
    before: Tensors, after: Tensors, stated: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The same update as a change of the weights at an unknown rate, by one step on one picture."""
    kind = stated.get("kind", "fedavg")
    change = dict(after)
    if kind == "gradient":
        change = {name: -tensor for name, tensor in after.items()}
    elif kind == "fedavg":
        names = {plain_name(name): tensor for name, tensor in before.items()}
        change = {name: tensor - names[plain_name(name)].to(tensor) for name, tensor in after.items()}
    return change, {**stated, "kind": "delta", "batch": 1, "steps": 1, "lr": 0.0}
