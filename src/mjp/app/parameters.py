"""What an address or a body asks for, checked. Nothing in it is ever a path."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from mjp.app.leak import Question, choose_attacks
from mjp.app.models import DRAWS, Models
from mjp.app.pictures import SAMPLE, Picture, Uploads
from mjp.common.errors import InputError, shorten
from mjp.common.validate import number, whole
from mjp.method.config import SamplerName
from mjp.privacy.combination import parse

MAX_SEED = 2**31
MAX_DEFENCES = 6
MAX_ROUNDS = 10
MAX_BATCH = 8
MAX_DEFENCE = 60  # characters
SAMPLERS = cast(tuple[SamplerName, ...], get_args(SamplerName))


@dataclass(frozen=True)
class Jigsaw:
    """The jigsaw that an address describes."""

    picture: str = SAMPLE
    ratio: float = 0.27
    sampler: SamplerName = "blockwise"
    seed: int = 0


def read_jigsaw(parameters: Mapping[str, str]) -> Jigsaw:
    sampler = parameters.get("sampler") or "blockwise"
    if sampler not in SAMPLERS:
        raise InputError(f"sampler must be one of {', '.join(SAMPLERS)}, not {shorten(sampler)}")
    return Jigsaw(
        parameters.get("picture") or SAMPLE,
        number("γ", _float(parameters.get("ratio") or "0.27", "γ"), least=0, most=1),
        sampler,
        _whole(parameters.get("seed") or "0", "seed", most=MAX_SEED),
    )


def read_draws(parameters: Mapping[str, str]) -> tuple[int, int]:
    """The first jigsaw to count and how many."""
    first = _whole(parameters.get("first") or "0", "first", most=DRAWS - 1)
    return first, min(_whole(parameters.get("count") or "10", "count", least=1, most=DRAWS), DRAWS - first)


def read_question(body: bytes, models: Models, uploads: Uploads) -> Question:
    """The run of attacks that a body in JSON asks for."""
    content = _object(body)
    model = _text(content, "model", models.default)
    picture: Picture = uploads.find(_text(content, "picture", SAMPLE))
    rounds = whole("rounds", content.get("rounds", 1), least=1, most=MAX_ROUNDS)
    batch = whole("batch", content.get("batch", 1), least=1, most=MAX_BATCH)
    defences = content.get("defences", ["none"])
    if not isinstance(defences, list) or not 1 <= len(defences) <= MAX_DEFENCES:
        raise InputError(f"choose one to {MAX_DEFENCES} defences")
    names = tuple(dict.fromkeys(_defence(text, batch) for text in defences))
    seed = whole("seed", content.get("seed", 0), most=MAX_SEED)
    pixels = (picture.inputs[models[model].size] * 255).round().byte().numpy()
    return Question(model, pixels, names, choose_attacks(models[model], names, rounds), rounds, seed)


def _defence(text: Any, batch: int) -> str:
    """A defence as the command line writes it, with the batch of the slider."""
    if not isinstance(text, str) or len(text) > MAX_DEFENCE:
        raise InputError(f"a defence is a text of at most {MAX_DEFENCE} characters, as mjp:0.27")
    combination = parse(text)
    combination.check_installed()
    if combination.batch > MAX_BATCH:
        raise InputError(f"the page attacks batches of at most {MAX_BATCH} pictures, not {combination.batch}")
    if batch == 1 or combination.batch > 1:
        return text
    return f"batch:{batch}" if text == "none" else f"{text}+batch:{batch}"


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError("the body must be JSON") from error
    if not isinstance(content, dict):
        raise InputError("the body must be a JSON object")
    return content


def _text(content: dict[str, Any], name: str, default: str) -> str:
    value = content.get(name, default)
    if not isinstance(value, str):
        raise InputError(f"{name} must be a text, not {shorten(value)}")
    return value


def _float(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{name} must be a number, not {shorten(text)}") from error


def _whole(text: str, name: str, *, least: int = 0, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise InputError(f"{name} must be a whole number, not {shorten(text)}")
    return whole(name, int(text), least=least, most=most)
