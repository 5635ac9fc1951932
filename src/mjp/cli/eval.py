"""Accuracy, consistency and feature shift of one or several models under the jigsaw, and how robust they are otherwise.

A model is a shipped name (mini-cifar10-plain, mini-cifar10-mjp), a folder (of save_pretrained or of a training run),
timm:NAME, or a hub repository OWNER/NAME.

Example: mjp eval mini-cifar10-plain mini-cifar10-mjp --data embedded

Robustness alone, no jigsaw: mjp eval mini-cifar10-mjp --ratios --corrupt

With the downloads: mjp eval timm:deit_small_patch16_224 --ratios --imagenet-c DIR --imagenet-a DIR
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from mjp.evaluation.robustness.severities import CORRUPTIONS, SEVERITIES

if TYPE_CHECKING:
    from mjp.evaluation.robustness.measure import Robustness
    from mjp.evaluation.robustness.sets import Generated
    from mjp.evaluation.sweep import Sweep
    from mjp.models import Subject
    from mjp.pictures.sets import Pictures


@dataclass
class Options:
    models: tyro.conf.Positional[tuple[str, ...]]
    """Models to compare."""
    data: str = "embedded"
    """embedded (1,000 CIFAR-10 pictures), or a folder of classes, or one with such a folder val."""
    ratios: tuple[float, ...] = (0.03, 0.09, 0.15, 0.21, 0.27, 0.5, 0.9, 1.0)
    """Mask ratios γ to try; --ratios without a number leaves the jigsaw out."""
    draws: int = 2
    """Jigsaws per picture and ratio."""
    corrupt: bool = False
    """Corrupt the pictures of --data in the 15 ways of ImageNet-C and measure the error."""
    imagenet_c: Path | None = None
    """Folder CORRUPTION/SEVERITY/CLASS/*: the same from pictures that are corrupted already."""
    corruptions: tuple[str, ...] = CORRUPTIONS
    """Which corruptions."""
    severities: tuple[int, ...] = SEVERITIES
    """Which severities, 1 to 5."""
    imagenet_a: Path | None = None
    """Folder of ImageNet-A's 200 classes: accuracy and AURRA."""
    imagenet_o: Path | None = None
    """Folder of ImageNet-O's 200 classes: AUPR of outliers; needs --imagenet-val."""
    imagenet_val: Path | None = None
    """Folder of ImageNet's validation pictures by class: what ImageNet-O's outliers are told from."""
    allow_missing: bool = False
    """Measure what is there if a corruption, severity or class is missing, and say what was."""
    seed: int = 0
    """Seed of the jigsaws, of the corruptions and of the bootstrap."""
    batch_size: int = 128
    """Pictures per forward pass."""
    limit: int | None = None
    """Look at this many pictures only (of every set), spread over the data."""
    max_unreadable: int = 0
    """How many unreadable pictures to put up with; each is named and counts as a wrong answer."""
    workers: int = 1
    """Data loading processes."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    out: Path = Path("out/eval")
    """Folder for results.json, sweep.png, robustness.png and corruptions.png."""


def run(options: Options) -> None:
    from mjp.common.device import pick_device
    from mjp.common.distributed import World
    from mjp.common.files import check_folder, write_atomically
    from mjp.evaluation.batches import batches, find_pictures
    from mjp.evaluation.chart import draw_sweeps
    from mjp.evaluation.robustness.chart import draw_corruptions
    from mjp.evaluation.robustness.sets import Generated
    from mjp.evaluation.sweep import sweep
    from mjp.models import find_model
    from mjp.report.runs import describe
    from mjp.training.evaluate import Unreadable

    _check(options)
    check_folder(options.out)
    device = pick_device(options.device)
    pictures = find_pictures(options.data) if options.ratios or options.corrupt else None
    robustness = _robustness(options, pictures)
    subjects = [find_model(text) for text in options.models]
    for subject in subjects:  # before the first picture is looked at
        if pictures:
            subject.check_classes(pictures.classes)
        robustness.check(subject)
    sweeps: dict[str, Sweep] = {}
    models: dict[str, dict[str, Any]] = {}
    for subject in subjects:
        load = partial(
            batches,
            size=options.batch_size,
            limit=options.limit,
            workers=options.workers,
            unreadable=Unreadable(options.max_unreadable, World(0, 1, device)),
        )
        settings: dict[str, Any] = {"seed": options.seed, "device": device}
        figures = models[subject.name] = {}
        if pictures:
            result = sweep(subject.model, load(subject, pictures), options.ratios, draws=options.draws, **settings)
            sweeps[subject.name] = result
            figures |= result.to_dict()
            print(_table(subject.name, result))
        if robustness:
            figures["robustness"] = robustness.measure(subject, load, **settings)
    sheet = _sheet(robustness.grid, subjects[0]) if isinstance(robustness.grid, Generated) else None
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {**describe("eval", options), "data": options.data if pictures else None, "models": models}
    write_atomically(options.out / "results.json", lambda path: path.write_text(json.dumps(facts, indent=2) + "\n"))
    print(f"figures  {options.out / 'results.json'}")
    if options.ratios:
        draw_sweeps(sweeps, options.out / "sweep.png")
        print(f"curves   {options.out / 'sweep.png'}")
    if robustness.grid:
        found = {name: figures["robustness"]["corruptions"] for name, figures in models.items()}
        draw_corruptions(found, options.out / "robustness.png")
        print(f"errors   {options.out / 'robustness.png'}")
    if sheet:
        write_atomically(options.out / "corruptions.png", sheet.save)
        print(f"sheet    {options.out / 'corruptions.png'}")


def _check(options: Options) -> None:
    from mjp.common.errors import InputError

    if not options.models:
        raise InputError("name at least one model: a shipped name, a folder, timm:NAME, or a hub repository OWNER/NAME")
    if options.draws < 1 or options.batch_size < 1 or options.workers < 0 or options.max_unreadable < 0:
        raise InputError("--draws and --batch-size must be at least 1, --workers and --max-unreadable at least 0")
    if bad := [ratio for ratio in options.ratios if not 0 <= ratio <= 1]:
        raise InputError(f"--ratios must lie between 0 and 1, not {bad[0]}")
    if options.limit is not None and options.limit < 1:
        raise InputError(f"--limit must be at least 1, not {options.limit}")
    if odd := [name for name in options.corruptions if name not in CORRUPTIONS]:
        raise InputError(f"--corruptions: there is no {odd[0]!r}, choose from {', '.join(CORRUPTIONS)}")
    if not options.corruptions or not options.severities or set(options.severities) - set(SEVERITIES):
        raise InputError("--corruptions needs at least one name and --severities at least one of 1, 2, 3, 4, 5")
    if options.corrupt and options.imagenet_c:
        raise InputError("--corrupt and --imagenet-c give the same figures from different pictures: choose one")
    if (options.imagenet_o is None) != (options.imagenet_val is None):
        raise InputError("--imagenet-o and --imagenet-val belong together: outliers are told from ordinary pictures")


def _robustness(options: Options, pictures: "Pictures | None") -> "Robustness":
    """What the options ask for beside the jigsaw; refuses folders that are not complete."""
    from mjp.common.errors import InputError
    from mjp.evaluation.robustness.imagenet_subsets import IMAGENET_A, IMAGENET_O
    from mjp.evaluation.robustness.measure import Robustness
    from mjp.evaluation.robustness.sets import CorruptedFolders, Generated, Grid, ImageNetSubset

    grid: Grid | None = None
    natural = outliers = None
    names, severities = tuple(dict.fromkeys(options.corruptions)), tuple(sorted(set(options.severities)))
    if options.corrupt and pictures:
        grid = Generated(pictures, names, severities, options.seed)
    elif options.imagenet_c:
        grid = CorruptedFolders(options.imagenet_c, names, severities, options.allow_missing)
    if options.imagenet_a:
        natural = ImageNetSubset(options.imagenet_a, IMAGENET_A, options.allow_missing)
    if options.imagenet_o and options.imagenet_val:
        outliers = (
            ImageNetSubset(options.imagenet_o, IMAGENET_O, options.allow_missing),
            ImageNetSubset(options.imagenet_val, IMAGENET_O, options.allow_missing, others_too=True),
        )
    robustness = Robustness(grid, natural, outliers)
    if not options.ratios and not robustness:
        raise InputError("nothing to measure: give --ratios, --corrupt, --imagenet-c, --imagenet-a or --imagenet-o")
    return robustness


def _sheet(grid: "Generated", subject: "Subject") -> Any:
    """The first picture that can be read, clean and in every cell of the grid; None if there is no such picture."""
    from torch.nn.functional import interpolate

    from mjp.pictures.sheet import contact_sheet
    from mjp.pictures.tensors import to_tensor

    def shown(picture: Any) -> Any:
        pixels = to_tensor(picture).unsqueeze(0)
        return interpolate(pixels, scale_factor=max(1, 96 // pixels.shape[-1]))[0]  # so that one sees small pictures

    rows: dict[str, list[Any]] = {}
    for number in range(len(grid.clean)):
        try:
            clean = grid.clean.load(number)
        except (OSError, ValueError, SyntaxError):
            continue
        for cell in grid.cells():
            pictures = grid.pictures(subject, cell)
            rows.setdefault(cell[0], [shown(pictures.cut(clean))]).append(shown(pictures.load(number)))
        severities = [f"severity {severity}" for severity in grid.severities]
        return contact_sheet(rows, ["clean", *severities], title=f"{grid.clean.name(number)}, corrupted")
    return None


def _table(name: str, result: "Sweep") -> str:
    """What a person reads: mean and 95 % interval."""

    def percent(interval: Any) -> str:
        return f"{100 * interval.mean:5.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"

    lines = [f"\n{name}: top-1 {percent(result.top1)} %, top-5 {percent(result.top5)} % on {result.pictures} pictures"]
    if result.points:
        lines += [
            f"under the jigsaw, {result.draws} draws, seed {result.seed}, 95 % intervals over pictures:",
            f"{'γ':>5}  {'E_unk':<5}  {'top-1, %':<19}  {'consistency, %':<19}  {'Diff.Norm':>9}  {'relative':>8}",
        ]
    for p in result.points:
        shown = f"{p.ratio:5g}  {'yes' if p.unknown else 'no':<5}  {percent(p.top1):<19}  {percent(p.consistency):<19}"
        lines.append(f"{shown}  {p.diff_norm.mean:9.3f}  {p.diff_relative.mean:8.3f}")
    return "\n".join(lines) + "\n"
