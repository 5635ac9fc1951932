"""Words for ImageNet's classes: names and definitions from timm's lists, everyday kinds from kinds.yaml.

A `ClassText` is a text and the classes of which it is true: a name belongs to one class, “dog” to 118.
"""

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.common.read import parse_yaml

CLASSES = 1000
PHRASES = ("{}", "{}", "{a}", "{a}", "a photo of {a}", "a picture of {a}", "a close up of {a}", "the {}")


class ClassText(NamedTuple):
    """A text, and the classes of which it is true."""

    text: str
    classes: tuple[int, ...]


@cache
def class_names() -> list[list[str]]:
    """The synonyms of every class, the usual one first."""
    from timm.data import ImageNetInfo

    info = ImageNetInfo()
    return [[name.strip() for name in info.index_to_description(n).split(",")] for n in range(CLASSES)]


@cache
def definitions() -> list[str]:
    from timm.data import ImageNetInfo

    info = ImageNetInfo()
    return [info.index_to_description(n, detailed=True).partition(": ")[2].partition(";")[0] for n in range(CLASSES)]


@cache
def kinds() -> dict[str, tuple[int, ...]]:
    """Everyday words, and the classes that they cover."""
    text = files("mjp").joinpath("aladin/data/kinds.yaml").read_text(encoding="utf-8")
    table = parse_yaml(text, "kinds.yaml")
    return {word.strip(): _numbers(str(classes)) for words, classes in table.items() for word in words.split(",")}


def kinds_of(number: int) -> list[str]:
    """The everyday words for a class."""
    return _kinds_by_class()[number]


@cache
def _kinds_by_class() -> list[list[str]]:
    return [[word for word, classes in kinds().items() if n in classes] for n in range(CLASSES)]


def draw_text(number: int, generator: torch.Generator) -> ClassText:
    """A text about a class: its name or a kind of it in some phrase, or its definition."""
    source, template, choice = torch.rand(3, generator=generator).tolist()
    words = kinds_of(number)
    if source < 0.1:
        return ClassText(definitions()[number], (number,))
    phrase = PHRASES[int(template * len(PHRASES))]
    if source < 0.5 and words:
        kind = words[int(choice * len(words))]
        return ClassText(phrase.format(kind, a=with_article(kind)), kinds()[kind])
    names = class_names()[number]
    name = names[int(choice**2 * len(names))]  # the first ones more often
    text = phrase.format(name, a=with_article(name))
    return ClassText(text, tuple(n for n, others in enumerate(class_names()) if name in others))


def with_article(words: str) -> str:
    return f"{'an' if words[0].lower() in 'aeiou' else 'a'} {words}"


def membership(texts: list[ClassText]) -> Tensor:
    """(T, classes): 1 where the text is true of the class."""
    member = torch.zeros(len(texts), CLASSES)
    for row, text in enumerate(texts):
        member[row, list(text.classes)] = 1
    return member


def class_number(name: str) -> int | None:
    """ImageNet's class of that name, written with spaces or underscores; None if there is none.

    Capital letters count only where they must: Cardigan is a dog, cardigan a garment.
    """
    names = _numbers_by_name()
    return names.get(name.replace("_", " "), names.get(plain_name(name)))


def plain_name(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name).strip().lower()


@cache
def _numbers_by_name() -> dict[str, int]:
    ranked = sorted((rank, n, name) for n, names in enumerate(class_names()) for rank, name in enumerate(names))
    exact = {name: n for _, n, name in reversed(ranked)}  # the better rank wins
    return {plain_name(name): n for _, n, name in reversed(ranked)} | exact


def all_class_texts() -> list[str]:
    """Every name, definition and kind: what the text encoder must be able to spell."""
    return [*(name for names in class_names() for name in names), *definitions(), *kinds()]


def _numbers(ranges: str) -> tuple[int, ...]:
    """ "3-5 9" → 3, 4, 5, 9."""
    ends = [part.partition("-") for part in ranges.split()]
    return tuple(n for first, _, last in ends for n in range(int(first), int(last or first) + 1))
