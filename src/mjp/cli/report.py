"""One self-contained page: results of eval, study, train, attack, audit and aladin beside the published figures.

Example: mjp report report.html out/eval out/study out/my-run
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    out: tyro.conf.Positional[Path]
    """The page to write."""
    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Folders that mjp eval, study, train, attack, audit, aladin eval or aladin bench wrote; default: those directly in
    out/."""
    title: str = "Masked jigsaw puzzle models, side by side"
    """Title of the page."""


def run(options: Options) -> Results:
    from mjp.common.results import make_results
    from mjp.report.page import write_page

    runs = write_page(options.out, options.folders, title=options.title)
    for folder in runs:
        print(f"{folder.kind:<6} {folder.folder}")
    print(f"report {options.out}")
    folders = [{"folder": folder.folder, "kind": folder.kind} for folder in runs]
    return make_results("report", options, {"page": options.out, "bytes": options.out.stat().st_size, "runs": folders})
