"""Accuracy, consistency and feature shift of one or several models under the jigsaw, with confidence intervals.

A model is a folder (of save_pretrained or of a training run), timm:NAME, or a hub repository OWNER/NAME.

Example: mjp eval out/quickstart-plain out/quickstart-paper --data embedded
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

if TYPE_CHECKING:
    from mjp.evaluation.sweep import Sweep


@dataclass
class Options:
    models: tyro.conf.Positional[tuple[str, ...]]
    """Models to compare."""
    data: str = "embedded"
    """embedded (1,000 CIFAR-10 pictures), or a folder of classes, or one with such a folder val."""
    ratios: tuple[float, ...] = (0.03, 0.09, 0.15, 0.21, 0.27, 0.5, 0.9, 1.0)
    """Mask ratios γ to try."""
    draws: int = 2
    """Jigsaws per picture and ratio."""
    seed: int = 0
    """Seed of the jigsaws and of the bootstrap."""
    batch_size: int = 128
    """Pictures per forward pass."""
    limit: int | None = None
    """Look at this many pictures only, spread over the data."""
    max_unreadable: int = 0
    """How many unreadable pictures to put up with; each is named and counts as a wrong answer."""
    workers: int = 1
    """Data loading processes."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    out: Path = Path("out/eval")
    """Folder for results.json and sweep.png."""


def run(options: Options) -> None:
    from mjp.errors import InputError
    from mjp.evaluation.chart import draw_sweeps
    from mjp.evaluation.models import find_model
    from mjp.evaluation.pictures import batches, find_pictures
    from mjp.evaluation.sweep import sweep
    from mjp.files import write_atomically
    from mjp.report.runs import describe
    from mjp.training.distributed import World, pick_device
    from mjp.training.evaluate import Unreadable

    if not options.models:
        raise InputError("name at least one model: a folder, timm:NAME, or a hub repository OWNER/NAME")
    if options.draws < 1 or options.batch_size < 1:
        raise InputError("--draws and --batch-size must be at least 1")
    if bad := [ratio for ratio in options.ratios if not 0 <= ratio <= 1]:
        raise InputError(f"--ratios must lie between 0 and 1, not {bad[0]}")
    device, pictures = pick_device(options.device), find_pictures(options.data)
    subjects = [find_model(text) for text in options.models]
    for subject in subjects:  # before the first picture is looked at
        subject.check_classes(pictures.classes)
    results: dict[str, Sweep] = {}
    for subject in subjects:
        unreadable = Unreadable(options.max_unreadable, World(0, 1, device))
        stream = batches(
            subject,
            pictures,
            size=options.batch_size,
            limit=options.limit,
            workers=options.workers,
            unreadable=unreadable,
        )
        settings: dict[str, Any] = {"draws": options.draws, "seed": options.seed, "device": device}
        results[subject.name] = sweep(subject.model, stream, options.ratios, **settings)
        print(_table(subject.name, results[subject.name]))
    options.out.mkdir(parents=True, exist_ok=True)
    figures = {name: result.to_dict() for name, result in results.items()}
    facts = {**describe("eval", options), "data": options.data, "models": figures}
    write_atomically(options.out / "results.json", lambda path: path.write_text(json.dumps(facts, indent=2) + "\n"))
    draw_sweeps(results, options.out / "sweep.png")
    print(f"figures  {options.out / 'results.json'}\ncurves   {options.out / 'sweep.png'}")


def _table(name: str, result: "Sweep") -> str:
    """What a person reads: mean and 95 % interval."""

    def percent(interval: Any) -> str:
        return f"{100 * interval.mean:5.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"

    lines = [
        f"\n{name}: top-1 {percent(result.top1)} %, top-5 {percent(result.top5)} % on {result.pictures} pictures",
        f"under the jigsaw, {result.draws} draws, seed {result.seed}, 95 % intervals over pictures:",
        f"{'γ':>5}  {'E_unk':<5}  {'top-1, %':<19}  {'consistency, %':<19}  {'Diff.Norm':>9}  {'relative':>8}",
    ]
    for p in result.points:
        shown = f"{p.ratio:5g}  {'yes' if p.unknown else 'no':<5}  {percent(p.top1):<19}  {percent(p.consistency):<19}"
        lines.append(f"{shown}  {p.diff_norm.mean:9.3f}  {p.diff_relative.mean:8.3f}")
    return "\n".join(lines) + "\n"
