"""Findings on updates as people and programs read them: a line each, results.json, and a contact sheet."""

from collections.abc import Sequence
from typing import Any

from PIL import Image

from mjp.privacy.attacks import Attack
from mjp.privacy.examine.conclusion import Findings
from mjp.privacy.examine.finding import Finding
from mjp.privacy.examine.present import Tile, draw_tiles, tile_of
from mjp.privacy.examine.several import Group
from mjp.privacy.examine.sources import Source
from mjp.privacy.examine.update import OpenUpdate

Examined = tuple[Group, Findings]


class VerdictPrinter:
    """Prints what is attacked, then the findings on it as they come."""

    def __init__(self, group: Group, total: int) -> None:
        self.names = len(group) > 1
        if len(group) > 1:
            print(f"\n{len(group)} of {total} updates are of one picture: {', '.join(group)}")
        elif total > 1:
            print(f"\n{next(iter(group))} is linked to no other update")
        for target in group.values():
            _print_info(target)

    def __call__(self, finding: Finding) -> None:
        where = f"{finding.update}: " if self.names else ""
        if rounds := finding.details.get("rounds"):
            where = f"{rounds} updates together: "
        print(f"  {finding.attack:<16}{where}{finding.verdict.sentence if finding.verdict else ''}")


def _print_info(target: OpenUpdate) -> None:
    info = target.update.info
    if (tuple(info.mean), tuple(info.std)) != (tuple(target.subject.mean), tuple(target.subject.std)):
        print("note: the update states another normalisation than the model's own; the update's is used")
    print(f"update of {info.batch} picture(s), {len(target.update.tensors)} tensors, defence {info.defence!r}")


def groups_to_json(examined: Sequence[Examined], sources: Sequence[Source]) -> dict[str, Any]:
    """The keys of results.json that say which updates were read, which are linked, and the verdict on every group."""
    infos = {name: vars(target.update.info) for group, _ in examined for name, target in group.items()}
    updates = [
        {
            "update": source.name,
            "file": str(source.file),
            "weights": source.weights and str(source.weights),
            "facts": infos[source.name],
        }
        for source in sources
    ]
    groups = [{"updates": list(group), **findings.conclusion.to_dict()} for group, findings in examined]
    return {"facts": updates[0]["facts"], "updates": updates, "groups": groups}


def update_sheet(examined: Sequence[Examined], attacks: Sequence[Attack]) -> Image.Image:
    """A row for every update: what every attack makes of it. Attacks on several updates stand in the first row."""
    names = [attack.NAME for attack in attacks]
    rows: dict[str, list[Tile]] = {}
    for group, findings in examined:
        for update in group:
            tiles = {finding.attack: _tile(finding) for finding in findings if finding.update == update}
            first: Tile = (f"with {next(iter(group))}", "")
            rows[update] = [tiles.get(name, first) for name in names]
    title = next(iter(rows)) if len(rows) == 1 else f"{len(rows)} updates"
    rows = {"update": rows[title]} if len(rows) == 1 else rows
    return draw_tiles(rows, names, f"{title}: what the server sees")


def _tile(finding: Finding) -> Tile:
    return tile_of(finding, finding.verdict.short if finding.verdict else "")
