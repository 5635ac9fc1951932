"""An audit as a picture: for each model the PSNR of the best attack on each defence, beside the data-free guess."""

from pathlib import Path
from typing import Any

from mjp.evaluation.chart import COLOURS, pyplot
from mjp.files import write_atomically

SETTINGS = {"a": "o", "b": "s", "c": "^"}
MEANING = {"a": "(a) picture", "b": "(b) shuffled picture", "c": "(c) picture behind the jigsaw"}


def draw_audit(rows: list[dict[str, Any]], path: Path) -> None:
    plt = pyplot()
    models = list(dict.fromkeys(row["model"] for row in rows))
    defences = list(dict.fromkeys(row["defence"] for row in rows))
    size = (1.5 + 4.6 * len(models), 1.8 + 0.36 * len(defences))
    figure, axes = plt.subplots(1, len(models), figsize=size, squeeze=False, sharey=True, layout="constrained")
    for axis, model, colour in zip(axes[0], models, COLOURS * len(models), strict=False):
        for row in (row for row in rows if row["model"] == model):
            y = defences.index(row["defence"])
            guess = row["attacks"]["guess"]["psnr"][0]
            axis.plot([guess, guess], [y - 0.3, y + 0.3], color="#888888", linewidth=2)
            if row["best"] is not None:
                mean, low, high = row["attacks"][row["best"]]["psnr"]
                bars = [[mean - low], [high - mean]]
                axis.errorbar(mean, y, xerr=bars, fmt=SETTINGS[row["setting"]], color=colour, markersize=6)
        axis.set(title=model, xlabel="PSNR of the best attack, dB", yticks=range(len(defences)), yticklabels=defences)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].invert_yaxis()
    used = [key for key in SETTINGS if any(row["setting"] == key for row in rows)]
    handles = [
        plt.Line2D([], [], color="#444444", marker=SETTINGS[key], linestyle="", label=MEANING[key]) for key in used
    ]
    handles.append(plt.Line2D([], [], color="#888888", linewidth=2, label="data-free guess"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))
    plt.close(figure)
