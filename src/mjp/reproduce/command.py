"""`mjp reproduce`: from a scale to cells, tables, figures and verdicts."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mjp.common.device import pick_device
from mjp.common.errors import InputError
from mjp.common.files import check_folder, write_atomically
from mjp.common.progress import duration
from mjp.common.results import Results, make_results, write_results
from mjp.reproduce.cell import Place, compute_alone, path_of, training_values
from mjp.reproduce.cell_file import Cells, read_cells
from mjp.reproduce.collect import summarise
from mjp.reproduce.config import ReproduceConfig
from mjp.reproduce.document import document
from mjp.reproduce.figures import draw_figures
from mjp.reproduce.findings import add_findings
from mjp.reproduce.scale import Cell, Scale
from mjp.reproduce.scale_file import load_scale
from mjp.reproduce.scenes import check_scenes
from mjp.reproduce.schedule import parse_shard, run_all, turns
from mjp.reproduce.sources import check_sources, sources
from mjp.training.arguments import config_from
from mjp.training.data import load_data


def reproduce(options: ReproduceConfig) -> Results:
    """Compute what is missing, then collect; after --dry-run only the plan."""
    options.check()
    scale = load_scale(options.scale)
    folder = options.out or Path("out/reproduce") / scale.name
    cells = parse_shard(options.shard).take(scale.cells(options.seeds or scale.seeds, options.only))
    missing = [cell for cell in cells if not path_of(folder, cell).exists()]
    device = pick_device(options.device).type
    jobs = options.jobs or (torch.cuda.device_count() if device == "cuda" else os.cpu_count()) or 1
    if options.dry_run:
        _print_plan(scale, cells, missing, jobs)
        plan = {"cells": [cell.name for cell in cells], "missing": [cell.name for cell in missing]}
        return make_results("reproduce", options, {**plan, "minutes": scale.minutes * turns(len(missing), jobs)})
    check_folder(folder)
    finished = read_cells(folder, scale)  # refuses cells of other settings before anything is computed
    if missing and not options.collect:
        place = _place(options, scale, folder, missing, device)
        check_sources(folder, _flat(finished), sources(place.data, place.checkpoint))
        tasks = {cell.name: partial(compute_alone, place, cell.run.name, cell.seed) for cell in missing}
        try:
            run_all(tasks, jobs=jobs, minutes=scale.minutes, say=partial(print, flush=True))
        except InputError:
            if any(read_cells(folder, scale).values()):  # what did work is not lost
                collect(scale, folder, vars(options))
            raise
    return collect(scale, folder, vars(options))


def collect(scale: Scale, folder: Path, settings: dict[str, Any]) -> Results:
    """Tables, figures and verdicts from the cells in a folder."""
    cells = read_cells(folder, scale)
    if not any(cells.values()):
        raise InputError(f"there are no cells in {folder}: run mjp reproduce {scale.name} without --collect first")
    check_sources(folder, _flat(cells))
    body = add_findings(summarise(scale, cells), folder)
    draw_figures(scale, cells, folder)
    results = write_results(folder, "reproduce", settings, body)
    text = document(results.body)
    write_atomically(folder / "results.md", lambda path: path.write_text(text, encoding="utf-8"))
    for verdict in results.body["claims"]:
        print(f"{verdict['verdict']:<14} {verdict['text']}")
    print(f"\ntables   {folder / 'results.md'}\nfigures  {folder / 'results.json'}")
    return results


def _flat(cells: Cells) -> list[dict[str, Any]]:
    return [cell for by_seed in cells.values() for cell in by_seed.values()]


def _place(options: ReproduceConfig, scale: Scale, folder: Path, missing: list[Cell], device: str) -> Place:
    """Where cells find everything; what is not there is refused before the first of them trains."""
    if options.data is None:
        raise InputError(f"{scale.title} needs --data DIR with train/CLASS/* and val/CLASS/*")
    if scale.needs_checkpoint and (options.checkpoint is None or not options.checkpoint.exists()):
        raise InputError(f"{scale.title} needs --checkpoint FILE, the pretrained weights in timm's names")
    if any("segment" in cell.run.measure for cell in missing):
        if options.scenes is None:
            raise InputError(f"{scale.title} also segments: name a folder with --scenes DIR, or choose other tables")
        check_scenes(options.scenes)
    place = Place(options.scale, folder, options.data, options.checkpoint, options.scenes, device)
    load_data(config_from(training_values(place, missing[0], torch.device(device))))
    return place


def _print_plan(scale: Scale, cells: list[Cell], missing: list[Cell], jobs: int) -> None:
    print(f"{scale.title}\n")
    for cell in cells:
        state = "to compute" if cell in missing else "done"
        print(f"  {cell.name:<16} {state:<11} {cell.run.title}")
    hours = duration(60 * scale.minutes * turns(len(missing), jobs))
    print(f"\n{len(missing)} of {len(cells)} cells to compute, {jobs} at a time: about {hours}")
    if scale.gpu is not None:
        print(f"in all about {scale.minutes * len(missing) / 60:,.0f} hours of one GPU ({scale.gpu}), a cell on each")
