"""Find a retrieval model by what a person types: the name of a shipped one, or a folder."""

from importlib.resources import files
from pathlib import Path

from mjp.aladin.model.aladin import Aladin
from mjp.common.errors import InputError

SHIPPED = "aladin-flickr8k"
HOME = Path(str(files("mjp").joinpath("shipped")))


def find_aladin(name: str, *, searchable: bool = False) -> tuple[Aladin, str]:
    """The model, and the name or the full path under which it is found again; searchable if its vectors are trained."""
    if name == SHIPPED:
        if not (HOME / name).is_dir():
            raise InputError(f"this installation holds no {name}: train a model, and pass it as --model FOLDER")
        return Aladin.load(HOME / name), name
    folder = Path(name)
    model = Aladin.load(folder)
    if searchable and not model.matching_trained:
        raise InputError(
            f"{name} is of --phase align, which trains no vectors to search by: run mjp aladin train --phase distill "
            f"--teacher {name}, and give what comes out"
        )
    return model, str(folder.resolve())
