"""Journal: what a server writes down about a run. It is complete after every round, so a killed run continues there.

FOLDER/journal.json             settings, accuracy after every round, one entry per client and round
FOLDER/weights-0003.safetensors the global weights after the last finished round
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.read import read_object
from mjp.common.results import plain
from mjp.common.weights import read_tensors
from mjp.federated.auditor import NOT_AUDITED, PREFIX
from mjp.privacy.examine.conclusion import EXPOSED, NOT_COVERED, NOT_RECOVERED

JOURNAL = "journal.json"
ADVICE = "remove the folder, or name another one"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one client did in one round, as far as the server knows.

    Attributes:
        round: From 1.
        client: Its name.
        status: As in a LeakReport; "unknown" if no audit came with the update.
        attack: The best attack.
        match: Its match.
        seconds: What the audit took the client.
        fault: Why the update was not averaged; "" if it was.
        psnr: PSNR in dB of the best reconstruction, where the pictures are at hand (in a simulation).
        guess: PSNR of the data-free guess.
    """

    round: int
    client: str
    status: str = "unknown"
    attack: str = ""
    match: float = 0.0
    seconds: float = 0.0
    fault: str = ""
    psnr: float | None = None
    guess: float | None = None


def entry_of_figures(round_number: int, client: str, figures: Mapping[str, float], *, fault: str = "") -> Entry:
    """An entry from the figures that came with an update (LeakReport.figures)."""
    numbers = {name.removeprefix(PREFIX): float(value) for name, value in figures.items() if name.startswith(PREFIX)}
    numbers = {name[:80]: value if math.isfinite(value) else 0.0 for name, value in numbers.items()}
    if "exposed" not in numbers:
        return Entry(round=round_number, client=client, fault=fault)
    matches = {n.removeprefix("match_"): value for n, value in numbers.items() if n.startswith("match_")}
    best = max(matches, key=lambda name: matches[name], default="")
    covered = numbers.get("covered", 0.0) > 0
    return Entry(
        round=round_number,
        client=client,
        status=EXPOSED if numbers["exposed"] > 0 else _status(covered, numbers.get("audited", 0.0) > 0),
        attack=best if covered else "",
        match=numbers.get("match", 0.0),
        seconds=numbers.get("seconds", 0.0),
        fault=fault,
    )


def _status(covered: bool, audited: bool) -> str:
    if not audited:
        return NOT_AUDITED
    return NOT_RECOVERED if covered else NOT_COVERED


@dataclass
class Journal:
    """The state of a run in a folder.

    Args:
        folder: Where the journal is, or will be.
        settings: What must be the same for a run to continue.
    """

    folder: Path
    settings: dict[str, Any]
    rounds: int = 0
    accuracy: dict[int, float] = field(default_factory=dict)  # after a round; 0: before the first
    entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = plain(self.settings)
        if (self.folder / JOURNAL).is_file():
            self._read()

    @classmethod
    def open(cls, folder: Path) -> "Journal":
        """The journal that a run left in a folder, with its settings."""
        if not (folder / JOURNAL).is_file():
            raise InputError(f"there is no {JOURNAL} in {folder}: the run did not finish a round there")
        settings = read_object(folder / JOURNAL, advice=ADVICE).get("settings")
        return cls(folder, settings if isinstance(settings, dict) else {})

    def weights(self) -> dict[str, Tensor] | None:
        """The global weights after the last finished round; None before the first."""
        return read_tensors(self._weights_path(self.rounds), advice=ADVICE) if self.rounds else None

    def close_round(self, number: int, weights: Mapping[str, Tensor], entries: Sequence[Entry]) -> None:
        """Write a finished round down: first the weights, then the journal that names them.

        What an earlier start, which failed in this round, left of it is replaced.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        write_atomically(self._weights_path(number), lambda path: save_file(tensors, path))
        previous, self.rounds = self.rounds, number
        self.entries = [entry for entry in self.entries if entry.round < number] + list(entries)
        self._write()
        if previous != number:
            self._weights_path(previous).unlink(missing_ok=True)

    def add(self, *entries: Entry) -> None:
        """Write entries down without closing a round, for engines that keep the weights themselves."""
        self.entries += entries
        self._write()

    def reset(self) -> None:
        """Forget an earlier run in this folder."""
        self._weights_path(self.rounds).unlink(missing_ok=True)
        self.rounds, self.accuracy, self.entries = 0, {}, []
        self._write()

    def note_accuracy(self, number: int, accuracy: float) -> None:
        """The accuracy of the global model after a round; JSON cannot hold one that is not finite."""
        if math.isfinite(accuracy):
            self.accuracy[number] = accuracy
            self._write()

    def _weights_path(self, number: int) -> Path:
        return self.folder / f"weights-{number:04}.safetensors"

    def _write(self) -> None:
        content = {
            "settings": self.settings,
            "rounds": self.rounds,
            "accuracy": self.accuracy,
            "entries": [asdict(entry) for entry in self.entries],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(plain(content), indent=1, allow_nan=False) + "\n"
        write_atomically(self.folder / JOURNAL, lambda path: path.write_text(text, encoding="utf-8"))

    def _read(self) -> None:
        path = self.folder / JOURNAL
        content = read_object(path, advice=ADVICE)
        try:
            differing = sorted(k for k, value in content["settings"].items() if self.settings.get(k) != value)
            self.rounds = int(content["rounds"])
            self.accuracy = {int(number): float(value) for number, value in content["accuracy"].items()}
            self.entries = [Entry(**entry) for entry in content["entries"]]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is damaged: {ADVICE}") from error
        if differing:
            raise InputError(f"{self.folder} holds a run with other settings ({', '.join(differing[:3])}): {ADVICE}")
