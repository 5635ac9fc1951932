"""From results folders to one self-contained HTML page: no network, no script, no other file."""

import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mjp import __version__
from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.style import page_css
from mjp.report.runs import Run, collect
from mjp.report.sections import KINDS, SECTIONS


def write_page(path: Path, folders: Sequence[Path], *, title: str) -> list[Run]:
    """Write the page of these folders, by default of those directly in out/, and say which they were."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: name the page to write, as in {path / 'report.html'}")
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"the page must be named *.html, not {path}")
    runs = collect(folders, kinds=KINDS)
    page = render(runs, title=title)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}): name another place") from error
    return runs


def render(runs: Sequence[Run], *, title: str, views: Sequence[tuple[str, str, bool]] = ()) -> str:
    """The page, a pure function of what the runs hold; `views`: title, address and whether it is this page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # models and folders may have any name
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    sections = []
    for section in SECTIONS:
        if (content := section.gather(runs)) is not None:
            name = section.__name__.rpartition(".")[2]
            sections.append({"name": name, "title": section.TITLE, "content": content})
    template = environment.get_template("template.html")
    return template.render(title=title, sections=sections, version=__version__, css=Markup(page_css()), views=views)


def breakable(text: str) -> Markup:
    """A name that may be broken after its separators, where a column is narrow."""
    return Markup("<wbr>").join(re.split(r"(?<=[/_.-])", text))  # join escapes the parts
