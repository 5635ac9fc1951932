"""The curves of a sweep as a picture."""

from pathlib import Path

from mjp.common.charts import COLOURS, pyplot
from mjp.common.files import write_atomically
from mjp.evaluation.sweep import Sweep

PANELS = (
    ("top1", "top-1 accuracy, %", 100),
    ("consistency", "consistency, %", 100),
    ("diff_relative", "feature shift", 1),
)


def draw_sweeps(sweeps: dict[str, Sweep], path: Path) -> None:
    """Accuracy, consistency and relative feature shift over the mask ratio, one colour per model, bands of 95 %."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(PANELS), figsize=(4.6 * len(PANELS), 4.2), layout="constrained")
    for axis, (name, label, scale) in zip(axes, PANELS, strict=True):
        for colour, (model, sweep) in zip(COLOURS * len(sweeps), sweeps.items(), strict=False):
            for unknown, style in ((True, "-"), (False, "--")):
                points = [p for p in sweep.points if p.unknown == unknown]
                if not points:
                    continue
                values = [getattr(p, name) for p in points]
                x = [p.ratio for p in points]
                kind = f"{model}, {'E_unk' if unknown else 'positions kept'}"
                axis.plot(x, [scale * v.mean for v in values], style, color=colour, marker=".", label=kind)
                low, high = [scale * v.low for v in values], [scale * v.high for v in values]
                axis.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
        axis.set(title=label, xlabel="mask ratio γ")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))
    plt.close(figure)
