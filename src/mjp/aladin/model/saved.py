"""config.json of a saved model: read, and refused if it does not describe one."""

from pathlib import Path
from typing import Any

from mjp.aladin.model.config import MAX_WIDTH, AladinConfig
from mjp.common.errors import InputError, first_line
from mjp.common.read import read_object
from mjp.common.validate import whole

FORMAT = "mjp-aladin-1"


def read_model_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"there is no {path}: give the folder of a model or of a run of mjp aladin train")
    saved = read_object(path, advice="copy or train the model again")
    types = {"hash": str, "vision": dict, "vision_width": int, "model": dict}
    if saved.get("format") != FORMAT or not all(isinstance(saved.get(key), kind) for key, kind in types.items()):
        raise InputError(f"{path} does not describe a model of mjp aladin")
    try:
        AladinConfig(**saved["model"])
        whole("vision_width", saved["vision_width"], least=1, most=MAX_WIDTH)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} does not describe a model of mjp aladin ({first_line(error)})") from error
    return saved
