"""What may be said about a reconstruction when the client's pictures are not at hand.

A reconstruction is then checked against the update itself: its gradient must be the update's. That takes the weights at
which the update was made. With other weights even a perfect copy does not match, and the worst error of an audit is
to report that as safe.
"""

import math
from typing import NamedTuple

from mjp.privacy.examine.finding import Finding, Verdict
from mjp.privacy.server.linear import EXACT
from mjp.privacy.server.self_check import CONVINCING, EXPLAINED
from mjp.privacy.server.view import View

MAX_EXCESS = 0.5  # beyond [0, 1], in pixel values, before the stated normalisation is doubted

MAX_NOISE = 0.05  # in the equations of a coarse number format; several pictures and masked patches leave far more
MAX_STEPS = 8.0  # of the number format


class Evidence(NamedTuple):
    """What is known about a reconstruction besides its match."""

    digits: int  # to which the equations of a closed form hold; 0 for few
    weights_known: bool  # the weights are the client's, as far as the caller said
    plausible: bool  # the prior finds nothing odd about the picture; one of ten pictures is odd


def give_verdict(finding: Finding, evidence: Evidence) -> Verdict:
    """The verdict on a finding, with what qualifies it."""
    if finding.refused:
        return Verdict("refused", "refused", f"refuses: {finding.refused}")
    verdict = _judge(finding, evidence)
    short = verdict.short
    sentence = verdict.sentence
    if excess := _pixel_range(finding):
        short += f"; pixels {excess}"
        sentence += f"; its pixels go from {excess} instead of 0 to 1: state --mean and --std of the client"
    if guessed := finding.details.get("open_dimensions"):
        sentence += f"; {guessed} dimensions of its patches are open and guessed"
    return Verdict(verdict.outcome, short, f"{sentence}, {finding.seconds:.1f} s")


def _judge(finding: Finding, evidence: Evidence) -> Verdict:
    match = finding.details.get("match")
    digits = evidence.digits
    open_ = finding.details.get("open_dimensions", 0)
    whole = finding.details.get("integer_patches", 0)
    if whole and (match is None or match < EXPLAINED):  # masked patches in wrong places match nothing
        checked = "" if match is None else f" (match {match:.2f})"
        sentence = f"{whole} patches in whole grey levels that fit the equations{checked}: a few of them may be wrong"
        return Verdict("explains in part", f"{whole} patches in whole levels", sentence)
    equations = f"a picture whose equations hold to {_digits(digits)}, which takes no weights"
    if match is None:
        picture = equations if digits else "a picture"
        sentence = f"{picture}; without the classifier's gradient it cannot be checked further"
        return Verdict("equations hold" if digits else "unverified", "cannot be verified", sentence)
    if match >= EXPLAINED:
        return Verdict("explains", f"match {match:.4f}", f"a picture that explains the update (match {match:.4f})")
    if digits and 0 < open_ < finding.details.get("patch_dimensions", 0):
        sentence = f"equations that hold to {_digits(digits)} and fix all but {open_} dimensions of every patch"
        return Verdict("explains in part", f"in part, match {match:.3f}", f"{sentence} (match {match:.2f})")
    if digits and not open_:
        certain = match > CONVINCING or _pixel_range(finding)  # clipped pixels match nothing, whatever the weights
        doubt = "" if certain else " with these weights, which may not be the client's: state --weights"
        return Verdict(
            "equations hold", f"equations hold to {_digits(digits)}", f"{equations}; match {match:.2f}{doubt}"
        )
    if match > CONVINCING:
        sentence = f"a picture that explains the update only in part (match {match:.3f}): parts of it may be wrong"
        return Verdict("explains in part", f"in part, match {match:.3f}", sentence)
    if not evidence.weights_known:
        looks = "it looks like a picture" if evidence.plausible else "look at it yourself"
        reason = f"the weights may not be the client's (match {match:.2f}), state --weights"
        return Verdict("unverified", "cannot be verified", f"cannot be verified: {reason}; {looks}")
    sentence = f"nothing that explains the update (match {match:.2f}): not a reconstruction"
    return Verdict("not recovered", f"no reconstruction, match {match:.2f}", sentence)


def _digits(count: int) -> str:
    return f"{count} digit{'s' if count > 1 else ''}"


def equation_digits(finding: Finding, view: View) -> int:
    """To how many digits a closed form's equations hold, which must outnumber the unknowns; 0 for few."""
    noise = finding.details.get("noise", 1.0)
    unknowns, equations = view.table.shape
    limit = max(EXACT, min(MAX_NOISE, MAX_STEPS * view.resolution))
    return -math.ceil(math.log10(noise)) if 0 < noise < limit and equations > unknowns else 0


def _pixel_range(finding: Finding) -> str:
    """The range of the pixels before they were clipped, if it is not the range of a picture."""
    low, high = finding.details.get("range", (0.0, 1.0))
    if finding.details.get("open_dimensions"):  # guessed pixels say nothing about the normalisation
        return ""
    return f"{low:.1f} to {high:.1f}" if low < -MAX_EXCESS or high > 1 + MAX_EXCESS else ""
