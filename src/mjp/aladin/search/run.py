"""`mjp aladin search` from end to end: open the index, search, draw the contact sheet."""

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from mjp.aladin.index.filters import make_filter
from mjp.aladin.index.neighbours import Engine
from mjp.aladin.search.request import Request
from mjp.aladin.search.searcher import open_index
from mjp.aladin.search.sheet import MAX_PICTURES, contact_sheet, write_sheet
from mjp.aladin.search.table import match_entries, match_table
from mjp.common.errors import InputError
from mjp.common.files import check_folder

NOTHING = "perhaps nothing here really matches: these are the nearest"
EMPTY = "no picture to show: none passes the filters, or --offset is beyond the last match"


class SearchAnswer(NamedTuple):
    """What is printed, and the body of results.json."""

    text: str
    body: dict[str, Any]


def read_options(options: dict[str, Any]) -> tuple[Request, dict[str, Any]]:
    """The request in the options of the command, and how to open the index."""
    where = make_filter(**{name: options[name] for name in ("folder", "since", "until", "added_since")})
    asked = {name: options[name] for name in ("picture", "k", "offset", "rerank", "sort")}
    settings = {name: options[name] for name in ("index", "engine", "model", "max_pixels", "device")}
    if options["null"] and not options["paths"]:
        raise InputError("--null goes with --paths")
    return Request(text=options["query"], where=where, **asked), settings


def print_paths(request: Request, index: str, *, null: bool, **settings: Any) -> dict[str, Any]:
    """The first path of every match as the file system has it, bytes that are not text included.

    What a person should know goes to standard error, where no pipe reads it.
    """
    searcher = open_index(index, **settings)
    stages = searcher.stages(request)
    matches = stages.reranked
    for note in [*([NOTHING] if stages.doubtful else []), *(searcher.notes(request.text) if request.text else [])]:
        print(note, file=sys.stderr)
    end = "\0" if null else "\n"
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    for match in matches:
        if binary is None:  # standard output was replaced by one for text alone
            print(match.paths[0], end=end)
        else:
            binary.write(os.fsencode(match.paths[0]) + end.encode())
    body = {"query": request.text, "index": str(index), "doubtful": stages.doubtful}
    return {**body, "matches": match_entries(matches, {})}


def search_and_draw(
    request: Request,
    index: str,
    *,
    explain: bool,
    engine: Engine,
    model: str | None,
    max_pixels: int | None,
    device: str,
    out: Path,
) -> SearchAnswer:
    """Search, and write the contact sheet to `out`/sheet.png."""
    if explain and not request.by_words:
        raise InputError("--explain shows the best patch of each word: it needs a query in words, without a minus")
    check_folder(out)
    searcher = open_index(index, model=model, engine=engine, max_pixels=max_pixels, device=device)
    stages = searcher.stages(request)
    matches = stages.reranked
    words = {match.id: searcher.explain(request.text, match.id) or [] for match in matches if explain}
    title = " + ".join([*filter(None, [request.text]), *([f"like {request.picture.name}"] if request.picture else [])])
    out.mkdir(parents=True, exist_ok=True)
    file = out / "sheet.png"
    notes = searcher.notes(request.text) if request.text else []
    if matches:
        write_sheet(contact_sheet(title, matches, words, searcher.gallery.config.grid, max_pixels=max_pixels), file)
        first = f", the first {MAX_PICTURES} of {len(matches)}" if len(matches) > MAX_PICTURES else ""
        doubt = [NOTHING] if stages.doubtful else []
        text = "\n\n".join([match_table(matches, words), *doubt, *notes, f"sheet    {file}{first}"])
    else:
        file.unlink(missing_ok=True)  # that of an earlier query would pass for this one's
        text = "\n\n".join([EMPTY, *notes])
    body = {"query": title, "index": str(index), "doubtful": stages.doubtful, "matches": match_entries(matches, words)}
    return SearchAnswer(text, body)
