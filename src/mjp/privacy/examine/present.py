"""Findings as people read them: a line each, and a contact sheet."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.results import Results, write_results
from mjp.pictures.sheet import contact_sheet
from mjp.privacy.attacks import Attack
from mjp.privacy.examine.finding import GUESS, Finding

Tile = tuple[Tensor | str, str]  # a picture, or why there is none, and its caption
MIN_TILE = 160  # pixels
SETTINGS = "; (b) against the shuffled picture, (c) against the picture"


def scores_line(finding: Finding) -> str:
    """All settings of one finding, or why there is none."""
    if finding.refused:
        return f"refuses: {finding.refused}"
    parts = []
    for setting, (score, *_) in finding.scores.items():
        apart = ""
        if score.psnr_masked is not None and score.psnr_unmasked is not None and setting == "b":
            apart = f" (masked {score.psnr_masked:.1f}, unmasked {score.psnr_unmasked:.1f})"
        lpips = "" if score.lpips is None else f", LPIPS {score.lpips:.3f}"
        parts.append(f"({setting}) {score.psnr:.1f} dB{apart}, SSIM {score.ssim:.3f}{lpips}")
    seconds = f"; {finding.seconds:.1f} s" if finding.seconds else ""
    title = finding.details.get("attack_title", "")  # the leakage of a modified network is not that of the model
    return "; ".join(parts) + seconds + (f"; {title}" if "modified network" in title else "")


class PicturePrinter:
    """Prints the findings on pictures as they come, under a heading for each picture and defence."""

    def __init__(self, attacks: Sequence[str]) -> None:
        self.width = max(len(name) for name in (*attacks, GUESS)) + 2

    def __call__(self, finding: Finding) -> None:
        if finding.attack == GUESS:
            print(f"\n{finding.picture}, {finding.defence}")
        print(f"  {finding.attack:<{self.width}}{scores_line(finding)}")


def picture_sheet(findings: Sequence[Finding], pictures: Tensor, attacks: Sequence[Attack], model: str) -> Image.Image:
    """One row per picture and defence: the picture, the guess, and what every attack recovers."""
    rows: dict[str, list[Tile]] = {}
    several = len(pictures) > 1
    width = 1 + len(attacks)
    groups = [findings[start : start + width] for start in range(0, len(findings), width)]
    per_picture = len(groups) // len(pictures)
    for number, group in enumerate(groups):
        first = group[0]
        row = f"{first.picture[:18]} · {first.defence}" if several else first.defence
        tiles: list[Tile] = [(pictures[number // per_picture], "")]
        tiles += [tile_of(finding, _decibels(finding)) for finding in group]
        rows[row if row not in rows else f"{row} ({len(rows) + 1})"] = tiles  # files of one name in two folders
    settings = SETTINGS if any("b" in finding.scores for finding in findings) else ""
    columns = ["picture", "data-free guess", *map(_column, attacks)]
    return draw_tiles(rows, columns, f"{model}: what the server sees, PSNR{settings}")


def _to_json(finding: Finding) -> dict[str, Any]:
    """A finding in results.json."""
    place = {"picture": finding.picture, "defence": finding.defence} if finding.picture else {}
    place |= {"update": finding.update} if finding.update else {}
    verdict = finding.verdict
    judged = {} if verdict is None else {"outcome": verdict.outcome, "verdict": verdict.sentence}
    return {**place, **finding.to_dict(), **judged}


def save_findings(
    out: Path, kind: str, options: Any, findings: Sequence[Finding], sheet: Image.Image, **body: Any
) -> Results:
    """results.json and attack.png."""
    content = {**body, "findings": [_to_json(finding) for finding in findings]}
    results = write_results(out, kind, options, content)
    write_atomically(out / "attack.png", sheet.save)
    print(f"\nfigures  {out / 'results.json'}\npicture  {out / 'attack.png'}")
    return results


def raise_if_all_refused(findings: Sequence[Finding], what: str) -> None:
    if all(finding.refused for finding in findings if finding.attack != GUESS):
        raise InputError(f"no attack can run on {what}; the reasons are above")


def _column(attack: Attack) -> str:
    return f"{attack.NAME} (modified network)" if hasattr(attack, "network") else attack.NAME


def tile_of(finding: Finding, caption: str) -> Tile:
    """The (first) reconstruction with its caption, or the reason why there is none."""
    return (f"refused: {finding.refused}", "") if finding.pictures is None else (finding.pictures[0], caption)


def _decibels(finding: Finding) -> str:
    """PSNR in every setting."""
    psnr = [(setting, scores[0].psnr) for setting, scores in finding.scores.items()]
    if len(psnr) == 1:
        return f"{psnr[0][1]:.1f} dB"
    return " · ".join(f"({setting}) {value:.1f}" for setting, value in psnr) + " dB"


def draw_tiles(rows: dict[str, list[Tile]], columns: list[str], title: str) -> Image.Image:
    pictures = {name: [picture for picture, _ in tiles] for name, tiles in rows.items()}
    captions = {name: [caption for _, caption in tiles] for name, tiles in rows.items()}
    return contact_sheet(pictures, columns, title=title, captions=captions, least=MIN_TILE)
