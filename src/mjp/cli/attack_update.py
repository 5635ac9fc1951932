"""What an update from elsewhere (Flower, PySyft, a script) gives away, checked against the update itself.

FILE is a safetensors, .pt, .pth or .npz file of {parameter name: gradient}, of weights after local steps (--kind
fedavg) or of their change (--kind delta, of either sign and any scale); names may be missing where the arrays are in
the order of the model's state dict.
What is public about it stands in a json file beside it or in the options below. --weights are those at which the update
was made: without them a picture may be recovered, but not verified.

The verdict is one of three: exposed; not recovered by any attack that ran; not covered. None of them clears an update.

Example: mjp attack-update update.safetensors --model timm:vit_small_patch16_224 --weights weights.safetensors
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from mjp.cli.attack_options import AttackOptions, check_options, describe

if TYPE_CHECKING:
    from mjp.common.results import Results

INFO = (
    *("batch", "kind", "steps", "lr", "optimizer", "momentum", "weight_decay", "eps"),
    *("mean", "std", "size", "defence"),
)  # options that update.json may state instead


@dataclass(kw_only=True)
class Options(AttackOptions):
    file: tyro.conf.Positional[Path]
    """The update."""
    batch: int | None = None
    """Pictures in a step."""
    kind: Literal["gradient", "fedavg", "delta"] | None = None
    """Gradients, the weights after local steps, or their change."""
    steps: int | None = None
    """Local steps."""
    lr: float | None = None
    """Their learning rate."""
    optimizer: Literal["sgd", "momentum", "adam", "adamw", "unknown"] | None = None
    """Their optimizer, which starts from zero; default: sgd."""
    momentum: float | None = None
    """Momentum of --optimizer momentum; default: 0.9."""
    weight_decay: float | None = None
    """Weight decay of the local steps; default: 0."""
    eps: float | None = None
    """Epsilon of --optimizer adam and adamw; default: 1e-8."""
    mean: tuple[float, float, float] | None = None
    """What the client subtracts from pixels in [0, 1]; default: the model's own."""
    std: tuple[float, float, float] | None = None
    """What the client then divides them by."""
    size: tuple[int, int] | None = None
    """Height and width of the client's pictures."""
    defence: str | None = None
    """What the client did before its update left; the defences are listed above."""
    out: Path = Path("out/attack-update")
    """Folder for attack.png and results.json."""


def description() -> str:
    return describe(__doc__)


def run(options: Options) -> "Results":
    from mjp.privacy.attacks import find_attacks
    from mjp.privacy.examine import present
    from mjp.privacy.examine.update import attack_update, open_update
    from mjp.privacy.info import stated_info

    check_options(options, options.out)
    attacks = find_attacks(options.attacks)
    info = stated_info(options.file, **{name: getattr(options, name) for name in INFO})
    target = open_update(
        options.weights,
        options.file,
        info,
        options.model,
        prior=options.prior,
        pretrained=options.pretrained,
        seed=options.seed,
    )
    present.print_update(target.update, target.subject)
    findings = attack_update(target, attacks, watch=present.print_verdict)
    print(f"verdict: {findings.conclusion.sentence}")
    sheet = present.update_sheet(findings, options.file)
    body = {"models": {options.model: {}}, "facts": vars(target.update.info), **findings.conclusion.to_dict()}
    return present.save_findings(options.out, "attack-update", options, findings, sheet, **body)
