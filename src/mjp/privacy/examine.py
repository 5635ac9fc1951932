"""One defence, one batch of pictures, all attacks: the client makes an update, every attack gets its file, and only
then are the results laid beside the pictures.

Settings, as published: (a) nothing is shuffled, a reconstruction is compared with the picture x; under a jigsaw
(b) with the shuffled picture x̃, and (c) with x itself. Several local steps have several jigsaws: then (c) alone.
"""

import copy
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from mjp.method.model import MJP
from mjp.models import Subject
from mjp.pictures.tensors import normalise
from mjp.privacy.attacks import Attack
from mjp.privacy.client.defences import Defence
from mjp.privacy.client.victim import Secret, make_update, shared_network
from mjp.privacy.metrics import Perceptual, Score, match_batch, score
from mjp.privacy.server.prior import Prior
from mjp.privacy.server.self_check import match
from mjp.privacy.server.view import Effort, Reconstruction, Refused, View, server_seed
from mjp.privacy.update import Update, load_update

GUESS = "guess"  # the row of the data-free guess in every table


@dataclass(frozen=True)
class Finding:
    """What one attack made of one update. `scores`: {setting: [one Score for each picture]}."""

    attack: str
    pictures: Tensor | None  # (B, 3, H, W), None if it refused
    refused: str | None
    scores: dict[str, list[Score]]
    seconds: float
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        scores = {setting: [asdict(one) for one in many] for setting, many in self.scores.items()}
        return {
            "attack": self.attack,
            "refused": self.refused,
            "seconds": round(self.seconds, 3),
            "facts": self.facts,
            "scores": scores,
        }


def examine(
    subject: Subject,
    pictures: Tensor,
    labels: Tensor,
    defence: Defence,
    attacks: Sequence[Attack],
    prior: Prior,
    *,
    seed: int,
    dtype: torch.dtype = torch.float32,
    effort: Effort | None = None,
    lpips: Perceptual | None = None,
) -> Iterator[Finding]:
    """The data-free guess, then every attack, on (B, 3, H, W) pictures in [0, 1]. `seed` is the client's."""
    effort = effort or Effort(seed=server_seed(seed))
    images = normalise(pictures.to(dtype), subject.mean, subject.std)
    network = shared_network(subject.model.to(dtype), defence)
    updates: dict[str, tuple[MJP, Update, Secret]] = {}

    def updated(attack: Attack) -> tuple[MJP, Update, Secret]:
        """The update of the network that this attack is for; nearly all are for the unmodified one."""
        kind = attack.NAME if hasattr(attack, "network") else "unmodified"
        if kind not in updates:
            own = attack.network(copy.deepcopy(network)) if hasattr(attack, "network") else network
            generator = torch.Generator().manual_seed(seed)
            facts = {"mean": subject.mean, "std": subject.std}
            update, secret = make_update(copy.deepcopy(own), images, labels, defence, generator=generator, facts=facts)
            updates[kind] = (own, through_a_file(update), secret)
        return updates[kind]

    guessed = False
    for attack in attacks:
        own, update, secret = updated(attack)
        judge = Judge(pictures, secret, lpips)
        if not guessed:
            guess = prior.mean.clamp(0, 1).expand_as(pictures)
            yield Finding(GUESS, guess, None, judge(guess), 0.0, {})
            guessed = True
        yield try_attack(attack, own, update, prior, effort, judge)


def try_attack(
    attack: Attack, network: MJP, update: Update, prior: Prior, effort: Effort | None, judge: "Judge | None" = None
) -> Finding:
    """Run one attack. Without a judge (an update from elsewhere) there is nothing to score it against."""
    started = time.perf_counter()
    try:
        view = View(update, copy.deepcopy(network), prior, effort)  # a module may remember what it was run on
        found: Reconstruction = _run(attack, view)
        seconds = time.perf_counter() - started
        facts = {**found.facts, "attack_title": attack.TITLE, "match": _match(view, found.pictures)}
    except Refused as reason:
        return Finding(attack.NAME, None, str(reason), {}, time.perf_counter() - started, {})
    scores = judge(found.pictures) if judge else {}
    pictures = judge.arranged(found.pictures) if judge else found.pictures
    return Finding(attack.NAME, pictures, None, scores, seconds, facts)


def _run(attack: Attack, view: View) -> Reconstruction:
    """Numbers at the edge of what a computer holds may leave no picture: that is a refusal."""
    try:
        found = attack.run(view)
    except (torch.linalg.LinAlgError, ZeroDivisionError) as error:
        raise Refused("the numbers of the update are too small, too large or too alike to be solved for") from error
    if not bool(torch.isfinite(found.pictures).all()):
        raise Refused("the equations have no finite solution")
    return found


class Judge:
    """Knows the secret; lays reconstructions beside it."""

    def __init__(self, pictures: Tensor, secret: Secret, lpips: Perceptual | None) -> None:
        self.pictures, self.secret, self.lpips = pictures.double(), secret, lpips
        first = secret.plans[0]
        self.patch = pictures.shape[-2] // first.grid[0]
        self.targets = {"c" if first.budget else "a": self.pictures}
        if first.budget and len(secret.plans) == 1:
            self.targets = {"b": replace(secret, images=self.pictures).shuffled, **self.targets}

    def __call__(self, found: Tensor) -> dict[str, list[Score]]:
        scores = {}
        for setting, targets in self.targets.items():
            chosen = found if found.shape[0] == len(targets) else found[:1].expand_as(targets)
            order = match_batch(targets, chosen)
            scores[setting] = [
                score(target, chosen[k], patch=self.patch, mask=mask, lpips=self.lpips)
                for target, k, mask in zip(targets, order.tolist(), self.secret.mask, strict=True)
            ]
        return scores

    def arranged(self, found: Tensor) -> Tensor:
        """In the order of the pictures that they are scored against first."""
        target = next(iter(self.targets.values()))
        return found[match_batch(target, found)] if found.shape == target.shape else found


def through_a_file(update: Update) -> Update:
    """Write and read it: an attack gets what a file can hold, whatever else is in memory."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "update.safetensors"
        update.save(path)
        return load_update(path)


def _match(view: View, pictures: Tensor) -> float | None:
    """How well the reconstruction explains the update, which an attacker can tell alone; None without labels."""
    try:
        found = match(view, pictures.expand(view.facts.batch, -1, -1, -1))
    except Refused:
        return None
    return found if math.isfinite(found) else None
