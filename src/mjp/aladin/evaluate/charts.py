"""How long a search takes as the gallery grows, and what hidden positions cost, as pictures."""

from pathlib import Path
from typing import Any

from mjp.common.charts import COLOURS, pyplot
from mjp.common.files import write_atomically

LINES = {  # parts of results.json that are added up, label, colour, style
    ("exhaustive",): ("exhaustive alignment, tokens on disk", "#c44e00", "-"),
    ("exhaustive_in_memory",): ("exhaustive alignment, tokens in memory", "#c44e00", "--"),
    ("search", "rerank"): ("two stages: vectors, then alignment of the best {rerank}", "#3b7d3b", "-"),
    ("search",): ("search by vector", "#1f5fa8", "-"),
    ("encode",): ("encoding the query, once before any of these", "#777777", ":"),
}


def draw_latency(facts: dict[str, Any], model: str, path: Path) -> None:
    """Median milliseconds over the number of pictures, both logarithmic; `facts` as in results.json."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for names, (label, colour, style) in LINES.items():
        sizes = [each for each in facts["sizes"] if all(name in each["milliseconds"] for name in names)]
        middle = [sum(each["milliseconds"][name]["p50"] for name in names) for each in sizes]
        shown = label.format(rerank=facts["rerank"])
        axis.plot([each["pictures"] for each in sizes], middle, style, color=colour, marker="o", label=shown)
    axis.set(xscale="log", yscale="log", xlabel="pictures in the index", ylabel="milliseconds per query, median")
    threads = facts["threads"]
    axis.set_title(f"{model}, {threads} thread{'s' if threads > 1 else ''}", fontsize="medium")
    _finish(figure, axis, path, columns=1)


def draw_masking(curves: dict[str, dict[str, Any]], path: Path) -> None:
    """rsum over γ, one panel per scorer, bands of 95 %; faint where the curve means nothing."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
    for axis, scorer in zip(axes, ("alignment", "vector"), strict=True):
        for colour, (model, curve) in zip(COLOURS * len(curves), curves.items(), strict=False):
            strength = 1.0 if curve["gate"][scorer]["open"] else 0.3
            for unknown, style in ((True, "-"), (False, "--")):
                points = [point for point in curve["points"] if point["unknown"] == unknown]
                if points:
                    found = [curve["clean"][scorer]["rsum"], *(point[scorer]["rsum"] for point in points)]
                    x, kind = [0.0, *(p["ratio"] for p in points)], "E_unk" if unknown else "positions kept"
                    middle, low, high = ([each[key] for each in found] for key in ("mean", "low", "high"))
                    line = {"color": colour, "alpha": strength, "marker": ".", "label": f"{model}, {kind}"}
                    axis.plot(x, middle, style, **line)
                    axis.fill_between(x, low, high, color=colour, alpha=0.12 * strength, linewidth=0)
        axis.set(title=scorer, xlabel="mask ratio γ")
    axes[0].set_ylabel("rsum")
    _finish(figure, axes, path, columns=2)


def _finish(figure: Any, axes: Any, path: Path, *, columns: int) -> None:
    every = list(axes) if hasattr(axes, "__len__") else [axes]
    for axis in every:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))
    pyplot().close(figure)
