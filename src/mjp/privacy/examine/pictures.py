"""Audit pictures: a client makes updates of them under defences, and attacks are scored against them.

The client's side and the server's meet only in bytes: an attack gets what a file would hold, and scores are computed
afterwards. Nothing is written to disk.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.common.secret_key import SecretKey
from mjp.method.model import MJP
from mjp.models import Subject, as_subject, find_model
from mjp.pictures.tensors import normalise
from mjp.privacy.attacks import Attack, check_rounds, find_attacks
from mjp.privacy.client.victim import Secret, make_update
from mjp.privacy.combination import Combination, parse
from mjp.privacy.examine.federation import Federation, public_federation
from mjp.privacy.examine.finding import GUESS, Finding
from mjp.privacy.examine.judge import Judge
from mjp.privacy.examine.trial import try_attack
from mjp.privacy.metrics import Perceptual
from mjp.privacy.network import as_mjp, shared_network
from mjp.privacy.server.prior import Prior
from mjp.privacy.server.public_pictures import find_prior
from mjp.privacy.server.view import Effort, server_seed
from mjp.privacy.update import Update

ROUND = 1_000_003  # between the seeds of two rounds of a client; torch uses only 32 bits of a seed


def audit_pictures(
    model: Subject | nn.Module | str,
    pictures: Tensor,
    *,
    names: Sequence[str] | None = None,
    defences: Sequence[str] = ("none",),
    attacks: Sequence[str] = ("direct", "span", "subspace", "activations", "lattice", "batch"),
    label: int | None = None,
    rounds: int = 1,
    prior: Path | None = None,
    dtype: torch.dtype = torch.float32,
    lpips: Perceptual | None = None,
    seed: int = 0,
    watch: Callable[[Finding], object] = lambda finding: None,
) -> list[Finding]:
    """Show what updates of these pictures would give away, for every picture, defence and attack.

    Args:
        model: The public model: a timm or MJP module, what `mjp attack --model` takes, or a Subject of mjp.models.
        pictures: (n, 3, H, W) in [0, 1], of the size that the model takes.
        names: Names of the pictures for the findings; by default their numbers.
        defences: What the client does before its update leaves, as in `mjp attack --defences`.
        attacks: Names of attacks.
        label: Class of the pictures in the client's loss; by default the model's own prediction.
        rounds: How often the client takes part with the same picture, for attacks that combine updates (`rounds`). In
            between the model learns from the embedded pictures, which stand for other clients'.
        prior: Folder of public pictures (with subfolders) on which the attacker's prior is measured; by default the
            embedded CIFAR-10 pictures.
        dtype: Precision of the client's gradients.
        lpips: LPIPS, as `mjp.privacy.lpips.find_lpips` returns it; it is left out by default.
        seed: Of the client's jigsaws and noise (and of random weights for `timm:NAME`).
        watch: Called with every finding as soon as it is there.

    Returns:
        For every picture and defence the data-free guess, then one finding per attack, with scores. Where a defence
        takes several pictures at a time, the first is the named one.

    Raises:
        InputError: if an argument makes no sense; nothing has been attacked then.
    """
    subject = _subject(model, seed)
    setup = {"attacks": find_attacks(attacks), "seed": seed, "dtype": dtype, "lpips": lpips}
    check_rounds(rounds, attacks)
    setup["federation"] = public_federation(rounds, subject) if rounds > 1 else None
    findings = []
    for finding in _examine_all(subject, pictures, defences, label, prior, setup):
        name = finding.picture if names is None else names[int(finding.picture)]
        findings.append(replace(finding, picture=name))
        watch(findings[-1])
    return findings


def _subject(model: Subject | nn.Module | str, seed: int) -> Subject:
    if isinstance(model, str):
        return find_model(model, random_weights=seed)
    return as_subject(as_mjp(model)) if isinstance(model, nn.Module) else model


def _examine_all(
    subject: Subject,
    pictures: Tensor,
    defences: Sequence[str],
    label: int | None,
    prior: Path | None,
    setup: dict[str, Any],
) -> Iterator[Finding]:
    """The findings on every picture under every defence; pictures have their number for a name."""
    combinations = [parse(text) for text in defences]
    for combination in combinations:
        combination.check_installed()
    _check(subject, pictures)
    labels = [_label(subject, picture, label) for picture in pictures]
    setup = {**setup, "prior": find_prior(prior, subject.size)}
    for number in range(len(pictures)):
        for combination in combinations:
            batch = _fill_batch(number, pictures, combination.batch)
            for finding in examine(subject, batch, labels[number].repeat(combination.batch), combination, **setup):
                yield replace(finding, picture=str(number), defence=combination.text)


def examine(
    subject: Subject,
    pictures: Tensor,
    labels: Tensor,
    defence: Combination,
    *,
    attacks: Sequence[Attack],
    prior: Prior,
    seed: int,
    dtype: torch.dtype = torch.float32,
    effort: Effort | None = None,
    lpips: Perceptual | None = None,
    key: SecretKey | None = None,
    federation: Federation | None = None,
) -> Iterator[Finding]:
    """One update of (B, 3, H, W) pictures in [0, 1]: the data-free guess, then every attack.

    `seed` is the client's; so is `key`, by default a simulated one of that seed. `federation`: the later rounds in
    which the client takes part with the same pictures, for attacks on several updates.
    """
    key = key or SecretKey.simulated(seed)
    effort = effort or Effort(seed=server_seed(seed))
    images = normalise(pictures.to(dtype), subject.mean, subject.std)
    network = shared_network(_in_precision(subject.model, dtype), defence)
    updates: dict[str, tuple[MJP, Update, Secret]] = {}

    def updated(attack: Attack) -> tuple[MJP, Update, Secret]:
        """The update of the network that this attack is for; nearly all attack the unmodified one."""
        kind = attack.NAME if hasattr(attack, "network") else "unmodified"
        if kind not in updates:
            target = attack.network(copy.deepcopy(network)) if hasattr(attack, "network") else network
            generator = torch.Generator().manual_seed(seed)
            normalisation = {"mean": subject.mean, "std": subject.std}
            update, secret = make_update(
                copy.deepcopy(target), images, labels, defence, generator=generator, key=key, **normalisation
            )
            updates[kind] = (target, update.as_sent(), secret)
        return updates[kind]

    for number, attack in enumerate(attacks):
        target, update, secret = updated(attack)
        judge = Judge(pictures, secret, lpips)
        if number == 0:
            guess = prior.mean.clamp(0, 1).expand_as(pictures)
            yield Finding(GUESS, guess, scores=judge.score(guess))
        if federation is None or "rounds" not in attack.NEEDS:
            yield judged(try_attack(attack, target, update, prior, effort), judge)
            continue
        later = list(_later_updates(target, images, labels, defence, federation, seed, key, subject))
        yield _until_exact(attack, (target, update), later, prior, effort, judge)


def judged(finding: Finding, judge: Judge) -> Finding:
    """A finding with its scores."""
    if finding.pictures is None:
        return finding
    return replace(finding, scores=judge.score(finding.pictures), pictures=judge.arrange(finding.pictures))


def _later_updates(
    network: MJP,
    images: Tensor,
    labels: Tensor,
    defence: Combination,
    federation: Federation,
    seed: int,
    key: SecretKey,
    subject: Subject,
) -> Iterator[tuple[MJP, Update]]:
    """The updates of the rounds after the first, each with the network of its round."""
    networks = federation.networks(network, torch.Generator().manual_seed(seed))
    for number, model in enumerate(networks):
        if number:
            generator = torch.Generator().manual_seed(seed + ROUND * number)
            normalisation = {"mean": subject.mean, "std": subject.std}
            update, _ = make_update(
                copy.deepcopy(model), images, labels, defence, generator=generator, key=key, **normalisation
            )
            yield model, update.as_sent()


def _until_exact(
    attack: Attack,
    first: tuple[MJP, Update],
    later: Sequence[tuple[MJP, Update]],
    prior: Prior,
    effort: Effort,
    judge: Judge,
) -> Finding:
    """The finding on as many rounds as it takes until every patch is bit-exact, or else on all of them."""
    for count in range(1, len(later) + 1):
        finding = judged(try_attack(attack, *first, prior, effort, others=later[:count]), judge)
        scores = finding.scores.get("c", finding.scores.get("a", []))
        if scores and all(score.exact == 1 for score in scores):
            return replace(finding, details={**finding.details, "rounds_until_exact": count + 1})
    return replace(finding, details={**finding.details, "rounds_until_exact": None})


def _check(subject: Subject, pictures: Tensor) -> None:
    if subject.size[0] != subject.size[1]:
        raise InputError(f"the attacks are for square pictures, {subject.name} takes {subject.size}")
    if pictures.ndim != 4 or tuple(pictures.shape[1:]) != (3, *subject.size) or len(pictures) == 0:
        raise InputError(f"pictures must have shape (n, 3, {subject.size[0]}, {subject.size[1]}) for {subject.name}")
    if not bool(((pictures >= 0) & (pictures <= 1)).all()):
        raise InputError("pictures must have values from 0 to 1")


def _label(subject: Subject, picture: Tensor, label: int | None) -> Tensor:
    """(1,) the class in the client's loss."""
    count = int(getattr(subject.model.model, "num_classes", 0))
    if label is not None:
        if not 0 <= label < count:
            raise InputError(f"--label must be a class of the model, 0 to {count - 1}, not {label}")
        return torch.tensor([label])
    with torch.no_grad():
        return (
            _in_precision(subject.model, torch.float32)
            .eval()(normalise(picture.unsqueeze(0), subject.mean, subject.std))
            .argmax(1)
        )


def _in_precision(model: MJP, dtype: torch.dtype) -> MJP:
    """The model itself, or a copy of it: the caller's keeps its precision."""
    return model if next(model.parameters()).dtype == dtype else copy.deepcopy(model).to(dtype)


def _fill_batch(number: int, pictures: Tensor, count: int) -> Tensor:
    """The picture with company: the other pictures in turn, mirrored where there are not enough."""
    picture = pictures[number]
    rest = [other for other in pictures if not torch.equal(other, picture)]
    mirrored = [other.flip(axis) for axis in (-1, -2) for other in (picture, *rest)]
    company = [*rest, *mirrored]
    return torch.stack([picture, *(company[k % len(company)] for k in range(count - 1))])
