"""One attack on one update: what the server finds, and its own verdict on it."""

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mjp.method.model import MJP
from mjp.privacy.attacks import Attack
from mjp.privacy.examine.finding import Finding
from mjp.privacy.examine.verdict import Evidence, equation_digits, give_verdict
from mjp.privacy.server.prior import Prior
from mjp.privacy.server.self_check import match
from mjp.privacy.server.view import Effort, Reconstruction, Refused, View
from mjp.privacy.update import Update


def try_attack(
    attack: Attack,
    network: MJP,
    update: Update,
    prior: Prior,
    effort: Effort | None = None,
    *,
    weights_known: bool = True,
    others: Sequence[tuple[MJP, Update]] = (),
) -> Finding:
    """Run one attack on an update, without the client's pictures.

    `others`: what the server has received besides, with the network of each round.
    """
    started = time.perf_counter()
    try:
        view = View(update, copy.deepcopy(network), prior, effort)  # a copy: modules may remember their inputs
        view.others = tuple(View(other, model, prior, effort) for model, other in others)
        result = _run(attack, view)
        seconds = time.perf_counter() - started
        details = {**result.details, "attack_title": attack.TITLE, "match": _match(view, result.pictures)}
        details |= {"patch_dimensions": 3 * view.patch[0] * view.patch[1], "batch": view.info.batch}
    except Refused as reason:
        finding = Finding(attack.NAME, None, str(reason), seconds=time.perf_counter() - started)
        return replace(finding, verdict=give_verdict(finding, Evidence(0, weights_known, False)))
    finding = Finding(attack.NAME, result.pictures, seconds=seconds, details=details)
    plausible = prior.plausible(result.pictures[0])
    evidence = Evidence(equation_digits(finding, view), weights_known, plausible)
    return replace(finding, verdict=give_verdict(finding, evidence))


def _run(attack: Attack, view: View) -> Reconstruction:
    """Numbers at the limits of floating point may leave no picture: that is a refusal."""
    try:
        result = attack.run(view)
    except (RuntimeError, ZeroDivisionError) as error:
        if not _is_numerical(error):
            raise
        raise Refused("the numbers of the update are too small, too large or too alike to be solved for") from error
    if not bool(torch.isfinite(result.pictures).all()):
        raise Refused("the equations have no finite solution")
    return result


def _is_numerical(error: Exception) -> bool:
    """Whether a solver failed on its numbers; lstsq says so with a plain RuntimeError that names the function."""
    expected = isinstance(error, torch.linalg.LinAlgError | ZeroDivisionError)
    return expected or "torch.linalg" in str(error)


def _match(view: View, pictures: Tensor) -> float | None:
    """How well the reconstruction explains the update, which an attacker can tell alone; None without labels."""
    try:
        cosine = match(view, pictures.expand(view.info.batch, -1, -1, -1))
    except Refused:
        return None
    return cosine if math.isfinite(cosine) else None
