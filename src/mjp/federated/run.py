"""`mjp federate`: several trainings side by side, what leaked in each, one page."""

from pathlib import Path
from typing import Any

import torch

from mjp.common.errors import InputError
from mjp.common.progress import Progress, say
from mjp.common.results import Results
from mjp.common.runs.lock import hold_folder
from mjp.federated.config import FederateSettings
from mjp.federated.data import Labelled, client_share, validation_pictures
from mjp.federated.journal import Journal
from mjp.federated.simulation import Division, Scenario, open_journal
from mjp.federated.summary import draw_leaks, finish, scenario_line
from mjp.models import Subject, find_model
from mjp.pictures.crop import eight_bit_square
from mjp.pictures.decode import open_rgb
from mjp.pictures.sets import embedded
from mjp.pictures.tensors import normalise
from mjp.privacy.combination import parse
from mjp.privacy.server.public_pictures import find_prior

CLASSES = 10
MAX_PICTURES = 64  # of a client: more than few rounds reach


def federate(settings: FederateSettings, out: Path, options: Any) -> Results:
    """Run or continue every scenario, then write results.json, the charts and report.html."""
    defences = settings.scenarios()
    combinations = [parse(text) for text in defences]
    with hold_folder(out) as free:
        if not free:
            raise InputError(f"another run works in {out}: name another folder with --out")
        for text in defences:
            open_journal(text, settings, out)  # refuses another run before anything is changed
        subject = _model(settings)
        prior = find_prior(None, subject.size)
        journals: dict[str, Journal] = {}
        leaks = {}
        more = {}
        for text, combination in zip(defences, combinations, strict=True):
            combination.check_installed()
            division = _divide(settings, subject, combination.batch)
            scenario = Scenario(subject, division, text, settings, prior, out)
            (out / "results.json").unlink(missing_ok=True)  # a failed run leaves no results
            with Progress(settings.rounds, text, initial=scenario.journal.rounds, unit="round") as progress:
                journals[text] = scenario.run(progress)
            more[text], together = scenario.returning()
            leaks[text] = {**scenario.leaks.tiles, **together}
            say(scenario_line(text, journals[text], more[text]))
        draw_leaks(leaks, out / "leaks.png")
        return finish(out, journals, vars(options), more)


def _model(settings: FederateSettings) -> Subject:
    build: dict[str, Any] = {"num_classes": CLASSES} if settings.model.startswith("timm:") else {}
    subject = find_model(settings.model, random_weights=settings.seed, **build)
    if subject.size[0] != subject.size[1]:
        raise InputError(f"the attacks are for square pictures, {subject.name} takes {subject.size}")
    return subject


def _divide(settings: FederateSettings, subject: Subject, batch: int) -> Division:
    """The embedded pictures by Dirichlet; the first client keeps those of one step, or has the photograph."""
    if subject.model.classes is not None:
        subject.check_classes(embedded("val").classes)
    clients = [
        client_share(
            number,
            settings.clients,
            subject.size,
            alpha=settings.alpha,
            least=batch,
            most=batch if number == 0 else max(MAX_PICTURES, 16 * batch),
            seed=settings.seed,
        )
        for number in range(settings.clients)
    ]
    if settings.photograph is not None:
        clients[0] = _with_photograph(settings.photograph, clients[0], subject)
    return Division(clients, validation_pictures(settings.accuracy, subject.size))


@torch.no_grad()
def _with_photograph(path: Path, share: Labelled, subject: Subject) -> Labelled:
    pictures, labels = (part.clone() for part in share)
    pictures[0] = eight_bit_square(open_rgb(path), subject.size)
    logits = subject.model.eval()(normalise(pictures[:1], subject.mean, subject.std))
    labels[0] = logits[:, :CLASSES].argmax()
    return pictures, labels
