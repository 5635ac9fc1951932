"""The figures of `mjp reproduce`: γ in inference, convergence, and what position embeddings look like."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mjp.common.charts import COLOURS, pyplot, save_chart, tidy
from mjp.reproduce.collect import Cells, values_of
from mjp.reproduce.scale import Scale


def draw_figures(scale: Scale, cells: Cells, folder: Path) -> None:
    """Every figure for which there are cells."""
    runs = {name: seeds for name, seeds in cells.items() if seeds}
    curves = {name: runs[name] for name in scale.curves if name in runs}
    _draw_inference(scale, curves, folder / "inference.png")
    _draw_convergence(scale, curves, folder / "convergence.png")
    if columns := _first_seeds(runs, "pca"):
        _draw_positions(columns, folder / "positions.png")
    if columns := _first_seeds(runs, "attention"):
        _draw_attention(columns, folder / "attention.png")


def _draw_inference(scale: Scale, runs: Cells, path: Path) -> None:
    """Accuracy and consistency over γ in inference, bands of one standard deviation over seeds."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    ratios = sorted({*scale.ratios, *scale.sweep})
    for axis, name, label in zip(axes, ("top1", "consistency"), ("top-1, %", "consistency, %"), strict=True):
        for line, (run, seeds) in zip(_lines(runs), runs.items(), strict=True):
            rows = [[100 * _mean(cell, f"{name}@{ratio:g}") for ratio in ratios] for cell in seeds.values()]
            start = [[100 * _mean(cell, "top1") if name == "top1" else 100.0] for cell in seeds.values()]
            _band(axis, [0.0, *ratios], np.hstack([start, rows]), line, _label(scale, run))
        axis.set(title=label, xlabel="γ in inference")
    _finish(figure, axes, path)


def _draw_convergence(scale: Scale, runs: Cells, path: Path) -> None:
    """Validation accuracy after every epoch."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(9.5, 5.2), layout="constrained")
    for line, (run, seeds) in zip(_lines(runs), runs.items(), strict=True):
        curves = [cell["figures"]["curve"] for cell in seeds.values()]
        epochs = [epoch for epoch, _ in curves[0]]
        rows = np.array([[top1 for _, top1 in curve] for curve in curves])
        _band(axis, epochs, rows, line, _label(scale, run))
    axis.set(title="validation top-1, %", xlabel="epoch")
    axis.locator_params(axis="x", integer=True)
    _finish(figure, [axis], path)


def _first_seeds(runs: Cells, name: str) -> dict[str, dict[str, Any]]:
    """The figures of the first seed of every run that has the named one."""
    first = {run: next(iter(seeds.values()))["figures"] for run, seeds in runs.items()}
    return {run: figures for run, figures in first.items() if figures.get(name) is not None}


def _draw_attention(columns: dict[str, dict[str, Any]], path: Path) -> None:
    """Where the class token looks, one column per run, one row per picture."""
    plt = pyplot()
    pictures = len(next(iter(columns.values()))["attention"])
    size = (2.6 * len(columns), 2.7 * pictures)
    figure, axes = plt.subplots(pictures, len(columns), figsize=size, layout="constrained", squeeze=False)
    for column, (run, figures) in zip(axes.T, columns.items(), strict=True):
        column[0].set(title=run)
        for axis, attention in zip(column, figures["attention"], strict=True):
            axis.imshow(attention, cmap="viridis")
            axis.set(xticks=[], yticks=[])
    save_chart(figure, path)


def _draw_positions(columns: dict[str, dict[str, Any]], path: Path) -> None:
    """Position embeddings of the first seed in the plane, one column per run, coloured by row and column."""
    plt = pyplot()
    figure, axes = plt.subplots(2, len(columns), figsize=(2.0 * len(columns), 4.3), layout="constrained", squeeze=False)
    for row, (name, title) in zip(axes, {"pca": "principal components", "umap": "UMAP"}.items(), strict=True):
        row[0].set_ylabel(title)
        for axis, (run, figures) in zip(row, columns.items(), strict=True):
            axis.set(xticks=[], yticks=[])
            if name == "pca":
                axis.set(title=run)
            if figures.get(name) is None:
                axis.text(0.5, 0.5, "not computed:\npip install mjp[umap]", ha="center", transform=axis.transAxes)
            else:
                _scatter(axis, np.array(figures[name]))
    save_chart(figure, path)


def _scatter(axis: Any, points: NDArray[np.float64]) -> None:
    """(N, 2) points of a square grid; red grows with the row, blue with the column."""
    side = round(len(points) ** 0.5)
    index = np.arange(len(points))
    colours = np.stack([index // side / side, np.full(len(points), 0.4), index % side / side], 1)
    axis.scatter(points[:, 0], points[:, 1], c=colours, s=14)


def _band(axis: Any, x: list[float], rows: NDArray[np.float64], line: dict[str, str], label: str) -> None:
    mean, spread = rows.mean(0), rows.std(0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
    axis.plot(x, mean, marker=".", label=label, **line)
    axis.fill_between(x, mean - spread, mean + spread, color=line["color"], alpha=0.15, linewidth=0)


def _finish(figure: Any, axes: Any, path: Path) -> None:
    tidy(*axes)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    save_chart(figure, path)


def _label(scale: Scale, run: str) -> str:
    return f"{run}: {scale.runs[run].title}"


def _lines(runs: Cells) -> list[dict[str, str]]:
    """A line for every run: when the colours are used up, they come again dashed."""
    styles = [{"color": colour, "linestyle": style} for style in ("-", "--", ":") for colour in COLOURS]
    return [styles[k % len(styles)] for k in range(len(runs))]


def _mean(cell: dict[str, Any], quantity: str) -> float:
    values = values_of(cell, quantity)
    return float("nan") if values is None else float(values.mean())
