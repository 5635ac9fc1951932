"""What leaks, for several models and defences: accuracy and consistency beside the best attack's score.

Every number is a mean over pictures with a 95 % bootstrap interval; an attack is worth what it gains over the data-free
guess (the mean of other pictures). Masked and unmasked patches are scored apart. Killed, it goes on where it was: the
same command with the same --out keeps finished cells.

Example: mjp audit --models mini-cifar10-plain mini-cifar10-mjp --defences none mjp:0.27 --attacks direct subspace
"""

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from mjp.models import Subject
    from mjp.privacy.audit.cells import Cells
    from mjp.privacy.metrics import Perceptual
    from mjp.privacy.server.prior import Prior

DEFENCES = (
    *("none", "no-pe", "withheld-pe", "jp:0.27", "mjp:0.03", "mjp:0.09", "mjp:0.27", "mjp:0.5", "mjp:0.9", "mjp:1"),
    *("noise:0.01", "dp:0.1", "prune:0.9", "bf16", "batch:2", "batch:8", "mjp:0.27+bf16"),
)
ATTACKS = ("direct", "span", "subspace", "jigsaw")
SEARCH = ("steps", "restarts", "objective", "tv", "edges")  # options of gradient matching


@dataclass
class Options:
    models: tuple[str, ...] = ("mini-cifar10-plain", "mini-cifar10-mjp")
    """Public models: shipped names, folders, hub repositories, timm:NAME (random weights unless --pretrained)."""
    defences: tuple[str, ...] = DEFENCES
    """What the client does; parts combine with +."""
    attacks: tuple[str, ...] = ATTACKS
    """What the server tries: direct, span, subspace, jigsaw, april, matching, matching-blind."""
    data: str = "embedded"
    """The clients' pictures: embedded (CIFAR-10), or a folder of classes, or one with such a folder val."""
    pictures: int = 10
    """Pictures to attack for each defence, spread over the data."""
    prior: Path | None = None
    """Folder of public pictures for the attacker's prior; by default other pictures of the same data."""
    accuracy: int = 1000
    """Pictures on which accuracy and consistency are measured; 0 leaves them out (untrained models)."""
    pretrained: bool = False
    """Load the pretrained weights of timm:NAME."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the client's gradients."""
    lpips: Path | None = None
    """File with AlexNet's weights for LPIPS, if they are not in torchvision's cache."""
    steps: int = 200
    """Steps of gradient matching."""
    restarts: int = 1
    """Further starts of gradient matching."""
    objective: Literal["cosine", "l2"] = "cosine"
    """How gradient matching compares gradients."""
    tv: float = 1.0
    """Weight of total variation in gradient matching."""
    edges: float = 1.0
    """Weight of steps across the borders of patches in gradient matching."""
    seed: int = 0
    """Seed of random weights, jigsaws, noise, searches and the bootstrap."""
    out: Path = Path("out/audit")
    """Folder for cells.jsonl, results.json, audit.csv and audit.png."""


def run(options: Options) -> None:
    from mjp.common.errors import InputError
    from mjp.common.files import check_folder
    from mjp.common.fingerprint import fingerprint
    from mjp.common.validate import number, whole
    from mjp.evaluation.batches import find_pictures
    from mjp.models import find_model
    from mjp.privacy.attacks import find_attack
    from mjp.privacy.audit.cells import Cells, summarise
    from mjp.privacy.audit.chart import draw_audit
    from mjp.privacy.client.defences import parse
    from mjp.privacy.lpips import find_lpips
    from mjp.report.runs import describe

    for text in options.defences:
        parse(text)
    for name in options.attacks:
        find_attack(name)
    if not options.models or not options.defences or not options.attacks or options.pictures < 1:
        raise InputError("an audit needs at least one model, one defence, one attack and one picture")
    whole("--accuracy", options.accuracy)
    number("--seed", options.seed, least=0, most=2**53)  # what every generator takes
    whole("--steps", options.steps, least=1)
    whole("--restarts", options.restarts)
    number("--tv", options.tv, least=0)
    number("--edges", options.edges, least=0)
    subjects = [
        find_model(name, random_weights=None if options.pretrained else options.seed) for name in options.models
    ]
    source = find_pictures(options.data)
    lpips, text = find_lpips(options.lpips)
    if lpips is None:
        print(f"LPIPS {text}")
    check_folder(options.out)
    settings = {**_cell_settings(options), "lpips": "measured" if lpips else "not measured"}
    cells = Cells(options.out / "cells.jsonl", settings)
    for subject in subjects:
        cells.expect(subject.name, fingerprint(subject.model.state_dict()))
    for subject in subjects:
        _attack_all(options, subject, source, cells, lpips)
    rows = summarise(cells, options.models, options.defences, seed=options.seed)
    useful = {s.name: _usefulness(options, s, source) for s in subjects} if options.accuracy else {}
    facts = {**describe("audit", options), "models": {n: useful.get(n, {}) for n in options.models}, "rows": rows}
    facts["headline"] = _headline(rows, options.models)
    _write(options, facts)
    draw_audit(rows, options.out / "audit.png")
    print(_table(rows, useful))
    for text in facts["headline"].values():
        print(text)
    print(f"figures  {options.out / 'results.json'}, {options.out / 'audit.csv'}\nchart    {options.out / 'audit.png'}")


def _cell_settings(options: Options) -> dict[str, Any]:
    """What a finished cell depends on; models and defences may be added later."""
    names = ("attacks", "data", "pictures", "prior", "pretrained", "dtype", *SEARCH, "seed")
    return {name: str(getattr(options, name)) for name in names}


def _attack_all(options: Options, subject: "Subject", source: Any, cells: "Cells", lpips: "Perceptual | None") -> None:
    import torch
    from tqdm import tqdm

    from mjp.privacy.attacks import find_attack
    from mjp.privacy.audit.cells import Key
    from mjp.privacy.client.defences import parse
    from mjp.privacy.examine import examine
    from mjp.privacy.server.view import Effort, server_seed

    pictures, labels = _private(options, subject, source)
    prior = _prior(options, subject, source)
    keys = []
    for name in options.defences:
        size = parse(name).batch
        keys += [Key(subject.name, name, k) for k in range(max(1, len(pictures) // size))]
    chosen = {name: getattr(options, name) for name in SEARCH}
    effort = Effort(**chosen, seed=server_seed(options.seed))
    todo = [key for key in keys if key not in cells.found]
    for key in tqdm(todo, desc=f"attacking {subject.name}", unit="update", disable=None):
        defence = parse(key.defence)
        rows = [(key.batch * defence.batch + k) % len(pictures) for k in range(defence.batch)]
        found = examine(
            subject,
            pictures[rows],
            labels[rows],
            defence,
            [find_attack(name) for name in options.attacks],
            prior,
            seed=options.seed + key.batch,
            dtype=getattr(torch, options.dtype),
            effort=effort,
            lpips=lpips,
        )
        cells.add(key, [one.to_dict() for one in found])


def _private(options: Options, subject: "Subject", source: Any) -> "tuple[Tensor, Tensor]":
    """The clients' pictures, spread over the data, and labels that the model has."""
    import torch

    from mjp.privacy.server.public_pictures import spread

    chosen = _chosen(options, source)
    labels = torch.tensor([source.labels[k] for k in chosen])
    return spread(source, len(chosen), subject.size), labels % int(getattr(subject.model.model, "num_classes", 1))


def _chosen(options: Options, source: Any) -> list[int]:
    """The numbers of the pictures under attack."""
    count = min(options.pictures, len(source))
    return [k * len(source) // count for k in range(count)]


def _prior(options: Options, subject: "Subject", source: Any) -> "Prior":
    """From a public folder, or from pictures of the data that are not under attack."""
    from mjp.privacy.server.prior import fit_prior
    from mjp.privacy.server.public_pictures import PUBLIC, find_prior, spread

    if options.prior is not None or options.data == "embedded":
        return find_prior(options.prior, subject.size)
    public = spread(source, min(PUBLIC, len(source) // 2), subject.size, skip=1, without=_chosen(options, source))
    return fit_prior(public)


def _usefulness(options: Options, subject: "Subject", source: Any) -> dict[str, Any]:
    """Accuracy, and accuracy and consistency under the jigsaws of the defences, where the classes are the model's."""
    import torch

    from mjp.common.distributed import World
    from mjp.common.errors import InputError
    from mjp.evaluation.batches import batches
    from mjp.evaluation.sweep import sweep
    from mjp.privacy.client.defences import parse
    from mjp.training.evaluate import Unreadable

    try:
        subject.check_classes(source.classes)
    except InputError:
        return {}
    device = torch.device("cpu")
    parsed = [parse(text) for text in options.defences]
    ratios = sorted({defence.ratio for defence in parsed if defence.jigsaw != "none"})
    unreadable = Unreadable(0, World(0, 1, device))
    stream = batches(subject, source, size=128, limit=options.accuracy, workers=0, unreadable=unreadable)
    return sweep(subject.model.float(), stream, ratios, draws=1, seed=options.seed, device=device).to_dict()


def _useful_under(text: str, useful: dict[str, Any]) -> tuple[Any, Any]:
    """Top-1 and consistency of the model under the jigsaw of a defence; empty where they were not measured.

    What noise, rounding or local steps cost in training was not: beside those, the accuracy of a model that was trained
    without them would promise protection for nothing.
    """
    from mjp.privacy.client.defences import parse

    defence = parse(text)
    free = replace(defence, noise=None, dp=None, prune=0.0, bf16=False, steps=0)
    if not useful or defence != free or defence.positions not in ("shared", "withheld"):
        return "", ""
    if defence.jigsaw == "none":
        return useful["top1"][0], 1.0
    wanted = (defence.ratio, defence.jigsaw == "mjp")
    points = (point for point in useful["points"] if (point["ratio"], point["unknown"]) == wanted)
    return next(((point["top1"][0], point["consistency"][0]) for point in points), ("", ""))


def _headline(rows: list[dict[str, Any]], models: tuple[str, ...]) -> dict[str, str]:
    """The smallest γ at which the best attack gains less than 1 dB over the data-free guess."""
    from mjp.privacy.audit.cells import MARGIN, smallest_ratio

    found = {}
    for model in models:
        if not any(row["model"] == model and row["defence"].startswith("mjp:") for row in rows):
            continue
        parts = []
        for quantity, name in (("psnr_masked", "masked"), ("psnr_unmasked", "unmasked")):
            ratio = smallest_ratio(rows, model, quantity)
            parts.append(f"{name} patches: " + ("no measured γ" if ratio is None else f"γ = {ratio:g}"))
        found[model] = f"{model}: best attack gains less than {MARGIN:g} dB from there on: {'; '.join(parts)}"
    return found


def _table(rows: list[dict[str, Any]], useful: dict[str, Any]) -> str:
    """What a person reads: one line for each model, defence and setting."""
    from mjp.privacy.audit.cells import GAINS

    wide = max(len(row["defence"]) for row in rows)
    columns = f"{'best attack':<14} {'PSNR, dB':<20} {'gain':>6} {'masked':>7} {'unmasked':>9} {'any order':>10}"
    head = f"{'defence':<{wide + 4}} {'top-1, %':>8} {'consistent, %':>13} {'guess':>6}  {columns}"
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        lines += ["", model, head]
        for row in (row for row in rows if row["model"] == model):
            guess = row["attacks"]["guess"]["psnr"][0]
            known = _useful_under(row["defence"], useful.get(model, {}))
            top1, same = ("–" if share == "" else f"{100 * share:.1f}" for share in known)
            start = f"{row['defence']:<{wide}} ({row['setting']}) {top1:>8} {same:>13} {guess:6.1f}  "
            if row["best"] is None:
                lines.append(f"{start}none of these attacks can run")
                continue
            mean, low, high = row["attacks"][row["best"]]["psnr"]
            gains = [_gain(row, name) for name in GAINS]
            shown = f"{mean:.1f} [{low:.1f}, {high:.1f}]"
            lines.append(
                f"{start}{row['best']:<14} {shown:<20} {gains[0]:>6} {gains[1]:>7} {gains[2]:>9} {gains[3]:>10}"
            )
    return "\n".join(lines) + "\n"


def _gain(row: dict[str, Any], name: str) -> str:
    found = row[f"gain_{name}"]
    return "–" if found is None else f"{found['db'][0]:+.1f}"


def _write(options: Options, facts: dict[str, Any]) -> None:
    from mjp.common.files import write_atomically
    from mjp.privacy.audit.cells import QUANTITIES

    write_atomically(options.out / "results.json", lambda path: path.write_text(json.dumps(facts, indent=2) + "\n"))

    def table(path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            bounds = [f"{name}{end}" for name in QUANTITIES for end in ("", "_low", "_high")]
            extra = ("worst_picture", "condition", "match", "seconds", "refusals")
            names = ["model", "defence", "setting", "attack", "best", *bounds, *extra, "top1", "consistency"]
            writer.writerow(names)
            for row in facts["rows"]:
                for name, found in row["attacks"].items():
                    values = [v for quantity in QUANTITIES for v in (found[quantity] or ("", "", ""))]
                    extras = [found[key] for key in extra]
                    start = [row["model"], row["defence"], row["setting"], name, name == row["best"]]
                    useful = _useful_under(row["defence"], facts["models"][row["model"]])
                    writer.writerow([*start, *values, *extras, *useful])

    write_atomically(options.out / "audit.csv", table)
