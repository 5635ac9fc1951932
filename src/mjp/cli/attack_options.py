"""What the privacy commands share: options for the public model and the attacks, and the help that lists them."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(kw_only=True)
class AttackOptions:
    model: str = "timm:deit_small_patch16_224"
    """The public model: timm:NAME (random weights unless --pretrained or --weights), a shipped name, a folder, a hub
    repository."""
    pretrained: bool = False
    """Load the pretrained weights of timm:NAME instead of random ones; needs a network or a cache."""
    attacks: tuple[str, ...] = ("direct", "span", "subspace", "activations", "lattice", "batch")
    """What the server tries; the attacks are listed above."""
    prior: Path | None = None
    """Folder of public pictures (with subfolders) for the attacker's prior; default: the embedded CIFAR-10 pictures."""
    seed: int = 0
    """Seed of random weights, of the client's jigsaw and noise, and of attacks that search."""


def describe(text: str) -> str:
    """The help of a command, with the defences and attacks that there are."""
    from mjp.privacy.attacks import attacks_help
    from mjp.privacy.defences import defences_help

    defences = f"defences, combined with + as in mjp:0.27+bf16:\n{defences_help()}"
    return f"{text.rstrip()}\n\n{defences}\n\nattacks:\n{attacks_help()}"


def check_options(options: AttackOptions, weights: Path | tuple[Path, ...] | None, out: Path) -> None:
    from mjp.common.errors import InputError
    from mjp.common.files import check_folder

    if weights and options.pretrained:
        raise InputError("--weights and --pretrained both say which weights the model has: name one of them")
    check_folder(out)
