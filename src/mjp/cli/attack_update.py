"""What updates from elsewhere (Flower, PySyft, a script) give away, checked against the updates themselves.

FILE is a safetensors, .pt, .pth or .npz file of {parameter name: gradient}, of weights after local steps (--kind
fedavg) or of their change (--kind delta, of either sign and any scale); names may be missing where the arrays are in
the order of the model's state dict.
What is public about it stands in a json file beside it or in the options below. --weights are those at which the update
was made: without them a picture may be recovered, but not verified.

With several files, or a folder such as a leak log, updates of one picture are linked by what they span and attacked
together (the attack rounds is added), whoever sent them; those of other pictures stay apart. An update in a folder
that cannot be read is named and left out.

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
    files: tyro.conf.Positional[tuple[Path, ...]]
    """The update, several of them, or folders of updates."""
    weights: tuple[Path, ...] = ()
    """The model's weights when the updates were made, one file for all or one for each: safetensors, .pt, .pth or .npz,
    of a timm or an MJP model; default: weights.safetensors beside the update, if it is there."""
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
    from mjp.privacy.examine.present import save_findings
    from mjp.privacy.examine.present_updates import VerdictPrinter, groups_to_json, update_sheet
    from mjp.privacy.examine.several import attack_group, conclude_all, link, open_sources
    from mjp.privacy.examine.sources import find_sources

    check_options(options, options.weights, options.out)
    sources = find_sources(options.files, options.weights)
    several = len(sources) > 1 and "rounds" not in options.attacks
    attacks = find_attacks((*options.attacks, "rounds") if several else options.attacks)
    stated = {name: getattr(options, name) for name in INFO}
    random = {"pretrained": options.pretrained, "seed": options.seed}
    targets, left_out = open_sources(sources, options.model, stated, prior=options.prior, **random)
    for name, reason in left_out.items():
        print(f"{name} is left out: {reason}")
    groups = []
    for group in link(targets):
        groups.append((group, attack_group(group, attacks, watch=VerdictPrinter(group, len(targets)))))
        print(f"verdict: {groups[-1][1].conclusion.sentence}")
    conclusion = conclude_all([findings.conclusion for _, findings in groups])
    if len(groups) > 1:
        print(f"\nall updates: {conclusion.sentence}")
    sources = [source for source in sources if source.name in targets]
    body = {
        "models": {options.model: {}},
        "left_out": left_out,
        **groups_to_json(groups, sources),
        **conclusion.to_dict(),
    }
    findings = [finding for _, findings in groups for finding in findings]
    return save_findings(options.out, "attack-update", options, findings, update_sheet(groups, attacks), **body)
