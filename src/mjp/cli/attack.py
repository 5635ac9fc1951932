"""What a shared gradient gives away: original beside what the server can see, for each attack and defence.

A client makes an update from your picture under a defence; every attack gets that update and the public model, nothing
else. Or audit an update from elsewhere (Flower, PySyft, own code): --gradients update.safetensors, a file of
{parameter name: gradient}, with its facts in update.json or as options, and --weights, at which it was made.

Defences combine with +: none, no-pe, frozen-pe, withheld-pe, jp:γ, mjp:γ, mjp-shared:γ, noise:r, dp:σ, prune:p, bf16,
batch:B, fedavg:K (K local steps). Attacks: direct, span, subspace, jigsaw, april, matching, matching-blind.

Example: mjp attack --model timm:deit_small_patch16_224 photo.jpg
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

if TYPE_CHECKING:
    from torch import Tensor

    from mjp.models import Subject
    from mjp.privacy.examine import Finding

    Tile = tuple[Tensor | str, str]  # a picture, or why there is none, and the line below
    Result = tuple[dict[str, list[Tile]], list[str], str, dict[str, Any]]  # rows, columns, title, figures

DEFENCES = ("none", "mjp:0.03", "mjp:0.27")
SIDE = 160  # pixels of a tile, at least


@dataclass
class Options:
    pictures: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Pictures of the client; a drawn landscape without any."""
    model: str = "timm:deit_small_patch16_224"
    """The public model: timm:NAME (random weights unless --pretrained or --weights), a shipped name, a folder, a hub
    repository."""
    pretrained: bool = False
    """Load the pretrained weights of timm:NAME instead of random ones; it needs a network or a cache."""
    weights: Path | None = None
    """The model's weights when the update was made: safetensors, .pt or .pth, of a timm or an MJP model."""
    defences: tuple[str, ...] | None = None
    """What the client does before its update leaves; without: none mjp:0.03 mjp:0.27."""
    attacks: tuple[str, ...] = ("direct", "span", "subspace")
    """What the server tries."""
    label: int | None = None
    """Class of the pictures for the client's loss; by default what the model takes them for."""
    gradients: Path | None = None
    """Audit this update instead of making one."""
    batch: int | None = None
    """With --gradients: pictures in a step, if update.json does not say so."""
    kind: Literal["gradient", "fedavg"] | None = None
    """With --gradients: gradients, or the weights after local steps."""
    steps: int | None = None
    """With --gradients of kind fedavg: local steps."""
    lr: float | None = None
    """With --gradients of kind fedavg: their learning rate."""
    mean: tuple[float, float, float] | None = None
    """With --gradients: what the client subtracts from pixels in [0, 1]; the model's own without."""
    std: tuple[float, float, float] | None = None
    """With --gradients: what the client then divides them by."""
    size: tuple[int, int] | None = None
    """With --gradients: height and width of the client's pictures."""
    defence: str | None = None
    """With --gradients: what the client did before its update left, as in --defences."""
    prior: Path | None = None
    """Folder of public pictures (with subfolders) for the attacker's prior; the embedded CIFAR-10 pictures without."""
    dtype: Literal["float32", "float64"] | None = None
    """Precision of the client's gradients; float32 without."""
    lpips: Path | None = None
    """File with AlexNet's weights for LPIPS, if they are not in torchvision's cache."""
    seed: int = 0
    """Seed of random weights, of the client's jigsaw and noise, and of searching attacks."""
    out: Path = Path("out/attack")
    """Folder for attack.png and results.json."""


FACTS = ("batch", "kind", "steps", "lr", "mean", "std", "size", "defence")  # of an update from elsewhere
MAKING = ("defences", "label", "dtype", "lpips")  # an update, and scoring what becomes of it


def run(options: Options) -> None:
    from mjp.common.errors import InputError
    from mjp.common.files import check_folder
    from mjp.common.validate import number
    from mjp.privacy.attacks import find_attack
    from mjp.privacy.client.defences import parse

    _check_together(options)
    number("--seed", options.seed, least=0, most=2**63)
    check_folder(options.out)
    attacks = [find_attack(_no_picture(name)) for name in options.attacks]
    if not attacks:
        raise InputError("name at least one attack")
    if options.gradients:
        from mjp.cli.attack_file import audit_file

        _write(options, *audit_file(options, attacks))
    else:
        from mjp.cli.attack_pictures import audit_pictures

        options = replace(options, defences=options.defences or DEFENCES, dtype=options.dtype or "float32")
        defences = [parse(_no_picture(text)) for text in options.defences or ()]
        _write(options, *audit_pictures(options, attacks, defences))


def _check_together(options: Options) -> None:
    """Refuse what would be ignored."""
    from mjp.common.errors import InputError

    if options.gradients and options.pictures:
        raise InputError("--gradients audits an update from elsewhere, whose pictures are not known: leave them out")
    if options.weights and options.pretrained:
        raise InputError("--weights and --pretrained both say which weights the model has: give one")
    given = [f"--{name}" for name in (MAKING if options.gradients else FACTS) if getattr(options, name) is not None]
    if given and options.gradients:
        raise InputError(f"{given[0]} is about pictures, and with --gradients there are none: leave it out")
    if given:
        raise InputError(f"{given[0]} is about an update from a file: give the file with --gradients, or leave it out")
    if options.defences == ():
        raise InputError("name at least one defence")


def _no_picture(text: str) -> str:
    """The name of an attack or a defence; --defences and --attacks also take what stands behind their names."""
    from mjp.common.errors import InputError

    if Path(text).suffix[1:].isalpha():
        raise InputError(f"{text} looks like a file: pictures come first, mjp attack {text} --defences none")
    return text


def find_subject(options: Options, **build: Any) -> "Subject":
    """The public model; with --weights the classifier is as wide as theirs."""
    from mjp.models import find_model
    from mjp.privacy.update import plain_name, read_tensors

    weights = None
    if options.weights:
        found = read_tensors(options.weights, "file of weights")
        weights = {plain_name(name): tensor for name, tensor in found.items()}
        build |= {"num_classes": weights["head.bias"].numel()} if "head.bias" in weights else {}
    seed = None if options.pretrained else options.seed
    return find_model(options.model, random_weights=seed, weights=weights, **build)


def tile(found: "Finding", caption: str) -> "Tile":
    """The (first) reconstruction with a line below it, or the reason why there is none."""
    return (f"refused: {found.refused}", "") if found.pictures is None else (found.pictures[0], caption)


def _write(options: Options, rows: Any, titles: list[str], title: str, figures: dict[str, Any]) -> None:
    from mjp.common.files import write_atomically
    from mjp.pictures.sheet import contact_sheet
    from mjp.report.runs import describe

    pictures = {name: [shown for shown, _ in row] for name, row in rows.items()}
    captions = {name: [caption for _, caption in row] for name, row in rows.items()}
    sheet = contact_sheet(pictures, titles, title=title, captions=captions, least=SIDE)
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {**describe("attack", options), "models": {options.model: {}}, **figures}
    text = json.dumps(facts, indent=2, default=str)
    write_atomically(options.out / "results.json", lambda path: path.write_text(text + "\n"))
    write_atomically(options.out / "attack.png", sheet.save)
    print(f"\nfigures  {options.out / 'results.json'}\npicture  {options.out / 'attack.png'}")
