"""What position embeddings have learned: the regressions and pictures of `mjp study`."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import plus_minus
from mjp.report.runs import Run, from_runs

TITLE = "What the position embeddings have learned"
KINDS: tuple[str, ...] = ("study",)


def gather(runs: Sequence[Run]) -> Any:
    return from_runs(runs, "study", _study) or None


def _study(run: Run) -> dict[str, Any]:
    first = next(iter(run.models.values()))
    rows, figures = [], []
    for number, (name, model) in enumerate(run.models.items(), start=1):
        height, width = model["grid"]
        rows.append(
            {
                "model": name,
                "grid": f"{height} × {width}",
                "index": plus_minus(model["index_mae"], model["index_std"]),
                "place": plus_minus(model["place_mae"], model["place_std"]),
                "index_guess": f"{_guess(height * width):.2f}",
                "place_guess": f"{(_guess(height) + _guess(width)) / 2:.2f}",
                "variance": f"{100 * sum(model['variance']):.0f}",
            }
        )
        umap = "UMAP" if model["umap"] else "the second and third component"
        figures.append({"model": name, "umap": umap, "picture": run.picture(f"positions-{number}.png")})
    return {"rows": rows, "figures": figures, "folds": first["folds"], "seed": first["seed"]}


def _guess(count: int) -> float:
    """Mean distance of 0..count-1 to their middle: the error of one who knows nothing."""
    return sum(abs(k - (count - 1) / 2) for k in range(count)) / count
