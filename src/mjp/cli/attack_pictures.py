"""`mjp attack PICTURES`: a client makes updates of pictures under defences, and attacks are scored beside them."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mjp.cli.attack import Options, find_subject, tile
from mjp.common.errors import InputError
from mjp.models import Subject
from mjp.pictures.crop import open_square
from mjp.pictures.landscape import landscape
from mjp.pictures.tensors import normalise
from mjp.privacy.attacks import Attack
from mjp.privacy.client.defences import Defence
from mjp.privacy.examine import GUESS, Finding, examine
from mjp.privacy.lpips import find_lpips
from mjp.privacy.server.public_pictures import find_prior

if TYPE_CHECKING:
    from mjp.cli.attack import Result, Tile

SETTINGS = "; (b) against the shuffled picture, (c) against the picture"


def audit_pictures(options: Options, attacks: list[Attack], defences: list[Defence]) -> "Result":
    lpips, backbone = find_lpips(options.lpips)
    subject = find_subject(options)
    pictures, names = _pictures(options, subject)
    prior = find_prior(options.prior, subject.size)
    settings: dict[str, Any] = {"seed": options.seed, "dtype": getattr(torch, str(options.dtype)), "lpips": lpips}
    rows: dict[str, list[Tile]] = {}
    figures: list[dict[str, Any]] = []
    width = max(len(name) for name in (*options.attacks, GUESS)) + 2
    if lpips is None:
        print(f"LPIPS: {backbone}")
    for name, picture in zip(names, pictures, strict=True):
        batch = picture.unsqueeze(0)
        label = _label(options, subject, batch)
        for defence in defences:
            several = batch if defence.batch == 1 else _others(batch, pictures, defence.batch)
            labels = label.repeat(defence.batch)
            shown: list[Tile] = [(picture, "")]
            print(f"\n{name}, {defence.text}")
            for found in examine(subject, several, labels, defence, attacks, prior, **settings):
                print(f"  {found.attack:<{width}}{_line(found)}")
                shown.append(tile(found, _decibels(found)))
                figures.append({"picture": name, "defence": defence.text, **found.to_dict()})
            row = f"{name[:18]} · {defence.text}" if len(names) > 1 else defence.text
            rows[row if row not in rows else f"{row} ({len(rows) + 1})"] = shown  # files of one name in two folders
    if all(one["refused"] for one in figures if one["attack"] != GUESS):
        raise InputError("no attack can run on these updates; the reasons are above")
    about = SETTINGS if any("b" in one["scores"] for one in figures) else ""
    title = f"{subject.name}: what the server sees, PSNR{about}"
    return rows, ["picture", "data-free guess", *map(_title, attacks)], title, {"findings": figures}


def _title(attack: Attack) -> str:
    return f"{attack.NAME} (modified network)" if hasattr(attack, "network") else attack.NAME


def _pictures(options: Options, subject: Subject) -> tuple[Tensor, list[str]]:
    if subject.size[0] != subject.size[1]:
        raise InputError(f"the attacks are for square pictures, {subject.name} takes {subject.size}")
    if not options.pictures:
        return landscape(subject.size[0]), ["landscape"]
    found = [open_square(path, subject.size[0]) for path in options.pictures]
    return torch.cat(found), [path.name for path in options.pictures]


def _label(options: Options, subject: Subject, batch: Tensor) -> Tensor:
    count = int(getattr(subject.model.model, "num_classes", 0))
    if options.label is not None:
        if not 0 <= options.label < count:
            raise InputError(f"--label must be a class of the model, 0 to {count - 1}, not {options.label}")
        return torch.tensor([options.label])
    with torch.no_grad():
        return subject.model.float().eval()(normalise(batch, subject.mean, subject.std)).argmax(1)


def _others(picture: Tensor, pictures: Tensor, count: int) -> Tensor:
    """The picture with company: the other pictures in turn, mirrored where there are not enough."""
    rest = [p for p in pictures if not torch.equal(p, picture[0])]
    company = [*rest, *(p.flip(-1) for p in (picture[0], *rest)), *(p.flip(-2) for p in (picture[0], *rest))]
    return torch.stack([picture[0], *(company[k % len(company)] for k in range(count - 1))])


def _line(found: Finding) -> str:
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


def _modified(found: Finding) -> str:
    """An attack on another network than the unmodified one says so: its leakage is not that of the model."""
    title = found.facts.get("attack_title", "")
    return f"; {title}" if "modified network" in title else ""


def _decibels(found: Finding) -> str:
    """What stands under a tile: PSNR in every setting."""
    psnr = [(setting, scores[0].psnr) for setting, scores in found.scores.items()]
    if len(psnr) == 1:
        return f"{psnr[0][1]:.1f} dB"
    return " · ".join(f"({setting}) {value:.1f}" for setting, value in psnr) + " dB"
