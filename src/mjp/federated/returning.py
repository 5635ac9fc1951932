"""After how many rounds a picture that takes part again is exact: the rounds attack on the server's own log."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mjp.common.weights import read_tensors
from mjp.federated.leak_log import LeakLog
from mjp.federated.truth import PICTURE
from mjp.method.model import MJP
from mjp.models import as_subject
from mjp.privacy.attacks import find_attack
from mjp.privacy.examine.sources import WEIGHTS
from mjp.privacy.examine.subject import plain_tensors
from mjp.privacy.metrics import exact_patches, psnr
from mjp.privacy.server.prior import Prior
from mjp.privacy.server.view import Refused, View
from mjp.privacy.update import load_update


def rounds_until_exact(
    log: LeakLog, client: str, network: MJP, prior: Prior, tiles: dict[str, Tensor]
) -> dict[str, Any]:
    """After how many rounds every patch of the picture is right to the bit, and its PSNR after each.

    What counts is the best reconstruction so far, of a single update (`tiles`, with the picture) or of all of them
    together. Nothing is returned where the attack cannot run: for several pictures or several steps in an update.
    """
    picture = tiles[PICTURE].double()
    patch = int(network.model.patch_embed.patch_size[0])  # type: ignore[union-attr, index]
    together = _linked_reconstructions(views_of(log, client, network, prior))
    if any(rebuilt is None for rebuilt in together):
        return {}
    best: list[float] = []
    until: int | None = None
    for number, linked in enumerate([None, *together], 1):
        candidates = [rebuilt for rebuilt in (tiles.get(f"round {number}"), linked) if rebuilt is not None]
        pairs = [(picture, rebuilt.double().clamp(0, 1)) for rebuilt in candidates]
        best.append(round(max([float(psnr(*pair)) for pair in pairs] + best[-1:], default=0.0), 3))
        if until is None and any(bool(exact_patches(*pair, patch).all()) for pair in pairs):
            until = number
    return {"psnr_by_rounds": best, "rounds_until_exact": until}


def views_of(log: LeakLog, client: str, network: MJP, prior: Prior) -> list[View]:
    """What the server has of one client, round by round, each at the weights of its round."""
    views = []
    for path in log.updates_of(client):
        weights = plain_tensors(read_tensors(path.with_name(WEIGHTS)))
        views.append(View(load_update(path), as_subject(network, weights=weights).model, prior))
    return views


def _linked_reconstructions(views: Sequence[View]) -> list[Tensor | None]:
    """From two updates on: what they tell together; None where the attack refuses."""
    attack = find_attack("rounds")
    pictures: list[Tensor | None] = []
    for count in range(2, len(views) + 1):
        view = views[count - 1]
        view.others = tuple(views[: count - 1])
        try:
            pictures.append(attack.run(view).pictures[0])
        except Refused:
            return [*pictures, None]
    return pictures
