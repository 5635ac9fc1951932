"""Charts: latency over gallery size, and recall over the mask ratio."""

from pathlib import Path
from typing import Any

from mjp.common.charts import COLOURS, pyplot, save_chart, tidy

LINES = {  # parts of the latency that are added up: label, colour, style
    ("exhaustive",): ("exhaustive alignment, tokens on disk", COLOURS[1], "-"),
    ("exhaustive_in_memory",): ("exhaustive alignment, tokens in memory", COLOURS[1], "--"),
    ("search", "rerank"): ("two stages: vectors, then alignment of the best {rerank}", COLOURS[2], "-"),
    ("search",): ("search by vector", COLOURS[0], "-"),
    ("encode",): ("encoding the query, once before any of these", COLOURS[5], ":"),
}


def draw_latency(latency: dict[str, Any], model: str, path: Path) -> None:
    """Median milliseconds over the number of pictures, both logarithmic; `latency` as in results.json."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for names, (label, colour, style) in LINES.items():
        sizes = [size for size in latency["sizes"] if all(name in size["milliseconds"] for name in names)]
        medians = [sum(size["milliseconds"][name]["p50"] for name in names) for size in sizes]
        pictures = [size["pictures"] for size in sizes]
        label = label.format(rerank=latency["rerank"])
        axis.plot(pictures, medians, style, color=colour, marker="o", label=label)
    axis.set(xscale="log", yscale="log", xlabel="pictures in the index", ylabel="milliseconds per query, median")
    threads = latency["threads"]
    axis.set_title(f"{model}, {threads} thread{'s' if threads > 1 else ''}", fontsize="medium")
    _finish(figure, axis, path, columns=1)


def draw_masking(curves: dict[str, dict[str, Any]], path: Path) -> None:
    """rsum over γ, one panel per scorer, bands of 95 %; faint where the gate is closed."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
    for axis, scorer in zip(axes, ("alignment", "vector"), strict=True):
        for colour, (model, curve) in zip(COLOURS * len(curves), curves.items(), strict=False):
            _draw_curve(axis, curve, scorer, model, colour)
        axis.set(title=scorer, xlabel="mask ratio γ")
    axes[0].set_ylabel("rsum")
    _finish(figure, axes, path, columns=2)


def _draw_curve(axis: Any, curve: dict[str, Any], scorer: str, model: str, colour: str) -> None:
    alpha = 1.0 if curve["gate"][scorer]["open"] else 0.3
    for unknown, style, kind in ((True, "-", "E_unk"), (False, "--", "positions kept")):
        points = [point for point in curve["points"] if point["unknown"] == unknown]
        if points:
            ratios = [0.0, *(point["ratio"] for point in points)]
            rsums = [curve["clean"][scorer]["rsum"], *(point[scorer]["rsum"] for point in points)]
            mean, low, high = ([rsum[key] for rsum in rsums] for key in ("mean", "low", "high"))
            axis.plot(ratios, mean, style, color=colour, alpha=alpha, marker=".", label=f"{model}, {kind}")
            axis.fill_between(ratios, low, high, color=colour, alpha=0.12 * alpha, linewidth=0)


def _finish(figure: Any, axes: Any, path: Path, *, columns: int) -> None:
    every = list(axes) if hasattr(axes, "__len__") else [axes]
    tidy(*every)
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    save_chart(figure, path)
