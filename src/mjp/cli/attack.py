"""What a shared gradient gives away: original beside what the server can see, for each attack and defence.

A client makes an update from your picture under a defence; every attack gets that update and the public model, nothing
else. Or audit an update from elsewhere (Flower, PySyft, own code): --gradients update.safetensors, a file of
{parameter name: gradient}, with its facts in update.json or as options.

Defences combine with +: none, no-pe, frozen-pe, withheld-pe, jp:γ, mjp:γ, mjp-shared:γ, noise:r, dp:σ, prune:p, bf16,
batch:B, fedavg:K (K local steps). Attacks: direct, span, subspace, jigsaw, april, matching, matching-blind.

Example: mjp attack --model timm:deit_small_patch16_224 photo.jpg
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

if TYPE_CHECKING:
    from torch import Tensor

    from mjp.evaluation.models import Subject
    from mjp.privacy.examine import Finding
    from mjp.privacy.prior import Prior


@dataclass
class Options:
    pictures: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Pictures of the client; a drawn landscape without any."""
    model: str = "timm:deit_small_patch16_224"
    """The public model: timm:NAME (random weights unless --pretrained), a shipped name, a folder, a hub repository."""
    pretrained: bool = False
    """Load the pretrained weights of timm:NAME instead of random ones; it needs a network or a cache."""
    defences: tuple[str, ...] = ("none", "mjp:0.03", "mjp:0.27")
    """What the client does before its update leaves."""
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
    prior: Path | None = None
    """Folder of public pictures (with subfolders) for the attacker's prior; the embedded CIFAR-10 pictures without."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the client's gradients."""
    lpips: Path | None = None
    """File with AlexNet's weights for LPIPS, if they are not in torchvision's cache."""
    seed: int = 0
    """Seed of random weights, of the client's jigsaw and noise, and of searching attacks."""
    out: Path = Path("out/attack")
    """Folder for attack.png and results.json."""


def run(options: Options) -> None:
    from mjp.errors import InputError
    from mjp.evaluation.models import find_model
    from mjp.privacy.attacks import find_attack
    from mjp.privacy.defences import parse
    from mjp.privacy.pictures import find_prior

    attacks = [find_attack(name) for name in options.attacks]
    defences = [parse(text) for text in options.defences]
    if options.gradients and options.pictures:
        raise InputError("--gradients audits an update from elsewhere, whose pictures are not known: leave them out")
    if not attacks or not defences:
        raise InputError("name at least one attack and one defence")
    subject = find_model(options.model, random_weights=None if options.pretrained else options.seed)
    prior = find_prior(options.prior, subject.size)
    if options.gradients:
        _audit_file(options, subject, attacks, prior)
    else:
        _audit_pictures(options, subject, attacks, defences, prior)


def _audit_pictures(options: Options, subject: "Subject", attacks: Any, defences: Any, prior: "Prior") -> None:
    import torch

    from mjp.privacy.examine import examine
    from mjp.privacy.lpips import find_lpips

    pictures, names = _pictures(options, subject)
    lpips, backbone = find_lpips(options.lpips)
    rows: dict[str, list[Tensor]] = {}
    figures: list[dict[str, Any]] = []
    width = max(len(name) for name in (*options.attacks, "guess")) + 2
    print(f"LPIPS: {backbone}" if lpips is None else "", end="\n" if lpips is None else "")
    for name, picture in zip(names, pictures, strict=True):
        batch = picture.unsqueeze(0)
        label = _label(options, subject, batch)
        for defence in defences:
            several = batch if defence.batch == 1 else _others(batch, pictures, prior, defence.batch)
            labels = label.repeat(defence.batch)
            shown = [picture]
            print(f"\n{name}, {defence.text}")
            settings: dict[str, Any] = {"seed": options.seed, "dtype": getattr(torch, options.dtype), "lpips": lpips}
            for found in examine(subject, several, labels, defence, attacks, prior, **settings):
                print(f"  {found.attack:<{width}}{_line(found)}")
                shown.append(_tile(found, picture))
                figures.append({"picture": name, "defence": defence.text, **found.to_dict()})
            rows[f"{name[:18]} · {defence.text}" if len(names) > 1 else defence.text] = shown
    titles = ["picture", "data-free guess", *options.attacks]
    _write(options, rows, titles, f"{subject.name}: what the server sees", {"findings": figures})


def _audit_file(options: Options, subject: "Subject", attacks: Any, prior: "Prior") -> None:
    from mjp.errors import InputError
    from mjp.privacy.examine import try_attack
    from mjp.privacy.update import Facts, Update, read_tensors, stated_facts
    from mjp.privacy.view import View

    assert options.gradients is not None
    changes = {"batch": options.batch, "kind": options.kind, "steps": options.steps, "lr": options.lr}
    facts = {"size": subject.size, "mean": subject.mean, "std": subject.std}
    stated = stated_facts(options.gradients, **changes)  # what is not stated is the model's own
    update = Update(read_tensors(options.gradients), Facts(**{**facts, **stated}))
    if (tuple(update.facts.mean), tuple(update.facts.std)) != (tuple(subject.mean), tuple(subject.std)):
        print("note: the update states another normalisation than the model's own; the update's is used")
    view = View(update, subject.model, prior)  # checks model, shapes and numbers before anything is tried
    print(f"update of {update.facts.batch} picture(s), {len(view.gradients)} tensors, defence {update.facts.defence!r}")
    findings = [try_attack(attack, subject.model, update, prior, None) for attack in attacks]
    shown = [_tile(found, prior.mean) for found in findings]
    for found in findings:
        print(f"  {found.attack:<16}{_verdict(found)}")
    if all(found.refused for found in findings):
        raise InputError("no attack can run on this update; the reasons are above")
    titles = [f"{found.attack} ({_match_text(found)})" for found in findings]
    figures = {"findings": [found.to_dict() for found in findings], "facts": vars(update.facts)}
    _write(options, {"update": shown}, titles, f"{options.gradients.name}: what the server sees", figures)


def _pictures(options: Options, subject: "Subject") -> "tuple[Tensor, list[str]]":
    import torch

    from mjp.cli.picture import landscape, open_picture
    from mjp.errors import InputError

    if subject.size[0] != subject.size[1]:
        raise InputError(f"the attacks are for square pictures, {subject.name} takes {subject.size}")
    if not options.pictures:
        return landscape(subject.size[0]), ["landscape"]
    found = [open_picture(path, subject.size[0]) for path in options.pictures]
    return torch.cat(found), [path.name for path in options.pictures]


def _label(options: Options, subject: "Subject", batch: "Tensor") -> "Tensor":
    import torch

    from mjp.errors import InputError

    count = int(getattr(subject.model.model, "num_classes", 0))
    if options.label is not None:
        if not 0 <= options.label < count:
            raise InputError(f"--label must be a class of the model, 0 to {count - 1}, not {options.label}")
        return torch.tensor([options.label])
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (subject.mean, subject.std))
    with torch.no_grad():
        return subject.model.float().eval()((batch - mean) / std).argmax(1)


def _others(picture: "Tensor", pictures: "Tensor", prior: "Prior", count: int) -> "Tensor":
    """The picture with company: the other pictures in turn, mirrored where there are not enough."""
    import torch

    rest = [p for p in pictures if not torch.equal(p, picture[0])]
    company = [*rest, *(p.flip(-1) for p in (picture[0], *rest)), *(p.flip(-2) for p in (picture[0], *rest))]
    return torch.stack([picture[0], *(company[k % len(company)] for k in range(count - 1))])


def _line(found: "Finding") -> str:
    if found.refused:
        return f"refuses: {found.refused}"
    parts = []
    for setting, scores in found.scores.items():
        one = scores[0]
        apart = ""
        if one.psnr_masked is not None and one.psnr_unmasked is not None and setting == "b":
            apart = f" (masked {one.psnr_masked:.1f}, unmasked {one.psnr_unmasked:.1f})"
        lpips = "" if one.lpips is None else f", LPIPS {one.lpips:.3f}"
        parts.append(f"({setting}) {one.psnr:.1f} dB{apart}, SSIM {one.ssim:.3f}{lpips}")
    return "; ".join(parts) + (f"; {found.seconds:.1f} s" if found.seconds else "") + _modified(found)


def _modified(found: "Finding") -> str:
    """An attack on another network than the unmodified one says so: its leakage is not that of the model."""
    title = found.facts.get("attack_title", "")
    return f"; {title}" if "modified network" in title else ""


def _verdict(found: "Finding") -> str:
    from mjp.privacy.check import CONVINCING

    if found.refused:
        return f"refuses: {found.refused}"
    match = found.facts.get("match")
    if match is None:
        return f"a picture that cannot be checked (no gradient of the classifier), {found.seconds:.1f} s"
    if match > CONVINCING:
        return f"a picture that explains the update (match {match:.4f}), {found.seconds:.1f} s"
    return f"nothing that explains the update (match {match:.2f}): not a reconstruction, {found.seconds:.1f} s"


def _match_text(found: "Finding") -> str:
    from mjp.privacy.check import CONVINCING

    match = found.facts.get("match")
    if found.refused or match is None:
        return "refused" if found.refused else "unchecked"
    return f"match {match:.3f}" if match > CONVINCING else f"no reconstruction, match {match:.2f}"


def _tile(found: "Finding", like: "Tensor") -> "Tensor":
    """The (first) reconstruction, or an empty tile."""
    import torch

    return torch.full_like(like, 0.93) if found.pictures is None else found.pictures[0].to(like)


def _write(options: Options, rows: Any, titles: list[str], title: str, figures: dict[str, Any]) -> None:
    from torch.nn.functional import interpolate

    from mjp.cli.picture import contact_sheet
    from mjp.files import write_atomically
    from mjp.report.runs import describe

    def enlarged(tile: Any) -> Any:
        return interpolate(tile.unsqueeze(0), scale_factor=max(1, 160 // tile.shape[-1]))[0]

    sheet = contact_sheet({name: [enlarged(t) for t in row] for name, row in rows.items()}, titles, title=title)
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {**describe("attack", options), "models": {options.model: {}}, **figures}
    text = json.dumps(facts, indent=2, default=str)
    write_atomically(options.out / "results.json", lambda path: path.write_text(text + "\n"))
    write_atomically(options.out / "attack.png", sheet.save)
    print(f"\nfigures  {options.out / 'results.json'}\npicture  {options.out / 'attack.png'}")
