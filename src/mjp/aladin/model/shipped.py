"""Find a retrieval model by what a person typed: the name of the shipped one, or a folder."""

from importlib.resources import files
from pathlib import Path

from mjp.aladin.model.aladin import Aladin
from mjp.common.errors import InputError

SHIPPED = "aladin-flickr8k"
HOME = Path(str(files("mjp").joinpath("shipped")))


def find_aladin(name: str, *, searchable: bool = False) -> Aladin:
    """The model of that name or folder; `searchable`: refuse one without trained vectors."""
    if name == SHIPPED:
        if not (HOME / name).is_dir():
            raise InputError(f"this installation does not include {name}: train a model and pass it as --model FOLDER")
        return Aladin.load(HOME / name)
    model = Aladin.load(Path(name))
    if searchable and not model.matching_trained:
        raise InputError(
            f"{name} comes from --phase align, which trains no vectors to search by: run mjp aladin train "
            f"--phase distill --teacher {name} and use its result"
        )
    return model


def source_of(model: Aladin) -> str:
    """The name or full path with which `find_aladin` finds a loaded model again."""
    if model.home is None:
        raise InputError("save the model and load it from its folder first: an index must be able to find it again")
    return SHIPPED if model.home == HOME / SHIPPED else str(model.home.resolve())
