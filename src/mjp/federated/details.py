"""What an audit leaves on the client: a line per update, and pictures of what was rebuilt. None of it is sent."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from mjp.common.files import write_atomically
from mjp.common.results import plain
from mjp.federated.auditor import LeakReport
from mjp.federated.leak_log import file_name
from mjp.pictures.sheet import contact_sheet
from mjp.privacy.examine.conclusion import EXPOSED

MAX_PICTURES = 100  # files in the folder; later reconstructions are not drawn


def keep_details(folder: Path, report: LeakReport, *, client: str, round_number: int) -> str:
    """Append to audit.jsonl; for an exposed update also draw the reconstructions.

    Returns what went wrong, "" if nothing did: a full disk must not cost the round.
    """
    try:
        _write(folder, report, client, round_number)
    except OSError as error:
        return f"details cannot be kept in {folder}: {error.strerror}"
    return ""


def _write(folder: Path, report: LeakReport, client: str, round_number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # reconstructions are as private as the pictures
    line = {"round": round_number, "client": client, **asdict(replace(report, findings=()))}
    with open(folder / "audit.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(plain(line), allow_nan=False) + "\n")
    if report.status == EXPOSED and len(list(folder.glob("*.png"))) < MAX_PICTURES:
        tiles = {f.attack: f.pictures[0].float() for f in report.findings if f.pictures is not None}
        title = f"round {round_number}: what the server could see"
        sheet = contact_sheet({"": list(tiles.values())}, list(tiles), title=title, least=160)
        write_atomically(folder / f"round-{round_number:04}-{file_name(client)}.png", sheet.save)
