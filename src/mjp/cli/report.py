"""One self-contained page with the results of eval, study, attack, audit and aladin, and the published figures beside.

Example: mjp report report.html out/eval out/study
"""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass
class Options:
    out: tyro.conf.Positional[Path]
    """The page to write."""
    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Folders that mjp eval, study, attack, audit, aladin eval or bench wrote; without any, those directly in out/."""
    title: str = "Masked jigsaw puzzle models, side by side"
    """Title of the page."""


def run(options: Options) -> None:
    from mjp.common.errors import InputError
    from mjp.common.files import write_atomically
    from mjp.report.page import render
    from mjp.report.runs import collect

    if options.out.is_dir():
        raise InputError(f"{options.out} is a folder: name the page to write, as in {options.out / 'report.html'}")
    if options.out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"the page must be named *.html, not {options.out}")
    runs = collect(options.folders)
    page = render(runs, title=options.title)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out, lambda path: path.write_text(page, encoding="utf-8"))
    for found in runs:
        print(f"{found.kind:<6} {found.folder}")
    print(f"report {options.out}")
