"""Find a retrieval model by what a person typed: the name of the shipped one, or a folder."""

from importlib.resources import files
from pathlib import Path

from mjp.aladin.model.aladin import Aladin
from mjp.common.errors import InputError

SHIPPED = "aladin-flickr8k"
HOME = Path(str(files("mjp").joinpath("shipped")))


def find_aladin(name: str, *, searchable: bool = False) -> tuple[Aladin, str]:
    """The model, and the name or full path that finds it again; `searchable`: refuse one without trained vectors."""
    if name == SHIPPED:
        if not (HOME / name).is_dir():
            raise InputError(f"this installation does not include {name}: train a model and pass it as --model FOLDER")
        return Aladin.load(HOME / name), name
    folder = Path(name)
    model = Aladin.load(folder)
    if searchable and not model.matching_trained:
        raise InputError(
            f"{name} comes from --phase align, which trains no vectors to search by: run mjp aladin train --phase distill "
            f"--teacher {name} and use its result"
        )
    return model, str(folder.resolve())
