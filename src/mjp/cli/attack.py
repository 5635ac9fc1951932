"""What a shared gradient gives away: the picture beside what the server can see, for each attack and defence.

A client makes an update from your picture under a defence; every attack gets that update and the public model, nothing
else. To audit an update that another program made, use mjp attack-update.

Example: mjp attack --model timm:deit_small_patch16_224 photo.jpg
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from mjp.cli.attack_options import AttackOptions, check_options, describe

if TYPE_CHECKING:
    from torch import Tensor

    from mjp.common.results import Results
    from mjp.models import Subject


@dataclass(kw_only=True)
class Options(AttackOptions):
    pictures: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Pictures of the client; default: a synthetic landscape."""
    weights: Path | None = None
    """The model's weights: safetensors, .pt or .pth, of a timm or an MJP model."""
    defences: tuple[str, ...] = ("none", "mjp:0.03", "mjp:0.27")
    """What the client does before its update leaves; the defences are listed above."""
    label: int | None = None
    """Class of the pictures in the client's loss; default: the model's own prediction."""
    rounds: int = 1
    """How often the client sends an update of the same picture, for the attack rounds."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the client's gradients."""
    lpips: Path | None = None
    """File with AlexNet's weights for LPIPS, if they are not in torchvision's cache."""
    out: Path = Path("out/attack")
    """Folder for attack.png and results.json."""


def description() -> str:
    return describe(__doc__)


def parse(arguments: list[str], description: str) -> Options:
    from mjp.common.errors import InputError

    if any(argument.partition("=")[0] == "--gradients" for argument in arguments):
        raise InputError("this command attacks pictures: to audit an update, run mjp attack-update FILE")
    return tyro.cli(Options, prog="mjp attack", args=arguments, description=description)


def run(options: Options) -> "Results":
    import torch

    from mjp.common.weights import read_tensors
    from mjp.privacy.attacks import find_attacks
    from mjp.privacy.examine import present
    from mjp.privacy.examine.pictures import audit_pictures
    from mjp.privacy.examine.subject import public_model
    from mjp.privacy.lpips import find_lpips

    check_options(options, options.weights, options.out)
    _refuse_files(options.attacks, options.defences)
    attacks = find_attacks(options.attacks)
    lpips, availability = find_lpips(options.lpips)
    if lpips is None:
        print(f"LPIPS: {availability}")
    weights = read_tensors(options.weights) if options.weights else None
    subject = public_model(options.model, weights=weights, seed=None if options.pretrained else options.seed)
    pictures, names = _open_pictures(options.pictures, subject)
    findings = audit_pictures(
        subject,
        pictures,
        names=names,
        defences=options.defences,
        attacks=options.attacks,
        label=options.label,
        rounds=options.rounds,
        prior=options.prior,
        dtype=getattr(torch, options.dtype),
        lpips=lpips,
        seed=options.seed,
        watch=present.PicturePrinter(options.attacks),
    )
    present.raise_if_all_refused(findings, "these updates")
    sheet = present.picture_sheet(findings, pictures, attacks, subject.name)
    return present.save_findings(options.out, "attack", options, findings, sheet, models={options.model: {}})


def _open_pictures(paths: Sequence[Path], subject: "Subject") -> "tuple[Tensor, list[str]]":
    import torch

    from mjp.pictures.crop import open_square
    from mjp.pictures.landscape import landscape

    side = subject.size[0]
    if not paths:
        return landscape(side), ["landscape"]
    return torch.cat([open_square(path, side) for path in paths]), [path.name for path in paths]


def _refuse_files(attacks: Sequence[str], defences: Sequence[str]) -> None:
    """--defences and --attacks also take the words that follow their names, so a picture may end up among them."""
    from mjp.common.errors import InputError

    for text in (*attacks, *defences):
        if Path(text).suffix[1:].isalpha():
            raise InputError(f"{text} looks like a file: pictures come first, mjp attack {text} --defences none")
    if not defences:
        raise InputError("name at least one defence")
