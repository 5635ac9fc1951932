"""Run logging: metrics.jsonl, TensorBoard, training curve."""

import json
import math
from pathlib import Path
from typing import Any

from mjp.common.charts import COLOURS, pyplot, tidy
from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.read import read_jsonl


class Log:
    """metrics.jsonl, one JSON object per line; `kind` is "step", "epoch", or "settings" after a change."""

    def __init__(self, folder: Path, *, tensorboard: bool) -> None:
        self.path = folder / "metrics.jsonl"
        self.board = _board(folder) if tensorboard else None

    def write(self, kind: str, step: int, **values: Any) -> None:
        # JSON knows no infinity: an fp16 run may have a step with an infinite gradient
        values = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in values.items()}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **values}, allow_nan=False) + "\n")
        if self.board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(f"{kind}/{name}", value, step)

    def rewind(self, step: int) -> None:
        """Forget what was logged after the checkpoint that a run continues from: it will be computed again."""
        entries = [entry for entry in self._entries() if entry["step"] <= step]
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        write_atomically(self.path, lambda path: path.write_text(text, encoding="utf-8"))

    def read(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self._entries() if entry.get("kind") == kind]

    def _entries(self) -> list[dict[str, Any]]:
        """All entries; lines that a kill tore are left out."""
        entries = read_jsonl(self.path, skip_damaged=True) if self.path.exists() else []
        return [entry for entry in entries if isinstance(entry.get("step"), int)]


def draw_curve(log: Log, path: Path, title: str, measure: str = "val_top1", label: str = "accuracy, %") -> None:
    """Loss and accuracy, or another measure, over the epochs, as a PNG."""
    plt = pyplot()
    epochs = log.read("epoch")
    measured = [entry for entry in epochs if isinstance(entry.get(measure), int | float)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    left.plot(_numbers(epochs, "epoch"), _numbers(epochs, "train_loss"), label="training", color=COLOURS[1])
    if measured:
        valued = [e for e in measured if "val_loss" in e]
        if valued:
            left.plot(_numbers(valued, "epoch"), _numbers(valued, "val_loss"), label="validation", color=COLOURS[0])
        right.plot(_numbers(measured, "epoch"), _numbers(measured, measure), color=COLOURS[0], marker=".")
        right.set_title(f"validation, last {measured[-1][measure]:.2f}")
    left.set(title="loss", xlabel="epoch")
    left.legend(frameon=False)
    right.set(xlabel="epoch", ylabel=label)
    for axis in (left, right):
        tidy(axis)
        axis.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))
    plt.close(figure)


def _numbers(entries: list[dict[str, Any]], name: str) -> list[float]:
    """A column of the log; NaN, which is not drawn, where an entry has no number."""
    values = [entry.get(name) for entry in entries]
    return [value if isinstance(value, int | float) else math.nan for value in values]


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("--tensorboard needs the package tensorboard: pip install 'mjp[tensorboard]'") from error
    return SummaryWriter(str(folder / "tensorboard"))
