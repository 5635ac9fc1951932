"""From results folders to one HTML page that needs nothing else: no network, no script, no other file."""

import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mjp import __version__
from mjp.common.style import page_css
from mjp.report.runs import Run
from mjp.report.sections import SECTIONS


def render(runs: Sequence[Run], *, title: str) -> str:
    """The page, a pure function of what the runs hold."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # names of models and folders are whatever a person typed
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    sections = []
    for section in SECTIONS:
        if (found := section.find(runs)) is not None:
            name = section.__name__.rpartition(".")[2]
            sections.append({"name": name, "title": section.TITLE, "found": found})
    template = environment.get_template("template.html")
    return template.render(title=title, sections=sections, version=__version__, css=Markup(page_css()))


def breakable(text: str) -> Markup:
    """A name that may be broken after its separators, where a column is narrow."""
    return Markup("<wbr>").join(re.split(r"(?<=[/_.-])", text))  # join escapes the parts
