"""After how many rounds a picture that takes part again is exact: the rounds attack on the server's own log."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from mjp.common.weights import read_tensors
from mjp.federated.leak_log import LeakLog
from mjp.federated.truth import PICTURE, TOGETHER
from mjp.method.model import MJP
from mjp.models import as_subject
from mjp.privacy.attacks import find_attack
from mjp.privacy.examine.sources import WEIGHTS
from mjp.privacy.examine.subject import plain_tensors
from mjp.privacy.metrics import exact_patches, psnr
from mjp.privacy.server.prior import Prior
from mjp.privacy.server.view import Refused, View
from mjp.privacy.update import load_update


class Returning(NamedTuple):
    """What the rounds tell together; empty where the attack cannot run."""

    figures: dict[str, Any]  # for results.json
    tiles: dict[str, Tensor]  # (3, H, W): the best reconstruction after all rounds


NOTHING = Returning({}, {})


def rounds_until_exact(views: Mapping[int, View], rounds: int, tiles: Mapping[str, Tensor]) -> Returning:
    """After how many of the rounds every patch of the picture is right to the bit, and its PSNR after each.

    What counts is the best reconstruction so far, of a single update (`tiles`, with the picture) or of all that are in
    the log together; before there is one, the guess. Nothing is returned where the attack cannot run (several pictures
    or several steps in an update), or where the client never sent an update.
    """
    if PICTURE not in tiles or not views:
        return NOTHING
    view = next(iter(views.values()))
    together = _linked_reconstructions(views)
    if any(rebuilt is None for rebuilt in together.values()):
        return NOTHING
    picture = tiles[PICTURE].double()
    best = float(psnr(picture, view.prior.mean.double().clamp(0, 1)))
    by_rounds: list[float] = []
    until: int | None = None
    closest: dict[str, Tensor] = {}
    for number in range(1, rounds + 1):
        candidates = (tiles.get(f"round {number}"), together.get(number))
        pairs = [(picture, rebuilt.double().clamp(0, 1)) for rebuilt in candidates if rebuilt is not None]
        for _, rebuilt in pairs:
            if (decibels := float(psnr(picture, rebuilt))) > best:
                best, closest = decibels, {TOGETHER: rebuilt.float()}
        by_rounds.append(round(best, 3))
        if until is None and any(bool(exact_patches(*pair, view.patch[0]).all()) for pair in pairs):
            until = number
    return Returning({"psnr_by_rounds": by_rounds, "rounds_until_exact": until}, closest)


def views_of(log: LeakLog, client: str, network: MJP, prior: Prior) -> dict[int, View]:
    """What the server has of one client, by round, each at the weights of its round."""
    views = {}
    for path in log.updates_of(client):
        weights = plain_tensors(read_tensors(path.with_name(WEIGHTS)))
        number = int(path.parent.name.removeprefix("round-"))
        views[number] = View(load_update(path), as_subject(network, weights=weights).model, prior)
    return views


def _linked_reconstructions(views: Mapping[int, View]) -> dict[int, Tensor | None]:
    """From the second update on, by round: what it and those before it tell together; None if the attack refuses."""
    attack = find_attack("rounds")
    pictures: dict[int, Tensor | None] = {}
    earlier: list[View] = []
    for number, view in views.items():
        view.others = tuple(earlier)
        earlier.append(view)
        if not view.others:
            continue
        try:
            pictures[number] = attack.run(view).pictures[0]
        except Refused:
            pictures[number] = None
            break
    return pictures
