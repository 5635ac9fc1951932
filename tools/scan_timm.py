"""Say of every image classifier in timm what MJP does with it, and write the table docs/models.md:

    python tools/scan_timm.py docs/models.md

Models are built on the meta device, without numbers in their weights: a few minutes for all of them.
"""

import re
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import mjp  # before timm: it makes torchvision importable

# isort: split
import timm
import torch
from torch import nn

from mjp.method.adapter import JIGSAW_ONLY
from mjp.method.backbones import adapter_for, fit_config, obstacles_of

HIDDEN, JIGSAW, REFUSED = "hidden", "jigsaw only", "refused"
MEANINGS = {
    HIDDEN: "positions of masked patches are hidden, and the gradient of a step does not depend on their order",
    JIGSAW: "a preset shuffles and hides nothing; a warning says why",
    REFUSED: 'a preset is refused with this reason; `mjp.variant("E")` gives the jigsaw alone',
}
LAST_NAME = re.compile(r"\((?:\w+\.)+(\w+)\)")  # of a part: in which block it is differs between models of a class
FILLS = ("uniform_", "normal_", "erfinv_", "clamp_", "fill_", "zero_", "copy_", "mul_", "add_", "div_")


class Verdict(NamedTuple):
    """What the preset `paper-privacy` does with a model."""

    kind: str  # the model's class
    outcome: str
    reason: str


def build(name: str) -> nn.Module:
    """A timm model whose weights have shapes and no numbers; filling them would take most of the time."""
    unfilled: dict[str, Any] = dict.fromkeys(FILLS, lambda tensor, *_arguments, **_options: tensor)
    with torch.device("meta"), patch.multiple(torch.Tensor, **unfilled):
        return timm.create_model(name)


def judge(model: nn.Module) -> Verdict:
    """The verdict on a model, from the code that decides when it is wrapped."""
    kind = type(model).__name__
    if obstacles := obstacles_of(model, mjp.variant("E")):
        return Verdict(kind, REFUSED, f"also for the jigsaw alone: {obstacles[0].reason}")
    private = mjp.preset("paper-privacy")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = fit_config(private, model)
    lost = "; ".join(str(warning.message).removeprefix(f"{kind}: ") for warning in caught)
    if obstacles := obstacles_of(model, config):
        reason = obstacles[0].reason.removesuffix(f"; {JIGSAW_ONLY}").removesuffix(f": {JIGSAW_ONLY}")
        return Verdict(kind, REFUSED, LAST_NAME.sub(r"(\1)", reason.split(": ")[0]))
    if config.position == "unknown" and adapter_for(model, config).exchangeable:
        return Verdict(kind, HIDDEN, lost)
    return Verdict(kind, JIGSAW, lost)


def table(verdicts: dict[str, Verdict]) -> str:
    """The page: one row per class of models, outcome and reason, with how many models and the first of them."""
    rows = defaultdict(list)
    for name, verdict in verdicts.items():
        rows[verdict].append(name)
    lines = [
        "# Models",
        "",
        f"What preset `paper-privacy` does with each of the {len(verdicts):,} image classifiers of "
        f"timm {timm.__version__}.",
        "This page is written by `tools/scan_timm.py`.",
    ]
    for outcome, meaning in MEANINGS.items():
        section = sorted((verdict for verdict in rows if verdict.outcome == outcome), key=lambda verdict: verdict.kind)
        count = sum(len(rows[verdict]) for verdict in section)
        lines += ["", f"## {outcome.capitalize()}: {count:,}", "", f"{meaning[0].upper()}{meaning[1:]}.", ""]
        lines += ["| class | models | for example | remarks |", "|---|---|---|---|"]
        lines += [f"| {v.kind} | {len(rows[v])} | `{rows[v][0]}` | {v.reason} |" for v in section]
    return "\n".join([*lines, ""])


def main(path: Path) -> None:
    """Judge all models, with their number on the screen now and then, and write the table."""
    verdicts = {}
    names = timm.list_models()
    for number, name in enumerate(names):
        verdicts[name] = judge(build(name))
        if number % 100 == 0:
            print(f"{number} of {len(names)}", flush=True)
    path.write_text(table(verdicts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
