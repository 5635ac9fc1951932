"""The verdict on an update as a whole, one of three:

    exposed                                 a reconstruction explains the update, or certain parts of a picture do
    not recovered by any attack that ran    with the attacks that ran, and those that could not
    not covered                             no attack here is made for this update; with what remains exploitable

There is no fourth one that would clear an update: another attack may succeed where these do not.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mjp.privacy.attacks import attacks
from mjp.privacy.examine.coverage import Gap
from mjp.privacy.examine.finding import GUESS, Finding

ThreeVerdicts = Literal["exposed", "not recovered by any attack that ran", "not covered"]
EXPOSED: ThreeVerdicts = "exposed"
NOT_RECOVERED: ThreeVerdicts = "not recovered by any attack that ran"
NOT_COVERED: ThreeVerdicts = "not covered"
EXPLAINING = ("explains", "explains in part", "equations hold")
UNVERIFIED = Gap(
    "a reconstruction cannot be verified",
    "whatever the picture shows: look at it, and state --weights or send the classifier's gradient along",
)


@dataclass(frozen=True)
class Conclusion:
    """The verdict on an update.

    Attributes:
        verdict: One of the three.
        sentence: The same for people, with the reasons.
        by: The attacks whose reconstruction explains the update.
        ran: The attacks that ran.
        could_not_run: {attack: why not}.
        not_tried: The attacks that nobody asked for.
        gaps: What the attacks do not model, and what remains exploitable in it.
    """

    verdict: ThreeVerdicts
    sentence: str
    by: tuple[str, ...]
    ran: tuple[str, ...]
    could_not_run: dict[str, str]
    not_tried: tuple[str, ...]
    gaps: tuple[Gap, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "gaps": [gap._asdict() for gap in self.gaps]}


class Findings(list[Finding]):
    """The findings of all attacks on one update, and the conclusion from them."""

    conclusion: Conclusion


def conclude(findings: Sequence[Finding], gaps: Sequence[Gap] = ()) -> Conclusion:
    """What may be said about an update after these findings."""
    tried = [finding for finding in findings if finding.attack != GUESS]
    ran = tuple(dict.fromkeys(finding.attack for finding in tried if not finding.refused))
    by = tuple(dict.fromkeys(finding.attack for finding in tried if explains_update(finding)))
    could_not_run = _refusals(tried)
    unverified = any(finding.verdict and finding.verdict.outcome == "unverified" for finding in tried)
    gaps = (*gaps, *([UNVERIFIED] if unverified else []))
    verdict = EXPOSED if by else NOT_COVERED if gaps or not ran else NOT_RECOVERED
    not_tried = tuple(name for name in attacks() if name not in {finding.attack for finding in tried})
    sentence = _sentence(verdict, by, ran, could_not_run, not_tried, gaps)
    return Conclusion(verdict, sentence, by, ran, could_not_run, not_tried, gaps)


def _refusals(findings: Sequence[Finding]) -> dict[str, str]:
    """{attack: its first reason}, with the number of updates where there are several and it ran on some."""
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if finding.refused:
            reasons.setdefault(finding.attack, []).append(finding.refused)
    totals = {name: sum(finding.attack == name for finding in findings) for name in reasons}
    return {
        name: texts[0] if len(texts) == totals[name] else f"on {len(texts)} of {totals[name]} updates: {texts[0]}"
        for name, texts in reasons.items()
    }


def explains_update(finding: Finding) -> bool:
    """Whether a reconstruction explains the update, or holds patches that are certain."""
    if finding.verdict is None or finding.refused:
        return False
    if finding.details.get("integer_patches", 0) > 0:
        return True
    # a mixture of several pictures may explain their update in part without showing any of them
    mixed = finding.details.get("batch", 1) > 1 and finding.verdict.outcome == "explains in part"
    return finding.verdict.outcome in EXPLAINING and not mixed


def _sentence(
    verdict: str,
    by: Sequence[str],
    ran: Sequence[str],
    could_not_run: dict[str, str],
    not_tried: Sequence[str],
    gaps: Sequence[Gap],
) -> str:
    if by:
        return f"{verdict}: {', '.join(by)} rebuilt what explains the update"
    listed = [
        f"could not run: {'; '.join(f'{name} ({reason})' for name, reason in could_not_run.items())}",
        f"not tried: {', '.join(not_tried)}",
    ]
    rest = [text for text, present in zip(listed, (could_not_run, not_tried), strict=True) if present]
    if verdict == NOT_RECOVERED:
        return ". ".join([f"{verdict}: {', '.join(ran)}", *rest])
    reasons = [f"{gap.what}; what remains exploitable: {gap.remains}" for gap in gaps]
    reasons = reasons or ["none of the attacks can run, which says nothing about attacks that nobody wrote here"]
    tried = [f"ran: {', '.join(ran)}"] if ran else []
    return ". ".join([f"{verdict}: {'. '.join(reasons)}", *tried, *rest])
