"""Run logging: metrics.jsonl, TensorBoard, training curve."""

import json
import math
import os
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError
from mjp.common.files import write_atomically


class Log:
    """metrics.jsonl, one JSON object per line; `kind` is "step", "epoch", or "settings" after a change."""

    def __init__(self, folder: Path, *, tensorboard: bool) -> None:
        self.path = folder / "metrics.jsonl"
        self.board = _board(folder) if tensorboard else None

    def write(self, kind: str, step: int, **values: Any) -> None:
        # JSON knows no infinity: an fp16 run may have a step with an infinite gradient
        values = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in values.items()}
        with open(self.path, "a") as file:
            file.write(json.dumps({"kind": kind, "step": step, **values}, allow_nan=False) + "\n")
        if self.board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(f"{kind}/{name}", value, step)

    def rewind(self, step: int) -> None:
        """Forget what was logged after the checkpoint that a run continues from: it will be computed again."""
        lines = (
            [line for line in self.path.read_text().splitlines() if _step_of(line) <= step]
            if self.path.exists()
            else []
        )
        write_atomically(self.path, lambda path: path.write_text("".join(line + "\n" for line in lines)))

    def read(self, kind: str) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        entries = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [entry for entry in entries if entry["kind"] == kind]


def draw_curve(log: Log, path: Path, title: str, measure: str = "val_top1", label: str = "accuracy, %") -> None:
    """Loss and accuracy, or another measure, over the epochs, as a PNG."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    epochs = log.read("epoch")
    measured = [entry for entry in epochs if entry.get(measure) is not None]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    left.plot([e["epoch"] for e in epochs], [e["train_loss"] for e in epochs], label="training", color="#c44e00")
    if measured:
        valued = [e for e in measured if "val_loss" in e]
        left.plot([e["epoch"] for e in valued], [e["val_loss"] for e in valued], label="validation", color="#1f5fa8")
        right.plot([e["epoch"] for e in measured], [e[measure] for e in measured], color="#1f5fa8", marker=".")
        right.set_title(f"validation, last {measured[-1][measure]:.2f}")
    left.set(title="loss", xlabel="epoch")
    left.legend(frameon=False)
    right.set(xlabel="epoch", ylabel=label)
    for axis in (left, right):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))
    plt.close(figure)


def _step_of(line: str) -> float:
    try:
        return json.loads(line)["step"]
    except (json.JSONDecodeError, KeyError):
        return float("inf")  # a line cut off by a kill


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("--tensorboard needs the package tensorboard: pip install 'mjp[tensorboard]'") from error
    return SummaryWriter(str(folder / "tensorboard"))
