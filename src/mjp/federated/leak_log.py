"""Leak log: the updates that a server was sent, so that attacks can run on a finished training.

    LOG/round-0001/weights.safetensors       what went out to the clients
    LOG/round-0001/CLIENT.safetensors        what one of them sent back
    LOG/round-0001/CLIENT.json               what the server knows about it

`mjp attack-update LOG/round-0001/CLIENT.safetensors --model NAME` is the auditor's view of one update, at the weights
beside it, and `mjp attack-update LOG --model NAME` of all of them. The log holds what can be turned into pictures:
whoever can read it can try. It is off unless a folder is named, only its owner can enter it, and it never grows beyond
its bound: the oldest round goes first, and of a round that is larger than the bound the last updates are not kept.
"""

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.results import plain
from mjp.common.validate import number
from mjp.common.weights import read_tensors
from mjp.privacy.combination import parse
from mjp.privacy.examine.sources import WEIGHTS
from mjp.privacy.info import UpdateInfo, check_stated

MEGABYTE = 10**6


class LeakLog:
    """A bounded folder of updates on the server.

    Args:
        folder: Where to keep them.
        max_megabytes: The oldest rounds are removed when the folder grows beyond this.
    """

    def __init__(self, folder: Path, *, max_megabytes: float = 500) -> None:
        self.folder = folder
        self.max_bytes = int(number("max_megabytes", max_megabytes, least=1) * MEGABYTE)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)

    def keep_weights(self, round_number: int, weights: Mapping[str, Tensor]) -> None:
        """Keep what was sent out in a round; what is there of a run with other weights in this round goes."""
        path = self._round(round_number) / WEIGHTS
        if path.is_file() and not _equal(read_tensors(path), weights):
            for folder in self.rounds():
                if folder.name >= path.parent.name:
                    shutil.rmtree(folder)
        _save(self._round(round_number) / WEIGHTS, weights)
        self._make_room(path)

    def keep_update(
        self, round_number: int, client: str, update: Mapping[str, Tensor], info: Mapping[str, Any]
    ) -> Path | None:
        """Keep what a client sent, and what of an UpdateInfo is known about it; the oldest rounds make room.

        Returns the file, None if there is no room even so. What is not known can be stated later, in the options of
        `mjp attack-update`.
        """
        path = self._round(round_number) / f"{file_name(client)}.safetensors"
        text = json.dumps(plain(_sensible(info)), indent=2) + "\n"
        # before the update: a killed server must not leave one that nothing is known about
        write_atomically(path.with_suffix(".json"), lambda temporary: temporary.write_text(text))
        _save(path, update)
        return self._make_room(path)

    def rounds(self) -> list[Path]:
        """The folders of the rounds, oldest first."""
        return sorted(path for path in self.folder.glob("round-*") if path.is_dir())

    def updates_of(self, client: str) -> list[Path]:
        """The updates of one client, oldest first."""
        paths = (folder / f"{file_name(client)}.safetensors" for folder in self.rounds())
        return [path for path in paths if path.is_file()]

    def _round(self, round_number: int) -> Path:
        folder = self.folder / f"round-{round_number:04}"
        folder.mkdir(exist_ok=True)
        return folder

    def _make_room(self, newest: Path) -> Path | None:
        """Remove the oldest rounds, and if that is not enough the newest file; the file, None if it had to go."""
        sizes = {folder: _bytes_in(folder) for folder in self.rounds()}
        for folder in [folder for folder in sizes if folder != newest.parent]:
            if sum(sizes.values()) <= self.max_bytes:
                return newest
            shutil.rmtree(folder)
            del sizes[folder]
        if sum(sizes.values()) <= self.max_bytes:
            return newest
        logging.getLogger(__name__).warning("leak log: %s does not fit into %s", newest.name, self.folder)
        newest.unlink()
        newest.with_suffix(".json").unlink(missing_ok=True)
        return None


def _equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    names = first.keys()
    return names == second.keys() and all(torch.equal(first[name], second[name].detach().cpu()) for name in names)


def _sensible(info: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an UpdateInfo that can be true: what a client states about itself may be nonsense."""
    public: dict[str, Any] = {}
    for name in (field.name for field in fields(UpdateInfo) if field.name in info):
        stated = {"kind": "fedavg", "lr": 1.0, **public, name: info[name]}
        try:
            parse(str(check_stated(stated, source=name).get("defence", "none")))
        except InputError:
            continue
        public[name] = info[name]
    return public


def file_name(client: str) -> str:
    """The name of a client, which comes from outside, as the name of a file; different clients have different files."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", str(client))[:80].strip("_")
    if not name or name != str(client):  # "a b" and "a/b" would both be a_b
        name = f"{name}-{hashlib.sha256(str(client).encode()).hexdigest()[:8]}"
    return f"client-{name}"


def _save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(content, temporary))


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
