"""An audit: models × defences × pictures × attacks.

Everything that can be wrong with the settings, the models, the data, the prior or the folder is found before the first
cell is measured. A killed audit resumes where it was: the same settings in the same folder reuse finished cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.files import check_folder
from mjp.common.fingerprint import fingerprint
from mjp.common.progress import Progress
from mjp.common.results import Results, write_results
from mjp.common.runs.lock import hold_folder
from mjp.common.secret_key import SecretKey
from mjp.common.weights import read_tensors
from mjp.evaluation.batches import find_pictures
from mjp.models import Subject
from mjp.pictures.crop import eight_bit_square
from mjp.pictures.sets import Pictures
from mjp.pictures.tensors import normalise
from mjp.privacy.attacks import Attack, find_attacks
from mjp.privacy.audit.bounds import bound_lines, bound_on
from mjp.privacy.audit.cells import Cells, Key
from mjp.privacy.audit.chart import draw_audit
from mjp.privacy.audit.headline import headlines, rounds_lines
from mjp.privacy.audit.settings import AuditSettings
from mjp.privacy.audit.spreadsheet import write_spreadsheet
from mjp.privacy.audit.summary import summarise
from mjp.privacy.audit.table import table
from mjp.privacy.audit.usefulness import measure, usefulness
from mjp.privacy.audit.verdicts import verdict_lines, verdict_on
from mjp.privacy.combination import parse
from mjp.privacy.examine.federation import OTHERS, Federation
from mjp.privacy.examine.pictures import examine
from mjp.privacy.examine.subject import public_model
from mjp.privacy.lpips import find_lpips
from mjp.privacy.metrics import Perceptual
from mjp.privacy.samples import sample_pictures, spread_numbers
from mjp.privacy.server.integers import can_reduce
from mjp.privacy.server.prior import Prior, fit_prior
from mjp.privacy.server.public_pictures import PUBLIC, find_prior
from mjp.privacy.server.view import Effort, server_seed


@dataclass(frozen=True)
class Target:
    """A model under audit: the pictures of its clients, and what its attacker has seen."""

    subject: Subject
    pictures: Tensor  # (n, 3, H, W) in [0, 1]
    labels: Tensor  # (n,) classes that the model has
    prior: Prior
    federation: Federation | None  # where a picture is sent in several rounds


def audit(settings: AuditSettings, out: Path, options: Any) -> Results:
    """Measure, write results.json (with `options` as its settings), audit.csv and audit.png, and print the table."""
    settings.check()
    attacks = find_attacks(settings.attacks)
    check_folder(out)
    source = find_pictures(settings.data)
    lpips, availability = find_lpips(settings.lpips)
    if lpips is None:
        print(f"LPIPS {availability}")
    targets = [_target(settings, name, source) for name in settings.models]
    with hold_folder(out) as is_ours:
        if not is_ours:
            raise InputError(f"another audit is running in {out}: wait for it, or choose another --out")
        cell_settings = {**settings.cell_settings(), "lpips": "measured" if lpips else "not measured"}
        cells = Cells(out / "cells.jsonl", cell_settings)
        for target in targets:
            cells.expect(target.subject.name, fingerprint(target.subject.model.state_dict()))
        for target in targets:
            _attack(settings, target, attacks, cells, lpips)
        return _conclude(settings, targets, source, cells, out, options)


def _target(settings: AuditSettings, name: str, source: Pictures) -> Target:
    weights = None if settings.weights is None else read_tensors(settings.weights)
    subject = public_model(name, weights=weights, seed=None if settings.pretrained else settings.seed)
    numbers = spread_numbers(len(source), settings.pictures)
    labels = torch.tensor([source.labels[number] for number in numbers])
    classes = int(getattr(subject.model.model, "num_classes", 1))
    pictures = sample_pictures(source, len(numbers), subject.size, floats=settings.float_pictures)
    federation = _federation(settings, subject, source, numbers) if settings.rounds > 1 else None
    return Target(subject, pictures, labels % classes, _prior(settings, subject, source, numbers), federation)


def _federation(settings: AuditSettings, subject: Subject, source: Pictures, attacked: Sequence[int]) -> Federation:
    """The other clients have pictures of the data that are not under attack."""
    numbers = [number for number in spread_numbers(len(source), OTHERS) if number not in attacked]
    if not numbers:
        raise InputError("every picture is under attack, none is left for the other clients: attack fewer")
    pictures = torch.stack([eight_bit_square(source.load(number), subject.size) for number in numbers])
    classes = int(getattr(subject.model.model, "num_classes", 1))
    labels = torch.tensor([source.labels[number] for number in numbers]) % classes
    return Federation(settings.rounds, normalise(pictures, subject.mean, subject.std), labels)


def _prior(settings: AuditSettings, subject: Subject, source: Pictures, attacked: Sequence[int]) -> Prior:
    """From a public folder, or from pictures of the data that are not under attack."""
    if settings.prior is not None or settings.data == "embedded":
        return find_prior(settings.prior, subject.size)
    count = min(PUBLIC, len(source) // 2)
    return fit_prior(sample_pictures(source, count, subject.size, skip=1, without=attacked))


def _attack(
    settings: AuditSettings, target: Target, attacks: Sequence[Attack], cells: Cells, lpips: Perceptual | None
) -> None:
    """Measure the cells of a model that are not finished."""
    name = target.subject.name
    count = len(target.pictures)
    keys = [
        Key(name, text, number) for text in settings.defences for number in range(max(1, count // parse(text).batch))
    ]
    keys = [key for key in keys if key not in cells.findings]
    effort = Effort(**settings.search_settings(), seed=server_seed(settings.seed))
    with Progress(len(keys), f"attacking {name}", unit="update") as progress:
        for key in keys:
            defence = parse(key.defence)
            rows = [(key.batch * defence.batch + k) % count for k in range(defence.batch)]
            findings = examine(
                target.subject,
                target.pictures[rows],
                target.labels[rows],
                defence,
                attacks=attacks,
                prior=target.prior,
                seed=settings.seed + key.batch,
                dtype=getattr(torch, settings.dtype),
                effort=effort,
                lpips=lpips,
                key=SecretKey.simulated(settings.seed),
                federation=target.federation,
            )
            cells.add(key, [finding.to_dict() for finding in findings])
            progress.advance()


def _caveats(settings: AuditSettings) -> list[str]:
    """What makes an audit look better than it is."""
    sentences = []
    if settings.float_pictures:
        sentences.append("pictures were resized with floats, which hides what 8-bit pictures give away to lattice")
    if "lattice" not in settings.attacks or not can_reduce():
        remedy = "pip install 'mjp[lattice]'" if not can_reduce() else "add it to --attacks"
        sentences.append(f"the strongest attack on 8-bit pictures, lattice, did not run: {remedy}")
    return sentences


def _conclude(
    settings: AuditSettings, targets: Sequence[Target], source: Pictures, cells: Cells, out: Path, options: Any
) -> Results:
    rows = summarise(cells, settings.models, settings.defences, seed=settings.seed)
    measured: dict[str, dict[str, Any]] = {name: {} for name in settings.models}
    for target in targets if settings.accuracy else ():
        limits = {"limit": settings.accuracy, "seed": settings.seed}
        measured[target.subject.name] = measure(target.subject, source, settings.defences, **limits)
    rows = [{**row, "usefulness": usefulness(row["defence"], measured[row["model"]])} for row in rows]
    priors = {target.subject.name: target.prior for target in targets}
    scope = {"pictures": settings.pictures, "rounds": settings.rounds}
    rows = [{**row, "verdict": verdict_on(row), "bound": bound_on(row, priors[row["model"]], **scope)} for row in rows]
    headline = headlines(rows, settings.models)
    results = write_results(out, "audit", options, {"models": measured, "rows": rows, "headline": headline})
    write_spreadsheet(rows, out / "audit.csv")
    draw_audit(rows, out / "audit.png")
    lines = [*verdict_lines(rows), *bound_lines(rows), *headline.values(), *rounds_lines(rows), *_caveats(settings)]
    print("\n".join([table(rows), *lines]))
    print(f"figures  {out / 'results.json'}, {out / 'audit.csv'}\nchart    {out / 'audit.png'}")
    return results
