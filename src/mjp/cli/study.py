"""What position embeddings have learned, and where the class token looks.

Least squares from embedding to position (1-D and 2-D, cross-validated), principal components, UMAP (if umap-learn is
installed), cosine similarities, spectrum, the DAL head's own readings, and attention maps of the last block.

Example: mjp study mini-cifar10-plain mini-cifar10-mjp --pictures dog.jpg
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

if TYPE_CHECKING:
    from torch import Tensor

    from mjp.models import Subject


@dataclass
class Options:
    models: tyro.conf.Positional[tuple[str, ...]]
    """Models to study: shipped names, folders, timm:NAME, or hub repositories."""
    pictures: tuple[Path, ...] = ()
    """Pictures for the attention maps; two embedded ones without any."""
    folds: int = 5
    """Folds of the cross-validation."""
    seed: int = 0
    """Seed of the folds and of UMAP."""
    out: Path = Path("out/study")
    """Folder for results.json, positions-*.png and attention.png."""


def run(options: Options) -> None:
    from mjp.common.errors import InputError
    from mjp.common.files import check_folder, write_atomically
    from mjp.evaluation.positions import position_table, principal_components, regress
    from mjp.evaluation.study_chart import draw_positions
    from mjp.models import find_model
    from mjp.report.runs import describe

    if not options.models:
        raise InputError("name at least one model: a shipped name, a folder, timm:NAME, or a hub repository OWNER/NAME")
    if options.folds < 2:
        raise InputError(f"--folds must be at least 2, not {options.folds}")
    subjects = [find_model(text) for text in options.models]
    tables = [position_table(subject.model) for subject in subjects]  # refuses before anything is written
    if few := [grid for table, grid in tables if len(table) < options.folds]:
        raise InputError(f"--folds {options.folds} is more than the {few[0][0] * few[0][1]} positions of a model")
    check_folder(options.out)
    maps, shown = _attention(subjects, options.pictures)
    options.out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    for subject, (table, grid) in zip(subjects, tables, strict=True):
        result = regress(table, grid, folds=options.folds, seed=options.seed)
        shares = principal_components(table)[1].tolist()
        umap = _umap(table, options.seed)
        figures[subject.name] = {**asdict(result), "grid": grid, "variance": shares, "umap": umap is not None}
        target = options.out / f"positions-{len(figures)}.png"
        draw_positions(subject.model, table, grid, umap, f"Position embeddings of {subject.name}", target)
        print(
            f"{subject.name}: position from embedding, {options.folds}-fold mean absolute error (± std between folds): "
            f"index {result.index_mae:.3f} ± {result.index_std:.3f}, row and column {result.place_mae:.3f} ± "
            f"{result.place_std:.3f} patches  →  {target}"
        )
    facts = {**describe("study", options), "attention": list(maps), "models": figures}
    write_atomically(options.out / "results.json", lambda path: path.write_text(json.dumps(facts, indent=2) + "\n"))
    if maps:
        from mjp.evaluation.study_chart import draw_attention

        draw_attention(maps, shown, options.out / "attention.png")
        print(f"attention  {options.out / 'attention.png'}")
    print(f"figures    {options.out / 'results.json'}")


def _attention(subjects: "list[Subject]", paths: tuple[Path, ...]) -> "tuple[dict[str, Tensor], Any]":
    """Attention maps of the models that have a class token, and the pictures as people see them."""
    import torch

    from mjp.evaluation.attention import class_attention
    from mjp.pictures.crop import open_square
    from mjp.pictures.sets import embedded
    from mjp.pictures.tensors import normalise, to_tensor

    size = max(max(subject.size) for subject in subjects)
    if paths:
        shown = torch.cat([open_square(path, size) for path in paths])
    else:
        source = embedded("val")
        first = [to_tensor(source.load(k)) for k in (0, 1)]
        shown = torch.nn.functional.interpolate(torch.stack(first), size=size, mode="bicubic").clamp(0, 1)
    maps = {}
    for subject in subjects:
        if getattr(subject.model.model, "cls_token", None) is None:
            continue
        images = torch.nn.functional.interpolate(shown, size=subject.size, mode="bicubic", antialias=True).clamp(0, 1)
        maps[subject.name] = class_attention(subject.model, normalise(images, subject.mean, subject.std))
    return maps, shown


def _umap(table: "Tensor", seed: int) -> "Tensor | None":
    """Two UMAP coordinates, if the package is there."""
    import torch

    try:
        from umap import UMAP
    except ImportError:
        return None
    points = UMAP(n_components=2, random_state=seed).fit_transform(table.numpy())
    return torch.from_numpy(points)
