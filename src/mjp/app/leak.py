"""One run of attacks on the picture: what was asked, what is found, and the command line that gives the same.

This runs in a process of its own (see jobs), which keeps the models in memory between runs.
"""

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from io import BytesIO
from multiprocessing.connection import Connection
from signal import SIG_IGN, SIGINT, signal
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mjp.common.errors import InputError
from mjp.models import Subject, find_model
from mjp.pictures.tensors import to_image
from mjp.privacy.combination import parse
from mjp.privacy.examine.conclusion import conclude
from mjp.privacy.examine.finding import GUESS, Finding
from mjp.privacy.examine.pictures import audit_pictures
from mjp.privacy.server.integers import can_reduce

Send = Callable[[dict[str, Any]], object]

ONE = ("direct", "span", "subspace", "activations", "lattice")  # on the update of one picture, the quickest first
ONE_WITHOUT_TABLE = ("hull",)  # the others need position embeddings
SEVERAL = ("direct", "batch")
WITH_FPYLLL = ("lattice", "batch")
SHOWN_SIDE = 224  # pixels: smaller reconstructions are enlarged by a whole factor, so that patches stay sharp


@dataclass(frozen=True)
class Question:
    """What a person asked for. `pixels` is the picture, as 8-bit numbers of shape (3, H, W)."""

    model: str
    pixels: NDArray[np.uint8]
    defences: tuple[str, ...]
    attacks: tuple[str, ...]
    rounds: int
    seed: int

    @property
    def command(self) -> str:
        """The same on the command line, for a file of one's own."""
        words = ["mjp", "attack", "photo.jpg", "--model", self.model, "--defences", *self.defences]
        words += ["--attacks", *self.attacks, "--seed", str(self.seed)]
        words += ["--pretrained"] if self.model.startswith("timm:") else []
        return shlex.join([*words, "--rounds", str(self.rounds)] if self.rounds > 1 else words)


def choose_attacks(subject: Subject, defences: Sequence[str], rounds: int) -> tuple[str, ...]:
    """The attacks that are made for updates of this model under these defences, the quickest first."""
    batches = [parse(text).batch for text in defences]
    has_table = subject.model.position_table() is not None
    names = [
        *((ONE if has_table else ONE_WITHOUT_TABLE) if 1 in batches else ()),
        *(SEVERAL if max(batches) > 1 else ()),
        *(("rounds",) if rounds > 1 and 1 in batches else ()),
    ]
    return tuple(name for name in dict.fromkeys(names) if name not in WITH_FPYLLL or can_reduce())


def answer(question: Question, send: Send) -> None:
    """Send a message for every finding as soon as it is there, and one with the verdict when a defence is through."""
    findings: list[Finding] = []

    def watch(finding: Finding) -> None:
        findings.append(finding)
        send({"defence": finding.defence, **_message(finding)})
        if len(findings) == 1 + len(question.attacks):  # the guess, then every attack
            conclusion = conclude(findings)
            send({"defence": finding.defence, "verdict": conclusion.verdict, "sentence": conclusion.sentence})
            findings.clear()

    audit_pictures(
        _model(question.model),
        as_tensor(question.pixels).unsqueeze(0),
        defences=question.defences,
        attacks=question.attacks,
        rounds=question.rounds,
        seed=question.seed,
        watch=watch,
    )


def as_tensor(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(pixels).float() / 255


def _message(finding: Finding) -> dict[str, Any]:
    scores = {setting: asdict(values[0]) for setting, values in finding.scores.items()}
    return {
        "attack": finding.attack,
        "is_guess": finding.attack == GUESS,
        "refused": finding.refused,
        "seconds": finding.seconds,
        "scores": scores,
        "rounds_until_exact": finding.details.get("rounds_until_exact"),
        "png": None if finding.pictures is None else as_png(finding.pictures[0]),
    }


def as_png(pixels: Tensor) -> bytes:
    """(3, H, W) pixels in [0, 1], large enough to look at."""
    picture = to_image(pixels)
    zoom = max(1, SHOWN_SIDE // picture.width)
    buffer = BytesIO()
    picture.resize((picture.width * zoom, picture.height * zoom), Image.Resampling.NEAREST).save(buffer, "PNG")
    return buffer.getvalue()


@lru_cache(maxsize=4)
def _model(name: str) -> Subject:
    return find_model(name)


def warm_up(models: tuple[str, ...]) -> None:
    """Load the models and run a first attack, so that the first question is answered quickly."""
    for name in models:
        subject = _model(name)
        audit_pictures(subject, torch.full((1, 3, *subject.size), 0.5), attacks=["direct"])


def work(connection: Connection, models: tuple[str, ...]) -> None:
    """What the process of the attacks does: answer questions until the page is gone."""
    signal(SIGINT, SIG_IGN)  # Ctrl-C is for the page, which ends this process
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))  # the page needs a core too
    warm_up(models)
    while True:
        try:
            question = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer(question, connection.send)
            connection.send({"done": True})
        except InputError as error:
            connection.send({"error": str(error)})
        except MemoryError:
            connection.send({"error": "there is not enough memory for this attack: choose a smaller batch"})
