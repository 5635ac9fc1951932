"""Federated training in one process: the same core as in the adapters for Flower and NVFlare, without an engine.

Every scenario (a defence) is a training run of its own from the same weights. Everything random is a function of the
seed, the round and the client, so a run that was killed continues after its last finished round, to the same bits.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.common.errors import InputError, first_line
from mjp.common.progress import Progress
from mjp.common.secret_key import SecretKey
from mjp.common.seeds import derive_seed
from mjp.federated.auditor import NOT_AUDITED, LeakAuditor
from mjp.federated.client import LocalClient, Sent
from mjp.federated.config import FederateSettings
from mjp.federated.data import Labelled, accuracy_of
from mjp.federated.journal import Entry, Journal
from mjp.federated.leak_log import LeakLog
from mjp.federated.returning import NOTHING, Returning, rounds_until_exact, views_of
from mjp.federated.screen import fault_of
from mjp.federated.truth import Leaks, compare
from mjp.models import Subject
from mjp.privacy.combination import parse
from mjp.privacy.server.prior import Prior
from mjp.privacy.server.view import Refused


class Division(NamedTuple):
    """Pictures in [0, 1] and labels of every client, and those for measuring accuracy."""

    clients: list[Labelled]
    validation: Labelled


class Scenario:
    """One training run under one defence."""

    def __init__(
        self,
        subject: Subject,
        division: Division,
        defence: str,
        settings: FederateSettings,
        prior: Prior,
        out: Path,
    ) -> None:
        self.settings = settings
        self.prior = prior
        self.subject = subject
        self.division = division
        self.journal = open_journal(defence, settings, out)
        folder = self.journal.folder
        self.leaks = Leaks(folder)
        self.log = None
        if settings.leak_log:
            place = out / "leak-log" / folder.name
            self.log = LeakLog(place, max_megabytes=settings.max_megabytes)
        self.clients = [
            LocalClient(subject, *share, defence=defence, lr=settings.lr, key=_key(settings.seed, number))
            for number, share in enumerate(division.clients)
        ]
        self.network = self.clients[0].network
        self.auditor = LeakAuditor(self.network, defence=defence, attacks=settings.attacks, prior=prior)
        self.start = {name: tensor.clone() for name, tensor in self.network.weights().items()}

    def run(self, progress: Progress) -> Journal:
        """All rounds that are left."""
        weights = self.journal.weights() or self.start
        if self.journal.rounds not in self.journal.accuracy:  # a run that was killed in between lacks it
            self._measure(self.journal.rounds, weights)
        for number in range(self.journal.rounds + 1, self.settings.rounds + 1):
            weights = self._round(number, weights)
            self._measure(number, weights)
            progress.advance()
        return self.journal

    def returning(self) -> Returning:
        """What the rounds tell together about the first client's picture; nothing without a log."""
        if self.log is None:
            return NOTHING
        try:
            views = views_of(self.log, "0", self.network, self.prior)
        except Refused:  # no attack is made for this model
            return NOTHING
        return rounds_until_exact(views, self.journal.rounds, self.leaks.tiles)

    def _round(self, number: int, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every client trains and is audited; what can be averaged becomes the next global weights."""
        if self.log is not None:
            self.log.keep_weights(number, weights)
        entries = []
        usable: list[Sent] = []
        for client in range(len(self.clients)):
            entry, sent = self._turn(number, client, weights)
            entries.append(entry)
            if sent is not None:
                usable.append(sent)
        if not usable:
            self.journal.add(*entries)
            reasons = "; ".join(f"client {entry.client}: {entry.fault}" for entry in entries)
            raise InputError(f"round {number}: no client sent an update that can be averaged ({reasons})")
        averaged = average([sent.weights for sent in usable], [sent.info["batch"] for sent in usable])
        self.journal.close_round(number, averaged, entries)
        return averaged

    def _turn(self, number: int, client: int, weights: Mapping[str, Tensor]) -> tuple[Entry, Sent | None]:
        """One client's part of a round; whatever goes wrong is an entry, and the others go on."""
        name = str(client)
        try:
            sent = self.clients[client].train(weights, number)
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            return Entry(round=number, client=name, fault=f"failed ({reason})"), None
        if fault := fault_of(sent.weights, weights):
            return Entry(round=number, client=name, status=NOT_AUDITED, fault=fault), None
        report = self.auditor.audit(weights, sent.weights, sent.info)
        pictures = self.division.clients[client][0][sent.numbers]
        truth = compare(report, pictures, self.auditor.guess)
        if client == 0:
            self.leaks.keep(number, truth)
        if self.log is not None:
            self.log.keep_update(number, name, sent.weights, sent.info)
        return Entry(
            round=number,
            client=name,
            status=report.status,
            attack=report.attack,
            match=round(report.match, 6),
            seconds=round(report.seconds, 3),
            psnr=None if truth.psnr is None else round(truth.psnr, 3),
            guess=round(truth.guess, 3),
        ), sent

    def _measure(self, number: int, weights: Mapping[str, Tensor]) -> None:
        if len(self.division.validation[1]):
            accuracy = accuracy_of(self.network, weights, self.subject, self.division.validation)
            self.journal.note_accuracy(number, accuracy)


def open_journal(defence: str, settings: FederateSettings, out: Path) -> Journal:
    """The journal of one training run; that of a run with other settings or more rounds is refused."""
    folder = out / "scenarios" / re.sub(r"[:.+]", "_", parse(defence).canonical)
    public = {name: value for name, value in vars(settings).items() if name not in ("defences", "rounds", "out")}
    journal = Journal(folder, {**public, "defence": defence})
    if journal.rounds > settings.rounds:
        raise InputError(
            f"{folder} holds {journal.rounds} rounds: state at least as many, or another folder with --out"
        )
    return journal


def average(updates: Sequence[Mapping[str, Tensor]], counts: Sequence[int]) -> dict[str, Tensor]:
    """FedAvg: the mean of the weights, a client's weight being its number of pictures."""
    total = sum(counts)
    return {
        name: sum(
            (count / total * update[name].double() for update, count in zip(updates, counts, strict=True)),
            start=torch.zeros((), dtype=torch.float64),
        ).to(updates[0][name])
        for name in updates[0]
    }


def _key(seed: int, client: int) -> SecretKey:
    """Simulated clients have keys that come out the same again; real ones have a file."""
    return SecretKey.simulated(derive_seed(seed, client))
